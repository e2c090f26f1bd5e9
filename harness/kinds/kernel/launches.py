"""From a case to what a subject is given: the text, and a launch of it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from harness.kinds.kernel.inputs import GUARD, make_inputs
from harness.subjects.protocol import KernelLaunch, KernelText

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harness.case.expand import Instance
    from harness.kinds.kernel.inputs import Input
    from harness.kinds.kernel.schema import KernelGiven
    from harness.subjects.protocol import Subject

# MLX passes smaller inputs in another address space, which makes another kernel of the same text.
CONSTANT_BELOW = 8


def kernel_text(given: KernelGiven, *, twin: bool = False) -> KernelText:
    """Return the text of the kernel, or of its twin."""
    source = given.twin if twin else given.source
    return KernelText(
        given.name,
        tuple(given.inputs),
        tuple(given.outputs),
        source or "",
        given.header,
        given.ensure_row_contiguous,
        given.atomic,
    )


def make_launch(given: KernelGiven, inputs: dict[str, Input], fill: float | None) -> KernelLaunch:
    """Return a launch; behind every output lie elements that no thread may write."""
    return KernelLaunch(
        tuple(one.shown for one in inputs.values()),
        tuple(given.template.items()),
        given.space("grid"),
        given.space("threadgroup"),
        tuple(math.prod(output.shape) + GUARD for output in given.outputs.values()),
        tuple(output.dtype for output in given.outputs.values()),
        fill,
    )


def prepare(instances: Iterable[Instance], subject: Subject, jobs: int) -> int:
    """Let `subject` compile every distinct kernel of `instances`, `jobs` at a time; return how many there are.

    A run compiles what it needs as it goes; this fills the cache before it, on machines that measure or that have no
    compiler later.
    """
    from concurrent.futures import ThreadPoolExecutor

    kernels = subject.kernel()
    distinct = distinct_launches(instances)
    # Compilers are processes of their own: threads are enough to keep all cores busy.
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(lambda one: kernels.prepare(*one), distinct))
    return len(distinct)


def distinct_launches(instances: Iterable[Instance]) -> list[tuple[KernelText, KernelLaunch]]:
    """Return a launch of each kernel of `instances` that a compiler would make another one of."""
    distinct: dict[object, tuple[KernelText, KernelLaunch]] = {}
    for instance in instances:
        given: KernelGiven = instance.case.given  # type: ignore[attr-defined]  # of kind kernel
        for twin in (False, True) if given.twin is not None else (False,):
            text = kernel_text(given, twin=twin)
            inputs = make_inputs(given)
            launch = make_launch(given, inputs, given.init)
            passed = tuple(
                (one.dtype, type(one.scalar), one.shape == [], math.prod(one.shape or ()) < CONSTANT_BELOW)
                for one in given.inputs.values()
            )
            distinct.setdefault((text, launch.template, launch.output_dtypes, passed), (text, launch))
    return list(distinct.values())
