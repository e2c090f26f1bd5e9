"""What a schema can't see in an affine case: numbers that do not go together, and checks that could not fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.kinds.affine.bounds import product_roundings
from harness.kinds.affine.data import terms

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.kinds.affine.schema import AffineCase, AffineGiven
    from harness.kinds.base import Complaint

# Keys of `given` that only a product reads.
_PRODUCT_KEYS = ("batch", "repeats", "x")
# Products of these overflow, or are a sum of rounding errors.
_UNFIT_FOR_PRODUCTS = ("large", "full-range")


def complaints(case: AffineCase) -> Iterator[Complaint]:
    """Yield the place and the description of everything that can't be, with what to write instead."""
    yield from _groups(case.given)
    yield from _words(case)
    if "matmul" in case.check:
        yield from _product(case.given)
    elif "matmul" not in case.time:
        for key in _PRODUCT_KEYS:
            if key in case.given.model_fields_set:
                yield ("given", key), "does nothing without a product; remove it, or write `check: [matmul]`"


def _groups(given: AffineGiven) -> Iterator[Complaint]:
    key, length = ("inputs", given.inputs) if given.transposed else ("outputs", given.outputs)
    rest = length % given.group
    if rest:
        below, above = length - rest, length - rest + given.group
        near = f"{below} or {above}" if below else f"{above}"
        why = f"a row of W has {length} values, which are no whole groups of {given.group}"
        yield ("given", key), f"{why}; write {near}"


def _words(case: AffineCase) -> Iterator[Complaint]:
    for key in ("check", "time"):
        words: list[str] = [str(word) for word in getattr(case, key)]
        for index, word in enumerate(words):
            if word in words[:index]:
                yield (key, index), f"'{word}' stands here twice"
    if set(case.check) == {"untouched"}:
        yield ("check",), "untouched looks at arrays that other checks hand over; write it beside one of those"


def _product(given: AffineGiven) -> Iterator[Complaint]:
    if given.data == "integers" and given.x in ("normal", "sparse"):
        why = "whole numbers make sums exact only if x is made of 1, 0 and -1"
        yield ("given", "x"), f"{why}; write `x: signs` or `x: one-hot`"
    if given.data in _UNFIT_FOR_PRODUCTS:
        yield ("given", "data"), f"sums of `{given.data}` values overflow; write another `data`, or drop matmul"
    elif given.data != "integers" and product_roundings(terms(given), given.dtype) >= 1:
        why = f"a bound for {terms(given)} terms summed in {given.dtype} is as large as the terms: nothing could fail"
        yield ("given", "x"), f"{why}; write `x: sparse`, or `data: integers` and `x: signs`"
