"""What a schema can't see in the cache that a case asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.kinds.ring import steps
from harness.kinds.ring.script import last_id, marker_group
from harness.kinds.ring.tokens import largest_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.kinds.base import Complaint
    from harness.kinds.ring.schema import StepsCase
    from harness.subjects.protocol import RingSpec

BITS = (1, 2, 3, 4, 5, 6, 8)
GROUP_SIZES = (32, 64, 128)


def given_complaints(case: StepsCase) -> Iterator[Complaint]:
    """Find numbers that do not go together."""
    given = case.given
    spec = given.spec()
    if spec.query_heads % spec.kv_heads:
        yield ("given", "query_heads"), f"must be a multiple of kv_heads ({spec.kv_heads}), not {spec.query_heads}"
    if spec.storage is not None and (spec.storage.bits not in BITS or spec.storage.group_size not in GROUP_SIZES):
        message = f"'{given.storage}' does not exist: bits are 1, 2, 3, 4, 5, 6, 8 and groups 32, 64, 128"
        yield ("given", "storage"), message
        return
    group = marker_group(case)
    wrong = [key for key, dim in _dims(spec) if group is not None and dim % group]
    for key in wrong:
        yield ("given", key), f"must be a multiple of the group size {group}, not {dict(_dims(spec))[key]}"
    room = min(largest_id(spec.head_dim, group), largest_id(spec.value_dim, group))
    if not wrong and last_id(case) > room:
        message = (
            f"{spec.head_dim} can carry ids up to {room}, and the steps write ids up to {last_id(case)}: "
            "use a head_dim of two groups, or fewer tokens"
        )
        yield ("given", "head_dim"), message
    yield from _window(case)


def _dims(spec: RingSpec) -> tuple[tuple[str, int], ...]:
    return ("head_dim", spec.head_dim), ("value_dim", spec.value_dim)


def _window(case: StepsCase) -> Iterator[Complaint]:
    given = case.given
    if given.sinks and given.window == "none":
        yield ("given", "sinks"), "need a window; a full cache keeps every token anyway"
    elif given.sinks and isinstance(given.window, int) and given.sinks >= given.window:
        yield ("given", "sinks"), f"must be fewer than the window ({given.window})"
    packed = given.layout in ("affine", "speculative-affine")
    if packed and given.storage == "plain":
        yield ("given", "layout"), f"'{given.layout}' has affine rows only; write for example `storage: affine4x64`"
    if given.crossing is not None and given.storage == "plain":
        yield ("given", "crossing"), "needs `storage: affine...`: what the rows become"
    if given.crossing is not None and given.layout != "ring":
        yield ("given", "crossing"), f"and `layout: {given.layout}` say two things about storage; leave one out"
    if given.chunked and given.window == "none":
        yield ("given", "chunked"), "needs a window: the number of tokens that a chunked cache keeps"
    if given.rows > 1 and isinstance(case.steps[0], steps.MergeStep):
        yield ("given", "rows"), "is what the first step builds; leave it out"
