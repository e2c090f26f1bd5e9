"""A YAML file as plain values, with the line and column of every key and value.

PyYAML parses; this module adds what a case file needs and a configuration file does without: duplicate keys,
anchors and aliases are refused (an alias can blow one line up to gigabytes), nesting and sizes are bounded, and
nothing becomes a date.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml
from yaml.reader import ReaderError

from harness.case.problem import Problem
from harness.errors import CaseFileError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

# A place in a case file: keys and indices from its root.
Location = tuple[str | int, ...]

MAX_BYTES = 1 << 18
MAX_DEPTH = 40
MAX_TEXT_CHARS = 4000
MAX_NUMBER_CHARS = 40

# The first line that is neither blank nor a comment may be any key; `assay: <number>` at the left edge is ours.
_OURS = re.compile(rb"^(?:\xef\xbb\xbf)?assay[ \t]*:[ \t]*['\"]?[0-9]", re.MULTILINE)
_KEY_TAGS = frozenset(f"tag:yaml.org,2002:{name}" for name in ("str", "int"))
_VALUE_TAGS = _KEY_TAGS | {f"tag:yaml.org,2002:{name}" for name in ("float", "bool", "null")}
# What YAML makes of plain text that nobody meant so.
_READ_AS = {
    "!!timestamp": "a date",
    "!!bool": "true or false",
    "!!null": "nothing",
    "!!float": "a number",
    "!!merge": "a merge key",
    "!!value": "a default value",
}
_TAGS = _VALUE_TAGS | {f"tag:yaml.org,2002:{name}" for name in ("map", "seq")}


def is_case_file(path: Path) -> bool:
    """Tell from the first 64 KiB whether a YAML file claims to be a case of ours (a top-level `assay: <number>`)."""
    try:
        with path.open("rb") as file:
            return _OURS.search(file.read(1 << 16)) is not None
    except OSError:
        return False


@dataclass(frozen=True)
class Source:
    """A parsed YAML file: its plain value and the node tree behind it."""

    path: str
    value: Any
    root: yaml.Node

    def problem(self, location: Location | list[str | int], message: str, *, at_key: bool = False) -> Problem:
        """Make a problem at `location` (mapping keys and sequence indices from the root; unknown ones are skipped)."""
        mark, key = self.root.start_mark, ""
        for part, key_node, node in _path(self.root, list(location)):
            mark = (key_node if at_key and key_node is not None else node).start_mark
            key += f"[{part}]" if key_node is None else f".{part}"
        return Problem(self.path, mark.line + 1, mark.column + 1, key.lstrip("."), message)


_Place = tuple[str | int, yaml.Node | None, yaml.Node]


def _path(node: yaml.Node, location: list[str | int], *, top: bool = True) -> list[_Place]:
    """Follow as many parts of `location` as there are, from its first part on.

    pydantic adds the chosen member of a union to a location, which is no place in the file. It may look like one: in
    `steps, 0, append, rows` the third part is the member `append`, and `rows` stands beside the key `append`.
    """
    for index, part in enumerate(location[:1] if top else location):
        step = _child(node, part)
        if step is not None:
            taken = [(part, *step), *_path(step[1], location[index + 1 :], top=False)]
            skipped = [] if top else _path(node, location[index + 1 :], top=False)
            return taken if len(taken) > len(skipped) else skipped
    return []


def _child(node: yaml.Node, part: str | int) -> tuple[yaml.Node | None, yaml.Node] | None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == str(part):
                return key, value
    elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and 0 <= part < len(node.value):
        return None, node.value[part]
    return None


class _Loader(yaml.SafeLoader):
    """Stops at anchors and at nesting without end while it reads, and says where a number can't be read."""

    depth = -1

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]  # types-PyYAML leaves it out
        if getattr(event, "anchor", None) is not None:
            raise _Refused("case files have no anchors and aliases: write the value out", event.start_mark)
        if self.depth >= MAX_DEPTH:
            raise _Refused(f"is nested more than {MAX_DEPTH} levels deep", event.start_mark)
        self.depth += 1
        node: yaml.Node | None = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, KeyError) as error:
            raise _Refused(f"is not valid: {error}", node.start_mark) from None


class _Refused(yaml.MarkedYAMLError):
    """Valid YAML that a case file can't have."""

    def __init__(self, message: str, mark: yaml.Mark) -> None:
        super().__init__(problem=message, problem_mark=mark)


def read_source(path: Path) -> Source:
    """Parse one YAML file.

    Raises CaseFileError when it is not UTF-8, not YAML, empty, too large, too deep, has duplicate keys or aliases.
    """
    shown = str(path)

    def fail(message: str, line: int = 0, column: int = 0) -> CaseFileError:
        return CaseFileError([Problem(shown, line + 1, column + 1, "", message)])

    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise fail(f"can't be read: {error.strerror}") from None
    if len(data) > MAX_BYTES:
        raise fail(f"is larger than {MAX_BYTES >> 10} KiB, which is the most that a case file may have")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        if data.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise fail("is UTF-16; save the file as UTF-8") from None
        before = data[: error.start]
        line, column = before.count(b"\n"), len(before) - before.rfind(b"\n") - 1
        raise fail(f"is not UTF-8 (byte 0x{data[error.start]:02x}); save the file as UTF-8", line, column) from None
    root, value = _parse(shown, text, fail)
    return Source(shown, value, root)


# An anchor, or a line indented further than any case is.
_UNUSUAL = re.compile(r"&|^ {80}", re.MULTILINE)


def _quick(text: str) -> yaml.Node | None:
    """Parse usual text by libyaml, ten times as fast; None sends it to the careful loader, which explains mistakes."""
    parser = getattr(yaml, "CSafeLoader", None)
    if parser is None or _UNUSUAL.search(text) or text.count("[") + text.count("{") > 4000:
        return None
    depth = deepest = 0
    for bracket in re.findall(r"[\[\]{}]", text):
        depth += 1 if bracket in "[{" else -1
        deepest = max(deepest, depth)
    if deepest > MAX_DEPTH // 2:
        return None
    try:
        root: yaml.Node | None = yaml.compose(text, Loader=parser)
    except yaml.YAMLError:
        return None
    return root


def _parse(shown: str, text: str, fail: Callable[..., CaseFileError]) -> tuple[yaml.Node, Any]:
    quick = _quick(text)
    if quick is not None and not any(_structure(shown, quick)):
        try:
            return quick, _Loader("").construct_document(quick)
        except yaml.YAMLError:
            # What can't be built is said by the careful loader, with its place.
            pass
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
        problems = [] if root is None else list(_structure(shown, root))
        if root is not None and not problems:
            return root, loader.construct_document(root)
    except yaml.MarkedYAMLError as error:
        # A quote or bracket that is never closed is a mistake at its beginning, not at the end of the file.
        endless = "end of stream" in str(error.problem)
        mark = (error.context_mark if endless else None) or error.problem_mark or error.context_mark
        raise fail(_plain_words(error), mark.line if mark else 0, mark.column if mark else 0) from None
    except ReaderError as error:
        before = text[: error.position]
        message = f"holds the character {error.character:#04x}, which YAML does not allow"
        raise fail(message, before.count("\n"), error.position - before.rfind("\n") - 1) from None
    if problems:
        raise CaseFileError(problems)
    raise fail("is empty; `assay: 1` and `kind:` come first")


def _plain_words(error: yaml.MarkedYAMLError) -> str:
    problem = error.problem or "is not YAML"
    if isinstance(error, _Refused):
        return problem
    if "'\\t'" in problem:
        return "a tab can't indent YAML; use spaces"
    if "another document" in problem:
        return "a second document starts here; write one case a file"
    if "mapping values are not allowed" in problem:
        return "is not YAML: no `: ` can stand here; put a text that holds one in quotes, or mend the indentation"
    context = f" {error.context}" if error.context else ""
    return f"is not YAML: {problem}{context}"


def _structure(path: str, root: yaml.Node) -> Iterator[Problem]:
    """Find duplicate keys, keys that are no plain words, and values that a case file can't have."""
    stack: list[tuple[yaml.Node, str]] = [(root, "")]
    while stack:
        node, name = stack.pop()
        message = _value_problem(node)
        if message:
            yield Problem(path, node.start_mark.line + 1, node.start_mark.column + 1, name, message)
        elif isinstance(node, yaml.SequenceNode):
            stack.extend((child, f"{name}[{index}]") for index, child in enumerate(node.value))
        elif isinstance(node, yaml.MappingNode):
            first: dict[str, int] = {}
            for key, child in node.value:
                at = (key.start_mark.line + 1, key.start_mark.column + 1)
                if not isinstance(key, yaml.ScalarNode):
                    yield Problem(path, *at, name, "a key must be a plain word")
                    continue
                inner = f"{name}.{key.value}".lstrip(".")
                if key.tag == "tag:yaml.org,2002:merge":
                    yield Problem(path, *at, inner, "case files have no merge keys: write the keys out")
                elif key.tag not in _KEY_TAGS:
                    yield Problem(
                        path,
                        *at,
                        inner,
                        f"YAML reads this key as {_READ_AS.get(_tag(key), _tag(key))}; put it in quotes",
                    )
                elif key.value in first:
                    yield Problem(path, *at, inner, f"duplicate key; it stands on line {first[key.value]} already")
                first.setdefault(key.value, at[0])
                stack.append((child, inner))


def _value_problem(node: yaml.Node) -> str:
    if node.tag not in _TAGS:
        if _tag(node) in _READ_AS:
            return f"YAML reads this as {_READ_AS[_tag(node)]}; put it in quotes"
        return f"has the tag {_tag(node)}; case files have no tags"
    if not isinstance(node, yaml.ScalarNode):
        return ""
    number = node.tag.endswith((":int", ":float"))
    if len(node.value) > (MAX_NUMBER_CHARS if number else MAX_TEXT_CHARS):
        return f"has {len(node.value)} characters; {MAX_NUMBER_CHARS if number else MAX_TEXT_CHARS} are allowed"
    return ""


def _tag(node: yaml.Node) -> str:
    return str(node.tag).replace("tag:yaml.org,2002:", "!!")
