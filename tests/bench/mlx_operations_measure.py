"""Runs cases on a subject, keeps the largest error of every operation beside its bound, and makes failures small."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import yaml
from pydantic import ValidationError

from harness.compare import Bound
from harness.kinds.affine.complaints import complaints as affine_complaints
from harness.kinds.affine.run import run as run_affine
from harness.kinds.affine.schema import AffineCase
from harness.kinds.attention.complaints import complaints as attention_complaints
from harness.kinds.attention.run import run as run_attention
from harness.kinds.attention.schema import AttentionCase
from harness.kinds.base import Notes, StopInstance
from harness.subjects.call import SubjectError
from harness.subjects.protocol import Unsupported

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from harness.case.expand import Instance
    from harness.compare import Policy
    from harness.subjects.protocol import Subject

Case = AffineCase | AttentionCase

PASSED, FAILED, ERRORED, UNSUPPORTED = "passed", "failed", "errored", "unsupported"
# Sizes that are made smaller, and what they may become.
_SIZES = ("outputs", "inputs", "batch", "stack", "repeats", "rows", "queries", "keys", "head_dim", "query_heads")
_SMALLER = (1, 2, 3, 4, 5, 7, 8, 9, 16, 32, 33, 48, 64)


class Cell(NamedTuple):
    """A line of the table."""

    operation: str
    mode: str
    dtype: str


@dataclass
class Tally:
    """What came of the instances of one cell; `ratio` is the largest error over its bound, of those that passed."""

    passed: int = 0
    failed: int = 0
    unsupported: int = 0
    ratio: float = 0.0
    bounded: bool = False


@dataclass(frozen=True)
class Ran:
    """How one case ended: the outcome, what was noted or raised, and the largest error over its bound by check.

    `bad` are the checks that found something; one that raised has no ratio.
    """

    outcome: str
    reason: str
    ratios: dict[str, float | None] = field(default_factory=dict)
    bad: frozenset[str] = frozenset()


def run_case(case: Case, subject: Subject) -> Ran:
    """Run one case in this process; a check whose comparisons are all exact has the ratio None."""
    ratios: dict[str, float | None] = {}

    def watch(check: str, policy: Policy, expected: NDArray[Any], actual: NDArray[Any]) -> None:
        known = ratios.get(check)
        if isinstance(policy, Bound):
            ratios[check] = max(known or 0.0, _ratio(policy.limit, expected, actual))
        else:
            ratios.setdefault(check, None)

    notes = Notes()
    try:
        if isinstance(case, AffineCase):
            run_affine(case, subject, notes, watch)
        else:
            run_attention(case, subject, notes, watch)
    except StopInstance:
        pass
    except Unsupported as why:
        return Ran(UNSUPPORTED, str(why), ratios)
    except SubjectError as error:
        return Ran(ERRORED, str(error), ratios)
    if notes.findings:
        first = notes.findings[0]
        reason = f"{first.check}, {first.where}: expected {first.expected}, got {first.actual}"
        return Ran(FAILED, reason, ratios, frozenset(finding.check for finding in notes.findings))
    return Ran(PASSED, "", ratios)


def _ratio(limit: NDArray[np.float64], expected: NDArray[Any], actual: NDArray[Any]) -> float:
    """Return the largest error over its bound; what is equal has none, and what is off without a bound infinity."""
    want, got = expected.astype(np.float64), actual.astype(np.float64)
    if not np.isfinite(got).all():
        return math.inf
    error = np.abs(got - want)
    limit = np.broadcast_to(limit, want.shape)
    some = error > 0
    ratio = np.divide(error, limit, out=np.full(want.shape, np.inf), where=limit > 0)
    return float(np.where(some, ratio, 0.0).max(initial=0.0))


def operation_of(case: Case, check: str, subject: str) -> str:
    """Name the operation that a check looks at."""
    if isinstance(case, AttentionCase):
        if subject == "mlx-lm":
            return "mlx-lm scaled_dot_product_attention"
        return "mx.fast.rope" if check == "rope" else "mx.fast.scaled_dot_product_attention"
    gather = "mx.gather_mm" if case.given.mode == "plain" else "mx.gather_qmm"
    names = {
        "encode": "mx.quantize",
        "decode": "mx.dequantize",
        "round-trip": "mx.quantize, mx.dequantize",
        "matmul": "mx.quantized_matmul",
        "gather": gather,
    }
    return names[check]


def mode_of(case: Case) -> str:
    """Name how matrices, or keys and values, are stored."""
    if isinstance(case, AffineCase):
        return case.given.mode
    return "affine" if case.given.affine() else "plain"


def measure(
    instances: Iterable[Instance], subject: Subject, name: str, table: dict[Cell, Tally]
) -> Iterator[tuple[Instance, Ran]]:
    """Run all `instances`, count them in `table`, and yield those that do not pass."""
    for instance in instances:
        case = instance.case
        if not isinstance(case, AffineCase | AttentionCase):
            continue
        ran = run_case(case, subject)
        for check in (one for one in case.check if one != "untouched"):
            tally = table.setdefault(Cell(operation_of(case, check, name), mode_of(case), case.given.dtype), Tally())
            if ran.outcome == UNSUPPORTED:
                tally.unsupported += 1
            elif check in ran.bad or check not in ran.ratios:
                tally.failed += 1
                if check not in ran.ratios:
                    # It raised, or what it returned has another shape: later checks were not run.
                    break
            else:
                tally.passed += 1
                ratio = ran.ratios[check]
                tally.bounded |= ratio is not None
                tally.ratio = max(tally.ratio, ratio or 0.0)
        if ran.outcome in (FAILED, ERRORED):
            yield instance, ran


def shrink(case: Case, subject: Subject, outcome: str) -> Case:
    """Return a smaller case that ends the same way: sizes are reduced one by one as long as it does."""
    changed = True
    while changed:
        changed = False
        for key in _SIZES:
            now = getattr(case.given, key, None)
            for size in (one for one in _SMALLER if now is not None and one < now):
                smaller = with_given(case, key, size)
                if smaller is not None and run_case(smaller, subject).outcome == outcome:
                    case, changed = smaller, True
                    break
    return case


def with_given(case: Case, key: str, value: object) -> Case | None:
    """Return `case` with another value in `given`, or None if that makes no sense."""
    said = case.model_dump(exclude_unset=True, by_alias=True)
    said["given"] = {**said["given"], key: value}
    try:
        if isinstance(case, AffineCase):
            smaller = AffineCase.model_validate(said)
            return None if any(affine_complaints(smaller)) else smaller
        attention = AttentionCase.model_validate(said)
        return None if any(attention_complaints(attention)) else attention
    except ValidationError:
        return None


def as_yaml(case: Case, why: str) -> str:
    """Write `case` as a file that `assay run` takes."""
    given = case.given.model_dump(exclude_unset=True)
    if isinstance(case, AffineCase) and case.given.mode != "affine":
        # The mode says them.
        given = {key: value for key, value in given.items() if key not in ("bits", "group")}
    lines = [
        "assay: 1",
        f"kind: {case.kind}",
        f"title: {yaml.safe_dump(case.title, width=1000).splitlines()[0]}",
        f"why: {yaml.safe_dump(why, width=1000).splitlines()[0]}",
        f"given: {yaml.safe_dump(given, default_flow_style=True, sort_keys=False, width=1000).strip()}",
        f"check: [{', '.join(case.check)}]",
    ]
    return "\n".join(lines) + "\n"
