"""Affine quantizations with one mistake each: the shipped cases catch every one, and pass the one without a mistake."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from harness.baseline import affine as baseline
from harness.case.load import load_cases, load_file
from harness.kinds.affine import KIND
from harness.kinds.base import Notes, StopInstance
from harness.subjects.protocol import Affine, AffineArrays, Subject
from tests.fakes import quantizers
from tests.fakes.quantizers import Right

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from harness.case.expand import Instance

CASES = Path(__file__).parents[2] / "cases" / "affine"


def recoded(planes: AffineArrays, codes: NDArray[np.uint32]) -> AffineArrays:
    return replace(planes, packed=baseline.pack(codes, planes.bits))


class SwappedNibbles(Right):
    def decode(self, planes: AffineArrays) -> NDArray[np.float64]:
        if planes.bits != 4:
            return super().decode(planes)
        high, low = planes.packed >> np.uint32(4), planes.packed & np.uint32(0x0F0F0F0F)
        return super().decode(replace(planes, packed=(high & np.uint32(0x0F0F0F0F)) | (low << np.uint32(4))))


class SwappedNibblesBothWays(SwappedNibbles):
    def quantize(self, x: NDArray[Any], group_size: int, bits: int) -> AffineArrays:
        planes = super().quantize(x, group_size, bits)
        codes = baseline.unpack(planes.packed, bits)
        return recoded(planes, codes.reshape(-1, 2)[:, ::-1].reshape(codes.shape)) if bits == 4 else planes


class HighestBitFirst(Right):
    def decode(self, planes: AffineArrays) -> NDArray[np.float64]:
        codes = baseline.unpack(planes.packed, planes.bits)
        turned = sum((codes >> np.uint32(i) & 1) << np.uint32(planes.bits - 1 - i) for i in range(planes.bits))
        return super().decode(recoded(planes, np.asarray(turned, np.uint32)))


class CodesEndWithTheirWord(Right):
    """Codes of 3, 5 and 6 bits lose what lies in the next word."""

    def decode(self, planes: AffineArrays) -> NDArray[np.float64]:
        codes = baseline.unpack(planes.packed, planes.bits)
        here = 32 - np.arange(codes.shape[-1], dtype=np.uint32) * planes.bits % 32
        return super().decode(recoded(planes, codes & ((np.uint32(1) << np.minimum(here, planes.bits)) - 1)))


class GapsInWords(Right):
    def quantize(self, x: NDArray[Any], group_size: int, bits: int) -> AffineArrays:
        planes = super().quantize(x, group_size, bits)
        words = -(-x.shape[-1] // (32 // bits))
        return replace(planes, packed=np.zeros((*x.shape[:-1], words), np.uint32))


class ScaleAndBiasSwapped(Right):
    def decode(self, planes: AffineArrays) -> NDArray[np.float64]:
        return super().decode(replace(planes, scales=planes.biases, biases=planes.scales))


class BiasForgotten(Right):
    def decode(self, planes: AffineArrays) -> NDArray[np.float64]:
        return super().decode(replace(planes, biases=np.zeros_like(planes.biases)))


class FirstGroupForAll(Right):
    def decode(self, planes: AffineArrays) -> NDArray[np.float64]:
        scales, biases = (np.broadcast_to(p[..., :1], p.shape) for p in (planes.scales, planes.biases))
        return super().decode(replace(planes, scales=scales, biases=biases))


class GroupsAcrossRows(Right):
    def matmul(self, x: NDArray[Any], planes: AffineArrays, *, transpose: bool) -> NDArray[Any]:
        codes = baseline.unpack(planes.packed, planes.bits).astype(np.float64)
        if codes.ndim > 2 or codes.shape[0] % planes.group_size:
            return super().matmul(x, planes, transpose=transpose)
        shape = (codes.shape[0] // planes.group_size, codes.shape[1])
        scales, biases = (
            np.repeat(p.astype(np.float64).reshape(shape), planes.group_size, axis=0)
            for p in (planes.scales, planes.biases)
        )
        return baseline.product(x, codes * scales + biases, transpose=transpose).astype(x.dtype)


class CodesOffByTwo(Right):
    def quantize(self, x: NDArray[Any], group_size: int, bits: int) -> AffineArrays:
        planes = super().quantize(x, group_size, bits)
        codes = baseline.unpack(planes.packed, bits)
        return recoded(planes, np.minimum(codes + 2, 2**bits - 1).astype(np.uint32))


class OneCodeFlipped(Right):
    def quantize(self, x: NDArray[Any], group_size: int, bits: int) -> AffineArrays:
        planes = super().quantize(x, group_size, bits)
        planes.packed[..., -1, -1] ^= np.uint32(1 << 31)
        return planes

    def decode(self, planes: AffineArrays) -> NDArray[np.float64]:
        packed = planes.packed.copy()
        packed[..., -1, -1] ^= np.uint32(1 << 31)
        return super().decode(replace(planes, packed=packed))


class Truncating(Right):
    def quantize(self, x: NDArray[Any], group_size: int, bits: int) -> AffineArrays:
        planes = super().quantize(x, group_size, bits)
        scales, biases = (np.repeat(p.astype(np.float64), group_size, -1) for p in (planes.scales, planes.biases))
        codes = np.clip((x.astype(np.float64) - biases) / scales, 0, 2**bits - 1)
        return recoded(planes, codes.astype(np.uint32))


class MinimumAsBias(Right):
    def quantize(self, x: NDArray[Any], group_size: int, bits: int) -> AffineArrays:
        groups = x.astype(np.float64).reshape(*x.shape[:-1], -1, group_size)
        low, high = groups.min(-1), groups.max(-1)
        scales, biases = (p.astype(x.dtype) for p in (np.maximum((high - low) / (2**bits - 1), 1e-7), low))
        codes = np.rint((groups - low[..., None]) / scales.astype(np.float64)[..., None])
        packed = baseline.pack(np.clip(codes, 0, 2**bits - 1).astype(np.uint32).reshape(x.shape), bits)
        return AffineArrays(packed, scales, biases, group_size, bits)


class ScaleInTheStorageDtype(Right):
    """Codes are chosen by the scale as it is stored, and that is computed from rounded steps."""

    def quantize(self, x: NDArray[Any], group_size: int, bits: int) -> AffineArrays:
        planes = super().quantize(x, group_size, bits)
        groups = x.reshape(*x.shape[:-1], -1, group_size)
        wide = (groups.max(-1) - groups.min(-1)).astype(x.dtype) / x.dtype.type(2**bits - 1)
        return replace(planes, scales=np.copysign(wide, planes.scales).astype(x.dtype))


class NoSmallestStep(Right):
    def quantize(self, x: NDArray[Any], group_size: int, bits: int) -> AffineArrays:
        planes = super().quantize(x, group_size, bits)
        groups = x.reshape(*x.shape[:-1], -1, group_size)
        flat = groups.max(-1) == groups.min(-1)
        return replace(planes, scales=np.where(flat, x.dtype.type(np.nan), planes.scales))


class MaximumFromZero(Right):
    """The mistake of starting the search for the maximum at 0, made worse by clipping to the range found."""

    def quantize(self, x: NDArray[Any], group_size: int, bits: int) -> AffineArrays:
        return super().quantize(np.maximum(x, -0.5 * np.abs(x).max()) if x.max() < 0 else x, group_size, bits)


class Overflowing(Right):
    def decode(self, planes: AffineArrays) -> NDArray[np.float64]:
        step = super().decode(replace(planes, biases=np.zeros_like(planes.biases)))
        with np.errstate(over="ignore"):
            stored = step.astype(planes.scales.dtype).astype(np.float64)
        return stored + np.repeat(planes.biases.astype(np.float64), planes.group_size, -1)


class OtherOrientation(Right):
    def matmul(self, x: NDArray[Any], planes: AffineArrays, *, transpose: bool) -> NDArray[Any]:
        square = x.shape[-1] == self.decode(planes).shape[-2] == self.decode(planes).shape[-1]
        return super().matmul(x, planes, transpose=transpose != square)


class AlwaysTransposed(Right):
    def matmul(self, x: NDArray[Any], planes: AffineArrays, *, transpose: bool) -> NDArray[Any]:
        square = x.shape[-1] == self.decode(planes).shape[-1]
        return super().matmul(x, planes, transpose=transpose or square)


class LastOutputsLeftOut(Right):
    """The grid is rounded down to tiles of 32 outputs; the rest stays zero."""

    def matmul(self, x: NDArray[Any], planes: AffineArrays, *, transpose: bool) -> NDArray[Any]:
        result = super().matmul(x, planes, transpose=transpose)
        result[..., result.shape[-1] // 32 * 32 :] = 0
        return result


class LastRowsLeftOut(Right):
    """The grid is rounded down to tiles of 8 rows, for more than 8 of them; the rest is what lay there before."""

    def matmul(self, x: NDArray[Any], planes: AffineArrays, *, transpose: bool) -> NDArray[Any]:
        result = super().matmul(x, planes, transpose=transpose)
        if result.shape[-2] > 8:
            result[..., result.shape[-2] // 8 * 8 :, :] = np.nan
        return result


class LastInputsLeftOut(Right):
    """Sums of more than 512 terms go by blocks of 512 and lose the rest."""

    def matmul(self, x: NDArray[Any], planes: AffineArrays, *, transpose: bool) -> NDArray[Any]:
        kept = x.copy()
        if x.shape[-1] > 512:
            kept[..., x.shape[-1] // 512 * 512 :] = 0
        return super().matmul(kept, planes, transpose=transpose)


class FirstMatrixForAll(Right):
    def matmul(self, x: NDArray[Any], planes: AffineArrays, *, transpose: bool) -> NDArray[Any]:
        matrix = self.decode(planes)
        first = np.broadcast_to(matrix[:1], matrix.shape) if matrix.ndim > 2 else matrix
        return baseline.product(x, first, transpose=transpose).astype(x.dtype)


class FirstRepeatForAll(Right):
    def matmul(self, x: NDArray[Any], planes: AffineArrays, *, transpose: bool) -> NDArray[Any]:
        first = np.broadcast_to(x[:, :1], x.shape) if x.ndim > 2 else x
        return super().matmul(first, planes, transpose=transpose)


class WrongDtype(Right):
    def matmul(self, x: NDArray[Any], planes: AffineArrays, *, transpose: bool) -> NDArray[Any]:
        return super().matmul(x, planes, transpose=transpose).astype(np.float64)


class WrongShape(Right):
    def matmul(self, x: NDArray[Any], planes: AffineArrays, *, transpose: bool) -> NDArray[Any]:
        return super().matmul(x, planes, transpose=transpose).squeeze()


class NoArray(Right):
    def dequantize(self, planes: AffineArrays) -> Any:
        return super().dequantize(planes).tolist()


class NoPlanes(Right):
    def quantize(self, x: NDArray[Any], group_size: int, bits: int) -> Any:
        planes = super().quantize(x, group_size, bits)
        return planes.packed, planes.scales, planes.biases


class OtherBits(Right):
    def quantize(self, x: NDArray[Any], group_size: int, bits: int) -> AffineArrays:
        return replace(super().quantize(x, group_size, bits), bits=8)


class ScalesInPlace(Right):
    def matmul(self, x: NDArray[Any], planes: AffineArrays, *, transpose: bool) -> NDArray[Any]:
        result = super().matmul(x, planes, transpose=transpose)
        x *= x.dtype.type(0.5)
        return result


class ReusedBuffer(Right):
    def __init__(self) -> None:
        self.buffer = np.zeros(0)

    def dequantize(self, planes: AffineArrays) -> NDArray[Any]:
        values = super().dequantize(planes)
        if self.buffer.shape == values.shape:
            self.buffer[...] = values + 1
            return self.buffer
        self.buffer = values
        return values


# Every mistake, the case that is made for it, and the check that shows it there.
MISTAKES: list[tuple[type[Right], str, str]] = [
    (SwappedNibbles, "decode-every-format", "decode"),
    (SwappedNibbles, "transposed-product-every-format", "matmul"),
    (SwappedNibblesBothWays, "encode-every-format", "encode"),
    (HighestBitFirst, "decode-every-format", "decode"),
    (HighestBitFirst, "whole-number-products-are-exact", "matmul"),
    (CodesEndWithTheirWord, "codes-straddle-words", "decode"),
    (CodesEndWithTheirWord, "one-hot-recovers-a-row", "matmul"),
    (GapsInWords, "codes-straddle-words", "shape"),
    (ScaleAndBiasSwapped, "decode-every-format", "decode"),
    (ScaleAndBiasSwapped, "one-token-through-a-layer", "matmul"),
    (BiasForgotten, "plain-product-every-format", "matmul"),
    (FirstGroupForAll, "a-block-of-keys", "decode"),
    (FirstGroupForAll, "transposed-product-every-format", "matmul"),
    (GroupsAcrossRows, "one-hot-recovers-a-row", "matmul"),
    (GroupsAcrossRows, "whole-number-products-are-exact", "matmul"),
    (CodesOffByTwo, "encode-every-format", "encode"),
    (CodesOffByTwo, "larger-extreme-is-the-bias", "encode"),
    (OneCodeFlipped, "encode-every-format", "encode"),
    (OneCodeFlipped, "decode-every-format", "decode"),
    (OneCodeFlipped, "one-hot-recovers-a-row", "matmul"),
    (Truncating, "nearest-code", "round-trip"),
    (Truncating, "encode-every-format", "encode"),
    (MinimumAsBias, "larger-extreme-is-the-bias", "encode"),
    (MinimumAsBias, "halves-of-the-largest-number", "encode"),
    (ScaleInTheStorageDtype, "encode-every-format", "encode"),
    (NoSmallestStep, "constant-groups", "round-trip"),
    (NoSmallestStep, "nothing-but-zeros", "encode"),
    (MaximumFromZero, "all-negative-groups", "round-trip"),
    (Overflowing, "range-wider-than-the-largest-number", "decode"),
    (OtherOrientation, "one-hot-recovers-a-row", "matmul"),
    (OtherOrientation, "whole-number-products-are-exact", "matmul"),
    (AlwaysTransposed, "inputs-keep-their-bits", "matmul"),
    (LastOutputsLeftOut, "every-number-of-outputs", "matmul"),
    (LastRowsLeftOut, "every-batch-size", "matmul"),
    (LastInputsLeftOut, "every-number-of-inputs", "matmul"),
    (FirstMatrixForAll, "heads-share-a-quantized-cache", "matmul"),
    (FirstRepeatForAll, "heads-share-a-quantized-cache", "matmul"),
    (FirstGroupForAll, "layer-of-a-model", "matmul"),
    (WrongDtype, "transposed-product-every-format", "shape"),
    (WrongShape, "every-batch-size", "shape"),
    (NoArray, "decode-every-format", "shape"),
    (NoPlanes, "encode-every-format", "shape"),
    (OtherBits, "encode-every-format", "shape"),
    (ScalesInPlace, "inputs-keep-their-bits", "untouched"),
    (ReusedBuffer, "inputs-keep-their-bits", "untouched"),
    *quantizers.MISTAKES,
]


class Fake(Subject):
    """A subject that offers nothing but `quantization`."""

    def __init__(self, quantization: Affine) -> None:
        self.quantization = quantization

    def affine(self) -> Affine:
        return self.quantization


def run(instance: Instance, quantization: Affine) -> Notes:
    notes = Notes()
    with suppress(StopInstance):
        KIND.run(instance.case, Fake(quantization), notes)
    return notes


@pytest.mark.parametrize(("mistake", "case", "check"), MISTAKES, ids=lambda value: getattr(value, "__name__", value))
def test_a_mistake_is_caught(mistake: type[Right], case: str, check: str) -> None:
    found = (finding for one in load_file(CASES / f"{case}.yaml") for finding in run(one, mistake()).findings)
    first = next(finding for finding in found if finding.check == check)
    assert first.where
    assert first.expected != first.actual


def test_no_mistake_passes_every_case() -> None:
    # `assay run` runs them all.
    instances = load_cases([CASES], wanted=lambda ids: set(ids[::4]))
    assert {one.case_name.removeprefix("affine/") for one in instances} == {case for _, case, _ in MISTAKES}
    for instance in instances:
        notes = run(instance, Right())
        assert notes.findings == [], instance.id
        assert notes.comparisons > 0


def test_a_partial_last_tile_is_told_by_its_outputs() -> None:
    instances = {one.id: one for one in load_file(CASES / "every-number-of-outputs.yaml")}
    (finding,) = run(instances["affine/every-number-of-outputs[outputs=65]"], LastOutputsLeftOut()).findings
    assert finding.where == "row 0 of x, output 64"
    assert finding.actual == "0"
    assert "in the only row and outputs 64 of 65" in finding.note


def test_a_wrong_code_is_told_by_its_group() -> None:
    instances = {one.id: one for one in load_file(CASES / "encode-every-format.yaml")}
    notes = run(instances["affine/encode-every-format[bits=4,group=32,dtype=float32]"], OneCodeFlipped())
    finding = next(finding for finding in notes.findings if finding.check == "encode")
    assert finding.where == "code of row 3 of W, column 255 (group 7, value 31 of it)"
    assert abs(int(finding.expected) - int(finding.actual)) == 8
    assert "in rows 3 of 4 and columns 255 of 256; the value is " in finding.note
