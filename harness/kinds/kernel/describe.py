"""Lines of `assay show` for a kernel case: its text with line numbers, what goes in, and what must come out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from harness.compare import Bound, Exact, Nmse, Ulp
from harness.kinds.kernel.evidence import launch_text
from harness.kinds.kernel.inputs import make_inputs
from harness.kinds.kernel.reference import want
from harness.subjects.protocol import KernelView

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.compare import Policy
    from harness.kinds.kernel.schema import KernelCase, OutputGiven

_SHOWN_VALUES = 6


def describe(case: KernelCase) -> Iterator[str]:
    """Write the kernel, its inputs, the launch, and the first answers with what they may be off."""
    given = case.given
    for label, text in (("header", given.header), ("kernel", given.source or ""), ("twin", given.twin or "")):
        if text.strip():
            yield f"{label}:"
            yield from (f"{number:5} | {line}".rstrip() for number, line in enumerate(text.rstrip().splitlines(), 1))
    inputs = make_inputs(given)
    for name, one in inputs.items():
        if not isinstance(one.shown, KernelView):
            yield f"input {name}: the Python number {one.shown}"
            continue
        said = given.inputs[name]
        strides = "" if said.view == "plain" else f", strides {list(one.shown.strides)}"
        kind = "given" if isinstance(said.values, list) else said.values
        first = " ".join(f"{float(value):.6g}" for value in one.values.flat[:_SHOWN_VALUES])
        yield f"input {name}: {said.dtype} {list(one.shown.shape)}{strides}, {kind}: {first}"
    if given.template:
        yield f"template: {', '.join(f'{name} = {value}' for name, value in given.template.items())}"
    yield launch_text(given)
    known = all(output.function is None for output in given.outputs.values())
    wanted = want(given, inputs) if known else {}
    for name, output in given.outputs.items():
        yield f"output {name}: {output.dtype} {list(output.shape)} = {_origin(output)}"
        if name in wanted:
            first = " ".join(f"{float(value):.6g}" for value in wanted[name].values.flat[:_SHOWN_VALUES])
            yield f"  first answers: {first}"
            yield f"  {_policy(wanted[name].policy)}"
    yield f"checked: {', '.join(case.check)}"
    if case.time:
        yield f"timed: {', '.join(case.time)}"


def _origin(output: OutputGiven) -> str:
    if output.function is not None:
        return f"{output.function.name} of {output.function.file}"
    return " ".join((output.expect or "").split())


def _policy(policy: Policy) -> str:
    match policy:
        case Exact():
            return "exact"
        case Ulp(count=count):
            return f"within {count} ulp"
        case Nmse(limit=limit):
            return f"mean squared error at most {limit:g} of the mean square"
        case Bound(limit=bound):
            return f"bound: {np.median(bound):.3g} (median), {np.max(bound):.3g} (largest)"
    return str(policy)
