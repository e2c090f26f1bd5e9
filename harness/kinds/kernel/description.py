"""A description of one kernel: a case without `assay:` and without answers, for checks that need none.

It has the keys of a case of kind `kernel`. With `assay: 1`, `kind: kernel`, `title`, `why`, an `expect` for every
output and `check`, it is one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from harness.kinds.kernel import KIND
from harness.kinds.kernel.complaints import kernel_complaints
from harness.kinds.kernel.schema import Check, KernelCase

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.kinds.base import Complaint

_AS_CASE = "belongs to a case: add `assay: 1`, `kind: kernel`, `title` and `why` at the top, or remove this"


class KernelDescription(KernelCase):
    """The keys of a kernel case, of which `given` alone is needed."""

    assay: Literal[1] = 1
    kind: Literal["kernel"] = "kernel"
    title: str = ""
    why: str = ""
    check: list[Check] = Field(default_factory=list)


def complaints(case: KernelDescription) -> Iterator[Complaint]:
    """Yield what can't be; an answer would never be looked at."""
    yield from kernel_complaints(case.given)
    for name, output in case.given.outputs.items():
        for key in sorted(output.model_fields_set & {"expect", "function", "within"}):
            yield ("given", "outputs", name, key), _AS_CASE
    if case.given.twin is not None:
        yield ("given", "twin"), "is launched by a case only; describe it in a file of its own"
    for key in sorted(case.model_fields_set & {"check", "time", "work"}):
        yield (key,), _AS_CASE


DESCRIPTION = replace(KIND, model=KernelDescription, complaints=complaints)
