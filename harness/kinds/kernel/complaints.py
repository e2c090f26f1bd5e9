"""What a schema can't see in a kernel case: things that do not go together, and checks that could not fail."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

import numpy as np

from harness.compare import UNIT_ROUNDOFF, Bound
from harness.kinds.kernel.expressions import ArrayExpressionError, check
from harness.kinds.kernel.inputs import make_inputs
from harness.kinds.kernel.reference import NoAnswerError, want

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.kinds.base import Complaint
    from harness.kinds.kernel.schema import InputGiven, KernelCase, KernelGiven, OutputGiven, Within

_MOST_ELEMENTS = 1 << 24
# Cases with more are computed where they run, not where they are loaded.
_COMPUTED_AT_LOADING = 1 << 13
_MOST_THREADS = 1024
# Where the bound is half as large as an answer, an answer of zeros still fails, and half of the wrong ones do.
_LOOSEST = 0.5
_NAME = re.compile(r"[A-Za-z_]\w*")


def complaints(case: KernelCase) -> Iterator[Complaint]:
    """Yield the place and the description of everything that can't be, with what to write instead."""
    found = list(kernel_complaints(case.given))
    for name, output in case.given.outputs.items():
        found += (((*("given", "outputs", name), *at), why) for at, why in _output(case.given, output))
    found += _checks(case)
    yield from found
    if not found:
        yield from _answers(case.given)


def kernel_complaints(given: KernelGiven) -> Iterator[Complaint]:
    """Yield what can't be in a kernel, its inputs and its launch, whatever must come out."""
    yield from (*_text(given), *_names(given), *_launch(given))
    for name, one in given.inputs.items():
        yield from ((("given", "inputs", name, *at), why) for at, why in _input(one))


def _text(given: KernelGiven) -> Iterator[Complaint]:
    if given.source is None:
        if given.file is None:
            yield ("given",), "there is no kernel: write its body as `source: |`, or `file:` and a file beside the case"
        else:
            yield ("given", "file"), "a file can't come from the matrix; write a `source` there"
    elif not given.source.strip():
        yield ("given", "source"), "is empty"
    if given.twin is not None and given.twin == given.source:
        yield ("given", "twin"), "is the kernel itself; write another body"


def _names(given: KernelGiven) -> Iterator[Complaint]:
    for key, names in (("inputs", given.inputs), ("outputs", given.outputs), ("template", given.template)):
        for name in names:
            if not _NAME.fullmatch(name):
                yield ("given", key, name), f"'{name}' is no name of a parameter; write letters, digits and _"
            elif key == "outputs" and name in given.inputs:
                yield ("given", key, name), "there is an input of this name"


def _launch(given: KernelGiven) -> Iterator[Complaint]:
    threads = math.prod(given.threadgroup)
    if threads > _MOST_THREADS:
        yield ("given", "threadgroup"), f"has {threads} threads; a GPU takes up to {_MOST_THREADS}"
    if math.prod(given.grid) > _MOST_ELEMENTS:
        yield ("given", "grid"), f"has {math.prod(given.grid)} threads; {_MOST_ELEMENTS} are allowed here"


def _input(one: InputGiven) -> Iterator[Complaint]:
    if one.scalar is not None:
        extra = sorted(one.model_fields_set - {"scalar"})
        if extra:
            yield (extra[0],), "does nothing beside `scalar`, which is passed as Python has it; remove it"
        return
    if one.shape is None:
        yield (), "has no size: write `shape: [8]`, `shape: []` for one without axes, or `scalar: 0.5`"
        return
    if math.prod(one.shape) > _MOST_ELEMENTS:
        yield ("shape",), f"has {math.prod(one.shape)} elements; {_MOST_ELEMENTS} are allowed"
    needed = {"plain": 0, "transposed": 2, "stride-0": 1, "sliced": 1}[one.view]
    if len(one.shape) < needed:
        yield ("view",), f"`{one.view}` needs {needed} {'axes' if needed > 1 else 'axis'}; this input has fewer"
    ranged = one.values in ("integers", "uniform")
    for key in ("low", "high"):
        if key in one.model_fields_set and not ranged:
            yield (key,), "does nothing without `values: integers` or `uniform`; remove it, or write one of these"
    if ranged and not one.low < one.high:
        yield ("high",), f"must be above `low`, which is {one.low:g}"
    if one.dtype not in UNIT_ROUNDOFF and one.values in ("normal", "uniform"):
        yield ("values",), f"`{one.values}` is of floats, and this is {one.dtype}; write `integers` or `bits`"


def _output(given: KernelGiven, output: OutputGiven) -> Iterator[Complaint]:
    names = [*given.constants, *given.inputs]
    if (output.expect is None) == (output.function is None):
        what = "there are two" if output.expect is not None else "nothing says what must come out"
        yield (), f"{what}: write one of `expect` and `function`"
    elif output.expect is not None:
        try:
            check(output.expect, names)
        except ArrayExpressionError as error:
            yield ("expect",), str(error)
    if output.within != "exact":
        yield from _within(output, output.within, names)


def _within(output: OutputGiven, within: Within, names: list[str]) -> Iterator[Complaint]:
    kinds = within.named()
    if len(kinds) != 1:
        have = f"{' and '.join(kinds)} do not go together" if kinds else "allows nothing"
        yield ("within",), f"{have}; write one of ulp, magnitudes (with terms), limit, nmse, or `within: exact`"
        return
    if kinds[0] == "ulp" and output.dtype not in UNIT_ROUNDOFF:
        yield ("within", "ulp"), f"counts floats, and this is {output.dtype}; write `within: exact`"
    for key in ("terms", "extra", "arithmetic"):
        if key in within.model_fields_set and kinds[0] != "magnitudes":
            yield ("within", key), "does nothing without `magnitudes`; remove it"
    if within.magnitudes is not None and "terms" not in within.model_fields_set:
        yield ("within", "magnitudes"), "needs `terms` beside it, how many terms are summed"
    for key, extra in (("magnitudes", ()), ("limit", ("expected", "unit", "unit32"))):
        text = getattr(within, key)
        if text is not None:
            try:
                check(text, [*names, *extra])
            except ArrayExpressionError as error:
                yield ("within", key), str(error)


def _checks(case: KernelCase) -> Iterator[Complaint]:
    for key in ("check", "time"):
        words: list[str] = [str(word) for word in getattr(case, key)]
        for index, word in enumerate(words):
            if word in words[:index]:
                yield (key, index), f"'{word}' stands here twice"
    if "output" not in case.check:
        yield ("check",), "nothing looks at what the kernel writes; add `output`"
    if "untouched" in case.check and all(one.scalar is not None for one in case.given.inputs.values()):
        yield ("check", case.check.index("untouched")), "there is no input array that could be written to"


def _answers(given: KernelGiven) -> Iterator[Complaint]:
    """Compute what must come out, where that is quick and needs no code of the case."""
    if any(output.function is not None for output in given.outputs.values()):
        return
    elements = sum(math.prod(one.shape or ()) for one in given.inputs.values())
    elements += sum(math.prod(output.shape) for output in given.outputs.values())
    if elements > _COMPUTED_AT_LOADING:
        return
    try:
        wanted = want(given, make_inputs(given))
    except NoAnswerError as error:
        name, _, key = error.key.rpartition(".")
        yield ("given", "outputs", name, key), str(error)
        return
    for name, one in wanted.items():
        if not isinstance(one.policy, Bound):
            continue
        finite = np.isfinite(one.values)
        size = float(np.sqrt(np.mean(one.values[finite] ** 2))) if finite.any() else 0.0
        limit = float(np.median(one.policy.limit[finite])) if finite.any() else 0.0
        if not limit <= _LOOSEST * size:
            what = f"the bound is {limit:.2g} and an answer {size:.2g}, so that hardly anything could fail"
            yield ("given", "outputs", name, "within"), f"{what}; write a tighter one, fewer terms or a wider dtype"
