"""Trellis decoders with one mistake each: the shipped cases catch every one, and pass the decoder without a mistake."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from harness.case.load import load_file
from harness.kinds.base import Notes, StopInstance
from harness.kinds.trellis import KIND
from harness.subjects.protocol import Subject, Trellis

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from harness.subjects.protocol import TrellisSpec

CASES = Path(__file__).parents[2] / "cases" / "trellis"
# Every mistake, and the case that is made for it.
MISTAKES = {
    "zeros beyond the last word": "tail-biting",
    "the next block beyond the last word": "tail-biting",
    "columns ascend": "columns-descend",
    "highest bit first": "lowest-bit-first",
    "words in reverse order": "lowest-bit-first",
    "no mask": "window-widths",
    "window one bit short": "window-widths",
    "window of whole symbols": "window-widths",
    "shift by 32 gives the word itself": "windows-straddle-words",
    "windows end with their word": "windows-straddle-words",
    "row stride of one block": "plain-layout",
    "pair stride of one row": "interleaved-layout",
    "blocks of a pair swapped": "interleaved-layout",
    "interleaving ignored": "interleaved-layout",
    "2mad for 1mad": "golden-codebooks",
    "1mad for 2mad": "golden-codebooks",
    "halves added in float32": "every-codebook",
    "byte sum less 512": "golden-values",
    "scale folded early": "scale-after-codeword",
    "scale of row 0": "scale-after-codeword",
    "magnitude of the scale": "scale-after-codeword",
    "states of the next column": "states",
    "rows a split rounded down": "splits-cover-every-row",
    "last split not clipped": "splits-cover-every-row",
    "garbage in empty splits": "empty-splits",
    "not a number in empty splits": "empty-splits",
    "grid divided by the batch": "batch-vectors-are-independent",
    "first vector for all": "batch-vectors-are-independent",
    "products in the vector's dtype": "vector-dtypes",
    "transposed matrix": "plain-layout",
    "float64 weights": "plain-layout",
    "a list of weights": "plain-layout",
    "a product without batch axis": "batch-vectors-are-independent",
    "a rest of a tile of 8 left out": "every-batch-size",
    "a rest of 4 rows left out": "ragged-rows",
    "widths of 12 bits or more alone": "integer-states-of-every-width",
    "the last column of every lane": "every-column",
    "pair and row swapped": "one-hot-through-split-pairs",
}
# Cases that catch those of the mistakes above that spoil a weight, in a fused kernel, which never shows a weight.
FUSED = ("one-hot-recovers-the-matrix", "codebooks-in-products")
# Only a clock sees what these are about.
TIMED_ONLY = ("projection", "projection-of-a-batch", "layer-of-a-model")
# These ask for more than a decoder: test_kind_trellis_encoders.py has the mistakes of encoders and converters.
BEYOND = re.compile("^(convert|encode|refuses)|variant")
DECODED = sorted(path.stem for path in CASES.glob("*.yaml") if not BEYOND.search(path.stem))
INVERSE_SIGMA = np.float32(1 / 147.800537109375)


class Fake(Trellis):
    """A decoder written as kernels are, from pairs of words, with `mistake` built in."""

    def __init__(self, mistake: str = "") -> None:
        self.mistake = mistake

    def states(self, spec: TrellisSpec, codes: NDArray[np.uint32]) -> NDArray[np.uint32]:
        states = self._states(spec, codes)
        if self.mistake == "states of the next column":
            states = np.roll(states, -1, axis=1)
        if self.mistake == "widths of 12 bits or more alone" and spec.state_bits < 12:
            states = states | np.uint32(1 << spec.state_bits)
        return states

    def decode(self, spec: TrellisSpec, codes: NDArray[np.uint32], scales: NDArray[np.float32]) -> NDArray[np.float32]:
        weights: Any = self._weights(spec, codes, scales)
        if self.mistake == "transposed matrix":
            weights = weights.T
        elif self.mistake == "float64 weights":
            weights = weights.astype(np.float64)
        elif self.mistake == "a list of weights":
            weights = weights.tolist()
        return weights  # type: ignore[no-any-return]  # a subject may return anything

    def gemv(
        self,
        spec: TrellisSpec,
        codes: NDArray[np.uint32],
        scales: NDArray[np.float32],
        x: NDArray[Any],
        *,
        splits: int,
    ) -> NDArray[np.float32]:
        weights = self._weights(spec, codes, scales)
        partials = np.zeros((len(x), splits, spec.columns), np.float32)
        for cell in range(len(x) * splits):
            vector, split = divmod(cell, splits)
            if self.mistake == "grid divided by the batch":
                split, vector = divmod(cell, len(x))
            partials[cell // splits, cell % splits] = self._split(x[vector], weights, split, splits)
        if self.mistake == "first vector for all":
            partials[1:] = partials[0]
        if self.mistake == "a rest of a tile of 8 left out" and len(x) > 8:
            partials[len(x) // 8 * 8 :] = 0
        total = np.zeros((len(x), spec.columns), np.float32)
        for split in range(splits):
            total += partials[:, split]
        return total[0] if self.mistake == "a product without batch axis" else total

    def _split(self, x: NDArray[Any], weights: NDArray[np.float32], split: int, splits: int) -> NDArray[np.float32]:
        rows = len(weights)
        length = rows // splits if self.mistake == "rows a split rounded down" else -(-rows // splits)
        first, last = split * length, split * length + length
        if self.mistake == "a rest of 4 rows left out" and length > 4:
            last = first + length // 4 * 4
        if self.mistake != "last split not clipped" or first >= rows:
            first, last = min(first, rows), min(last, rows)
        if first == last and "empty splits" in self.mistake:
            return np.full(weights.shape[1], 0.5 if "garbage" in self.mistake else np.nan, np.float32)
        narrow = x.dtype if self.mistake == "products in the vector's dtype" else np.dtype(np.float32)
        total = np.zeros(weights.shape[1], np.float32)
        for row in range(first, last):
            # Rows beyond the end are whatever lies in memory there: here, the first ones again.
            total += x[row % rows].astype(narrow) * weights[row % rows].astype(narrow)
        return total

    def _words(self, spec: TrellisSpec, codes: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """Return [rows, blocks, words], gathered by address."""
        count, blocks = spec.block * spec.bits // 32, spec.columns // spec.block
        row, block = np.arange(spec.rows)[:, None, None], np.arange(blocks)[:, None]
        if spec.interleave and self.mistake != "interleaving ignored":
            within = 1 - block % 2 if self.mistake == "blocks of a pair swapped" else block % 2
            pair = block // 2 * (1 if self.mistake == "pair stride of one row" else spec.rows)
            at = (pair + row) * 2 * count + within * count
            if self.mistake == "pair and row swapped":
                at = (row * (blocks // 2) + block // 2) * 2 * count + within * count
        else:
            stride = 1 if self.mistake == "row stride of one block" else blocks
            at = (row * stride + block) * count
        words: NDArray[np.uint32] = codes[at + np.arange(count)]
        return words

    def _states(self, spec: TrellisSpec, codes: NDArray[np.uint32]) -> NDArray[np.uint32]:
        words = self._words(spec, codes)
        if self.mistake == "highest bit first":
            string = np.unpackbits(np.ascontiguousarray(words, ">u4").view(np.uint8), axis=-1)
            words = np.ascontiguousarray(np.packbits(string, axis=-1, bitorder="little")).view(np.uint32)
        if self.mistake == "words in reverse order":
            words = words[..., ::-1]
        following = np.roll(words, -1, axis=-1)
        if self.mistake == "zeros beyond the last word":
            following[..., -1] = 0
        if self.mistake == "the next block beyond the last word":
            following[..., -1] = np.roll(words[..., 0], -1, axis=-1)
        columns = np.arange(spec.block, dtype=np.uint32)
        first = (columns if self.mistake == "columns ascend" else spec.block - 1 - columns) * spec.bits
        index, offset = first >> 5, first & 31
        low, high = words[..., index] >> offset, following[..., index] << ((32 - offset) & 31)
        if self.mistake != "shift by 32 gives the word itself":
            high[..., offset == 0] = 0
        if self.mistake == "windows end with their word":
            high[...] = 0
        kept = {
            "no mask": 32,
            "window one bit short": spec.state_bits - 1,
            "window of whole symbols": spec.state_bits // spec.bits * spec.bits,
        }.get(self.mistake, spec.state_bits)
        windows = (low | high) & np.uint32((1 << kept) - 1)
        return windows.reshape(spec.rows, spec.columns).astype(np.uint32)

    def _weights(
        self, spec: TrellisSpec, codes: NDArray[np.uint32], scales: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        if self.mistake == "scale of row 0":
            scales = np.full_like(scales, scales[0])
        if self.mistake == "magnitude of the scale":
            scales = np.abs(scales)
        levels, factor = self._values(spec.codebook, self._states(spec, codes))
        if self.mistake == "the last column of every lane":
            levels[:, 7::8] = levels[:, 6::8]
        if self.mistake == "scale folded early":
            return levels * (factor * scales[:, None])
        return levels * factor * scales[:, None]

    def _values(self, codebook: str, states: NDArray[np.uint32]) -> tuple[NDArray[np.float32], np.float32]:
        if self.mistake in ("2mad for 1mad", "1mad for 2mad") and codebook == self.mistake[-4:]:
            codebook = self.mistake[:4]
        s = states.astype(np.uint64)
        if codebook == "random":
            return _random(s), np.float32(1)
        factor, term = {
            "1mad": (34038481, 76625530),
            "2mad": (264435761, 1013904223),
            "mul1": (0x83DCD12D, 0),
            "3inst": (89226354, 64248484),
            "mcg": (0xCBAC1FED, 0),
        }[codebook]
        word = (s * np.uint64(factor) + np.uint64(term)) & np.uint64(0xFFFFFFFF)
        if codebook == "2mad":
            word = (word + (word * np.uint64(1664525) >> np.uint64(32))) & np.uint64(0xFFFFFFFF)
        if codebook in ("3inst", "mcg"):
            masked = np.ascontiguousarray((word & 0x8FFF8FFF) ^ 0x3B603B60, "<u4")
            halves = masked.view("<f2").reshape(*states.shape, 2)
            wide = np.float32 if self.mistake == "halves added in float32" else np.float16
            return (halves[..., 0].astype(wide) + halves[..., 1].astype(wide)).astype(np.float32), np.float32(1)
        four = np.ascontiguousarray(word, "<u4").view(np.uint8).reshape(*states.shape, 4)
        sums = four.sum(axis=-1, dtype=np.int32)
        return (sums - (512 if self.mistake == "byte sum less 512" else 510)).astype(np.float32), INVERSE_SIGMA


def _random(states: NDArray[np.uint64]) -> NDArray[np.float32]:
    hashed = 2 * states[..., None] + np.array([1, 2], np.uint64)
    hashed *= np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        hashed = (hashed ^ hashed >> np.uint64(shift)) * np.uint64(factor)
    sums = hashed.view(np.uint8).reshape(*states.shape, 16).sum(axis=-1, dtype=np.int32)
    values: NDArray[np.float32] = (sums - 2040).astype(np.float32) * np.float32((16 * 65535 / 12) ** -0.5)
    return values


class FusedFake(Fake):
    """A right decoder beside a fused kernel that has the mistake."""

    def states(self, spec: TrellisSpec, codes: NDArray[np.uint32]) -> NDArray[np.uint32]:
        return Fake().states(spec, codes)

    def decode(self, spec: TrellisSpec, codes: NDArray[np.uint32], scales: NDArray[np.float32]) -> NDArray[np.float32]:
        return Fake().decode(spec, codes, scales)


class FakeSubject(Subject):
    """A subject with this trellis."""

    def __init__(self, trellis: Trellis) -> None:
        self.held = trellis

    def trellis(self) -> Trellis:
        return self.held


def caught(case: str, trellis: Trellis) -> list[str]:
    """Return the ids of the instances of a shipped case that find something."""
    found = []
    for instance in load_file(CASES / f"{case}.yaml"):
        notes = Notes()
        with suppress(StopInstance):
            KIND.run(instance.case, FakeSubject(trellis), notes)
        assert notes.comparisons, instance.id
        if notes.findings:
            found.append(instance.id)
    return found


@pytest.mark.parametrize("case", DECODED)
def test_a_decoder_without_mistake_passes(case: str) -> None:
    assert caught(case, Fake()) == []


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_case_made_for_a_mistake_catches_it(mistake: str) -> None:
    assert caught(MISTAKES[mistake], Fake(mistake))


SPOIL_A_WEIGHT = list(MISTAKES)[: list(MISTAKES).index("states of the next column")]


@pytest.mark.parametrize("mistake", SPOIL_A_WEIGHT)
def test_the_mistake_is_caught_in_a_fused_kernel(mistake: str) -> None:
    assert any(caught(case, FusedFake(mistake)) for case in FUSED)


def test_every_case_is_made_for_a_mistake() -> None:
    assert set(DECODED) == {*MISTAKES.values(), *FUSED, *TIMED_ONLY}
