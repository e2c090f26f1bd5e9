"""What a schema can't see in an attention case: numbers that do not go together, and checks that could not fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.kinds.attention.data import pick_side
from harness.kinds.attention.rope import rope_complaints
from harness.kinds.attention.sharpness import LOOSEST, looseness

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.kinds.attention.schema import AttentionCase, AttentionGiven
    from harness.kinds.base import Complaint

_GROUPS, _BITS = (32, 64, 128), (1, 2, 3, 4, 5, 6, 8)


def complaints(case: AttentionCase) -> Iterator[Complaint]:
    """Yield the place and the description of everything that can't be, with what to write instead."""
    given = case.given
    yield from _words(case)
    yield from rope_complaints(case)
    if "output" not in case.check:
        return
    if "keys" not in given.model_fields_set:
        yield ("given",), "the key 'keys' is missing"
    before = list(_sizes(given)) + list(_mask(given)) + list(_data(given))
    yield from before
    loose = 0.0 if before else looseness(given)
    if loose > LOOSEST:
        what = f"the bound is about {loose:.2g} times as large as an answer, so that hardly anything could fail"
        yield ("given", "data"), f"{what}; write `data: pick` or `sparse`, a wider dtype, or fewer keys"


def _sizes(given: AttentionGiven) -> Iterator[Complaint]:
    if given.heads % given.kv_heads:
        above = given.heads + given.kv_heads - given.heads % given.kv_heads
        why = f"{given.heads} query heads can't share {given.kv_heads} kv heads evenly"
        yield ("given", "query_heads"), f"{why}; write a multiple of kv_heads, such as {above}"
    storage = given.affine()
    if storage is None:
        return
    if storage.group_size not in _GROUPS or storage.bits not in _BITS:
        yield ("given", "storage"), "write affine<bits>x<group> with bits 1 to 6 or 8, and group 32, 64 or 128"
        return
    for key, length in (("head_dim", given.head_dim), ("value_dim", given.value_dim or given.head_dim)):
        if length % storage.group_size:
            near = length + storage.group_size - length % storage.group_size
            why = f"{length} channels are no whole groups of {storage.group_size}"
            yield ("given", key), f"{why}; write {near}, or another storage"


def _mask(given: AttentionGiven) -> Iterator[Complaint]:
    for key, masks in (("window", ("sliding",)), ("ranges", ("ranges", "padded"))):
        if getattr(given, key) is None and given.mask in masks:
            yield ("given", "mask"), f"`mask: {given.mask}` needs the key `{key}` beside it"
        elif getattr(given, key) is not None and given.mask not in masks:
            yield ("given", key), f"does nothing without `mask: {masks[0]}`; remove it, or write that"
    yield from _biases(given)
    if given.mask_form is not None and given.mask == "none" and given.bias == "none":
        yield ("given", "mask_form"), "does nothing without a mask; remove it, or write one"
    if given.mask in ("causal", "sliding", "padded") and given.queries > given.keys:
        why = f"{given.queries} queries are the last of {given.keys} keys"
        yield ("given", "queries"), f"{why}; write at most as many queries as keys"
    yield from _seen(given)


def _biases(given: AttentionGiven) -> Iterator[Complaint]:
    if given.bias != "none" and given.mask_form == "boolean":
        yield ("given", "mask_form"), "a boolean mask has no room for a bias; write `mask_form: additive`, or no form"
    if given.per_head and given.mask not in ("random", "blind") and given.bias != "normal":
        yield ("given", "per_head"), "only `mask: random` and `blind` and `bias: normal` differ from head to head"
    if given.per_head and given.heads == 1:
        yield ("given", "per_head"), "does nothing for one query head; write more, or remove it"
    if given.bias != "none" and given.mask in ("blind", "padded") and given.sinks == "none":
        yield ("given", "bias"), "a query that sees nothing has no finite answer when -inf is added; write another mask"


def _seen(given: AttentionGiven) -> Iterator[Complaint]:
    for index, (first, end) in enumerate(given.ranges or []):
        if not first < end <= given.keys:
            yield ("given", "ranges", index), f"must be [first, end] with first < end and end at most {given.keys}"
    if given.mask_form == "additive" and given.mask in ("blind", "padded") and given.sinks == "none":
        why = "a query that sees nothing has no finite answer when -inf is added to all of its scores"
        yield ("given", "mask_form"), f"{why}; write `mask_form: boolean`, or sinks"
    if given.unseen == "loud" and given.mask not in ("ranges", "padded"):
        yield ("given", "unseen"), "only `mask: ranges` and `padded` leave columns that no query sees"


def _data(given: AttentionGiven) -> Iterator[Complaint]:
    if given.views == "stride-0" and given.rows == 1 and given.kv_heads == 1:
        yield ("given", "views"), "one row of one kv head has nothing to share; write more of either, or another view"
    if given.views == "stride-0" and given.data == "pick" and given.mask not in ("none", "causal", "sliding"):
        yield ("given", "data"), "rows that are equal pick equal keys, seen or not; write `data: normal`"
    if given.data in ("pick", "pick-hidden"):
        most = pick_side(given) ** 2
        if given.keys > most:
            why = f"{given.head_dim} channels tell {most} keys apart, not {given.keys}"
            yield ("given", "data"), f"{why}; write a larger head_dim or fewer keys"
    if given.data == "pick-hidden" and given.mask == "none":
        yield ("given", "data"), "`pick-hidden` picks a key behind the mask, and there is none; write a mask"
    if given.sinks == "half" and (given.data != "zeros" or given.mask != "none"):
        yield ("given", "sinks"), "`half` is half of the weight only with `data: zeros` and without a mask"
    if given.values == "cancel" and (given.data not in ("zeros", "equal") or given.mask != "none" or given.keys % 2):
        yield (
            ("given", "values"),
            "`cancel` needs equal weights and pairs: `data: zeros`, no mask, an even number of keys",
        )


def _words(case: AttentionCase) -> Iterator[Complaint]:
    for key in ("check", "time"):
        words: list[str] = [str(word) for word in getattr(case, key)]
        for index, word in enumerate(words):
            if word in words[:index]:
                yield (key, index), f"'{word}' stands here twice"
    if set(case.check) == {"untouched"}:
        yield ("check",), "untouched looks at arrays that `output` hands over; write it beside that"
