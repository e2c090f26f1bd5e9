"""Rewrites the few spellings of Metal that neither clang nor a macro of the prelude can take.

The prelude turns `float4(a, b)` into `msl_make<float4>(a, b)` with macros, because clang has no such constructors. That
cannot reach aliases (`using V = vec<T, 4>; V(x)`) or `vec<T, 4>(x)`, and it reaches too far in declarators such as
`thread float4 (&rows)[2]`. Rewritten are also literals such as `1.5bf`, constructors that are qualified `thread`, and
static_cast, because clang refuses it between vectors and between half and bfloat.
Lines keep their numbers; columns move on a line that is rewritten.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_VECTOR = r"(?:char|uchar|short|ushort|int|uint|long|ulong|half|float|bfloat)[234]"
_SCALAR_MACRO = r"half|bfloat|float16_t|bfloat16_t"
_HIDDEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
_USING = re.compile(r"\busing\s+(\w+)\s*=\s*([^;{}]*);")
_TYPEDEF = re.compile(r"\btypedef\s+([^;{}()]*?[\s>])(\w+)\s*;")
_TEMPLATE_BEFORE = re.compile(r"\btemplate\s*<[^;{}]*>\s*$")
_BFLOAT_LITERAL = re.compile(r"(?<![\w.])((?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][+-]?\d+)?)(?:bf|BF)\b")
_CLASS = re.compile(r"\b(?:struct|class)\s+(\w+)")
_CONVERSION = r"operator\s+[\w:<>]+\s*\(\s*\)\s*const\s+"
_DECLARATOR = re.compile(r"\s*\(\s*(?:const\s+)?[&*]\s*(?:const\s+)?\w*\s*\)\s*\[")
_CALL = re.compile(r"\s*\(")


def rewrite(header: str, source: str) -> tuple[str, str]:
    """Return both texts of a kernel, rewritten; an alias of the header is known in the source."""
    names = {"vec"}, set[str]()
    for text in (header, source):
        _aliases(_visible(text), *names)
    return _rewritten(header, *names), _rewritten(source, *names)


def _visible(text: str) -> str:
    # Comments and strings as spaces, so that places in the result are places in the text.
    return _HIDDEN.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)


def _aliases(seen: str, templates: set[str], plain: set[str]) -> None:
    for match in sorted([*_USING.finditer(seen), *_TYPEDEF.finditer(seen)], key=lambda m: m.start()):
        name, what = (match[1], match[2]) if match.re is _USING else (match[2], match[1])
        if "*" in what or "&" in what or not _names_vector(what, templates, plain):
            continue
        (templates if _TEMPLATE_BEFORE.search(seen[: match.start()]) else plain).add(name)


def _names_vector(what: str, templates: Iterable[str], plain: Iterable[str]) -> bool:
    whole = what.strip().removeprefix("const ").removeprefix("typename ").strip().removeprefix("metal::")
    if re.fullmatch(rf"{_VECTOR}|{_words(plain)}", whole):
        return True
    return re.match(rf"(?:{_words(templates)})\s*<", whole) is not None


def _words(names: Iterable[str]) -> str:
    return "|".join(map(re.escape, sorted(names))) or r"(?!)"


def _rewritten(text: str, templates: set[str], plain: set[str]) -> str:
    seen = _visible(text)
    edits = [*_constructors(seen, templates, plain)]
    edits += [(m.start(), m.end(), f"bfloat({m[1]}f)") for m in _BFLOAT_LITERAL.finditer(seen)]
    # As long as the word it replaces, so that columns stay.
    edits += [(m.start(), m.end(), "msl_make   ") for m in _static_casts(seen, templates, plain)]
    edits += [(m.start(1), m.end(1), "      ") for m in _thread_qualifiers(seen)]
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _static_casts(seen: str, templates: set[str], plain: set[str]) -> Iterator[re.Match[str]]:
    kind = rf"(?:{_VECTOR}|{_SCALAR_MACRO}|{_words(plain)}|(?:{_words(templates)})\s*<[^&*;{{}}()]*>)"
    return re.finditer(rf"\bstatic_cast(?=\s*<\s*(?:typename\s+)?(?:\w+::)*{kind}\s*>\s*\()", seen)


def _thread_qualifiers(seen: str) -> Iterator[re.Match[str]]:
    # clang lets no constructor qualified `thread` make a temporary or a member, and no such conversion take one.
    made = rf"\b(?:{_words({m[1] for m in _CLASS.finditer(seen)})})\s*\([^()]*\)\s*"
    return re.finditer(rf"(?:{made}|{_CONVERSION})(thread)\b(?=\s*(?:noexcept\b\s*)?[{{:;])", seen)


def _constructors(seen: str, templates: set[str], plain: set[str]) -> Iterator[tuple[int, int, str]]:
    qualifiers = r"(?<![\w.:~])(?<!->)(?:typename\s+)?(?:\w+(?:<[^;<>()]*>)?::)*"
    found = rf"{qualifiers}\b(?:(?P<template>{_words(templates)})\s*<|(?P<plain>{_words(plain)})\b)"
    for match in re.finditer(found, seen):
        end = match.end()
        if match["template"]:
            close = _closing(seen, match.end())
            if close is None:
                continue
            end = close + 1
        called = _CALL.match(seen, end)
        if called and not _DECLARATOR.match(seen, end) and not re.search(r"\boperator\s*$", seen[: match.start()]):
            # Two insertions, so that constructors inside the template arguments are not lost.
            yield match.start(), match.start(), "msl_make<"
            yield end, end, ">"
    for match in re.finditer(rf"(\boperator\s+)?\b(?:{_VECTOR}|bool[234]|{_SCALAR_MACRO})\b", seen):
        if _DECLARATOR.match(seen, match.end()) or (match[1] and _CALL.match(seen, match.end())):
            yield match.end(), match.end(), " MSL_DECLARES"


def _closing(seen: str, begin: int) -> int | None:
    angles, parentheses = 1, 0
    for place in range(begin, min(len(seen), begin + 200)):
        character = seen[place]
        if character in ";{}":
            return None
        # `N > 2` is a comparison only inside parentheses.
        parentheses += (character == "(") - (character == ")")
        if parentheses == 0:
            angles += (character == "<") - (character == ">")
        if angles == 0:
            return place
    return None
