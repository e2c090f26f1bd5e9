"""clang's messages in the words of Metal, with the features that no prelude covers named."""

from __future__ import annotations

import re

from impl.metal.errors import CompileError, MetalTextError, NotCoveredError

# How the front end's dialect spells Metal's address spaces.
_WORDS = {
    "__global": "device",
    "__local": "threadgroup",
    "__constant": "constant",
    "__private": "thread",
    "__generic": "(no address space)",
    "__bf16": "bfloat",
    "OpenCL": "Metal",
}
_DIALECT = re.compile(r"\b(" + "|".join(_WORDS) + r")\b")

# Metal that exists and that no CPU run covers, by the identifiers that ask for it.
_NOT_COVERED = {
    r"texture\w*|sampler|read_write|texture_buffer": "textures and samplers",
    r"simdgroup_async_copy\w*|simdgroup_event": "asynchronous copies of simdgroups",
    r"raytracing|intersect\w*|primitive_acceleration_structure": "ray tracing",
    r"tensor\w*|cooperative_tensor": "tensors",
    r"imageblock\w*": "image blocks",
    r"visible_function_table|function_constant": "function tables and function constants",
    r"os_log\w*": "os_log",
    r"complex64_t": "complex64_t",
}
_UNKNOWN_NAME = re.compile(
    r"error: (?:use of undeclared identifier|unknown type name|no (?:template|type) named|no member named) '(\w+)'"
)
_MESSAGE = re.compile(r"^(\S.*?):\d+:\d+: (fatal error|error|warning|note): ")
_NOISE = re.compile(r"^In file included from |^\d+ (?:errors?|warnings?)\b.* generated\.$")
_MOST_LINES = 60


def compile_error(name: str, complaint: str) -> MetalTextError:
    """Return the error to raise for `complaint`, what clang wrote about kernel `name`."""
    refused = re.search(r"error: static assertion failed.*: (.* not covered here)$", complaint, re.MULTILINE)
    text = in_metal_words(complaint)
    if refused:
        return NotCoveredError(f"kernel {name!r}, {text.splitlines()[0].partition(' error:')[0]} {refused[1]}")
    for unknown in _UNKNOWN_NAME.findall(complaint):
        for pattern, feature in _NOT_COVERED.items():
            if re.fullmatch(pattern, unknown):
                return NotCoveredError(f"kernel {name!r} uses {unknown}: {feature} are not covered here")
    return CompileError(f"kernel {name!r} does not compile:\n{text}")


def in_metal_words(complaint: str) -> str:
    """Return clang's text with Metal's names, at the author's own lines, and not longer than a screen.

    An error inside the prelude, such as a failed static_assert, is shown where the author's text led to it.
    """
    shown: list[str] = []
    for error, *notes in _grouped(complaint):
        own = [note for note in notes if _is_own(note)]
        if _is_own(error) or not own:
            own.insert(0, error)
        else:
            place = own[0][0].partition(": note:")[0]
            message = re.sub(r"static assertion failed.*?: (?=\S+$|[^:]*$)", "", error[0].partition("error: ")[2])
            own[0] = [f"{place}: error: {message}", *own[0][1:]]
        for message_lines in own:
            shown += message_lines
    text = [_DIALECT.sub(lambda found: _WORDS[found[1]], line) for line in shown]
    if len(text) > _MOST_LINES:
        text = [*text[:_MOST_LINES], f"... and {len(text) - _MOST_LINES} lines more"]
    return "\n".join(text).strip() or complaint.strip()


def _grouped(complaint: str) -> list[list[list[str]]]:
    """Split into errors: each a list of messages, the error and its notes; each message its lines."""
    groups: list[list[list[str]]] = []
    for line in complaint.splitlines():
        began = _MESSAGE.match(line)
        if began and began[2] != "note":
            groups.append([[line]])
        elif began and groups:
            groups[-1].append([line])
        elif groups and not _NOISE.match(line):
            groups[-1][-1].append(line)
    return [group for group in groups if ": warning: " not in group[0][0]]


def _is_own(message: list[str]) -> bool:
    return message[0].startswith(("source:", "header:", "signature:"))


def at_line(unit: str, file: str, line: int, column: int) -> str:
    """Return line `line` of `file` (`source`, `header`) inside `unit`, with a caret below `column`, or ""."""
    begin = unit.find(f'#line 1 "{file}"\n')
    if begin < 0:
        return ""
    rows = unit[begin:].split("\n")
    if not 0 < line < len(rows):
        return ""
    number = f"{line:5} | "
    return f"{number}{rows[line]}\n{' ' * 6}| {' ' * max(column - 1, 0)}^"
