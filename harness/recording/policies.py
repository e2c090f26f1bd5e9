"""How far a recorded array and one that was seen here may be apart: the policy beside each array, and its check."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from harness.baseline.affine import unpack
from harness.compare import Bound, Exact, Lsb, Mismatch, Nmse, Policy, Ulp, dtype_mismatch, shape_mismatch
from harness.errors import RecordingError
from harness.recording.values import tensor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from harness.recording.values import ValueWriter


# Where nobody judged an array: by where it stands. What a subject computes has no place here; only its judge knows how
# far it may be off.
DEFAULTS: dict[tuple[str, str], Policy] = {
    ("AffineArrays", "packed"): Lsb(),
    ("AffineArrays", "scales"): Exact(),
    ("AffineArrays", "biases"): Exact(),
    ("PlainArrays", "data"): Exact(),
    ("Answer", "mask"): Exact(),
}


def describe(policy: Policy, array: NDArray[Any], name: str, writer: ValueWriter) -> dict[str, Any]:
    """Return a policy as JSON; the limits of a bound are kept as float32, rounded up."""
    match policy:
        case Exact():
            return {"name": "exact"}
        case Lsb(share=share):
            return {"name": "lsb", "share": share}
        case Ulp(count=count):
            return {"name": "ulp", "count": count}
        case Nmse(limit=most):
            return {"name": "nmse", "limit": most}
        case Bound(limit=limits):
            full = np.broadcast_to(np.asarray(limits, np.float64), array.shape)
            return {"name": "bound", "limit": writer.keep(_rounded_up(full), f"{name}.limit")}
    raise TypeError(f"a {type(policy).__name__} has no form in a recording")


def _rounded_up(limits: NDArray[np.float64]) -> NDArray[np.float32]:
    with np.errstate(over="ignore", under="ignore"):
        near = limits.astype(np.float32)
        up: NDArray[np.float32] = np.where(near < limits, np.nextafter(near, np.float32(np.inf)), near)
    return up


def limit_of(leaf: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]], at: str) -> NDArray[np.float64] | None:
    """Return the limits of an array that was judged by a bound; None: it was not."""
    policy = leaf.get("policy")
    if not policy or policy.get("name") != "bound":
        return None
    limits = tensor({"tensor": policy.get("limit")}, tensors, f"{at}, its limit").astype(np.float64)
    if limits.shape != tensor(leaf, tensors, at).shape:
        raise RecordingError(f"{at}: its limit is {list(limits.shape)}, and the array is not")
    return limits


def policy_of(
    leaf: Mapping[str, Any], recorded: NDArray[Any], limit: NDArray[np.float64] | None, place: tuple[str, str]
) -> Policy | None:
    """Return by what an array is compared, None if nobody said how far it may be off; raises ValueError for a new one.

    `limit` is the one of both sides together, `place` the dataclass and field that the array stands in.
    """
    policy: Mapping[str, Any] = leaf.get("policy") or {}
    match policy.get("name"):
        case "bound":
            return None if limit is None else Bound(limit)
        case "exact":
            return Exact()
        case "lsb":
            return Lsb(float(policy["share"]))
        case "ulp":
            return Ulp(2 * int(policy["count"]))
        case "nmse":
            return Nmse(4 * float(policy["limit"]))
        case None:
            return DEFAULTS.get(place, Exact() if recorded.dtype.kind in "iub" else None)
    raise ValueError(f"policy '{policy.get('name')}' is none that this release knows")


def check(policy: Policy, recorded: NDArray[Any], here: NDArray[Any], bits: int | None) -> Mismatch | None:
    """Compare; `bits` is set for packed codes, which are compared code by code."""
    if wrong := shape_mismatch(recorded, here) or dtype_mismatch(recorded, here):
        return wrong
    if bits is not None and isinstance(policy, Lsb):
        return policy.check(unpack(recorded, bits), unpack(here, bits))
    if isinstance(policy, Exact) and recorded.dtype.kind not in "iub":
        # The sign of a sum or of a minimum that is zero depends on the order of its terms.
        recorded, here = (np.where(array == 0, array.dtype.type(0), array) for array in (recorded, here))
    return policy.check(recorded, here)
