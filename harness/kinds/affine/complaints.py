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
_GATHER_KEYS = ("picks", "indices")
# Products of these overflow, or are a sum of rounding errors.
_UNFIT_FOR_PRODUCTS = ("large", "full-range", "beyond-range")


def complaints(case: AffineCase) -> Iterator[Complaint]:
    """Yield the place and the description of everything that can't be, with what to write instead."""
    wrong = case.given.unfit_format()
    if wrong:
        why = f"mode {case.given.mode} has no {wrong} {getattr(case.given, wrong)}"
        advice = "write 32, 64 or 128" if case.given.mode == "affine" else "leave it out"
        yield ("given", wrong), f"{why}; {advice}"
        return
    if case.given.mode != "plain":
        yield from _groups(case.given)
    yield from _words(case)
    yield from _modes(case)
    yield from _gather(case)
    if "matmul" in case.check or "gather" in case.check:
        yield from _product(case.given)
    elif "matmul" not in case.time:
        for key in _PRODUCT_KEYS:
            if key in case.given.model_fields_set:
                yield ("given", key), "does nothing without a product; remove it, or write `check: [matmul]`"


def _modes(case: AffineCase) -> Iterator[Complaint]:
    given = case.given
    if given.mode == "plain" and set(case.check) - {"gather", "untouched"}:
        yield ("given", "mode"), "a plain matrix is only picked; write `check: [gather]`"
    if given.mode != "affine" and case.time:
        yield ("time",), f"only mode affine is timed, not {given.mode}; leave it out"
    if given.data == "codes" and not given.microscaling:
        yield ("given", "data"), f"mode {given.mode} has no codes that stand for numbers; write `data: normal`"
    if given.data == "beyond-range" and (given.mode != "nvfp4" or given.dtype == "float16"):
        why = "only nvfp4 has a largest number, and float16 none that is beyond it"
        yield ("given", "data"), f"{why}; write `mode: nvfp4` and `dtype: float32` or `bfloat16`"
    if given.views == "stride-0" and not (given.stack > 1 or given.outputs > 1 or given.batch > 1):
        yield ("given", "views"), "nothing has several entries to share; write more outputs, or another view"


def _gather(case: AffineCase) -> Iterator[Complaint]:
    given = case.given
    if "gather" not in case.check:
        for key in _GATHER_KEYS:
            if key in given.model_fields_set:
                yield ("given", key), "does nothing without `check: [gather]`; remove it, or write that"
        return
    if given.picks is None:
        yield ("check",), "`gather` needs the key `picks` in `given`: how many products there are"
    elif given.indices == "sorted" and given.picks != given.repeats:
        yield ("given", "picks"), f"each of {given.repeats} blocks of x is taken once; write {given.repeats}"
    if "matmul" in case.check:
        yield ("check", case.check.index("matmul")), "picked products are of other shapes; write a case of its own"


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
    if given.data == "integers" and given.x in ("normal", "tens", "sparse"):
        why = "whole numbers make sums exact only if x is made of 1, 0 and -1"
        yield ("given", "x"), f"{why}; write `x: signs` or `x: one-hot`"
    if given.data in _UNFIT_FOR_PRODUCTS:
        yield ("given", "data"), f"sums of `{given.data}` values overflow; write another `data`, or drop matmul"
    elif given.data != "integers" and product_roundings(terms(given), given.dtype) >= 1:
        why = f"a bound for {terms(given)} terms summed in {given.dtype} is as large as the terms: nothing could fail"
        yield ("given", "x"), f"{why}; write `x: sparse`, or `data: integers` and `x: signs`"
