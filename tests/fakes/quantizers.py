"""Quantization in all modes without a mistake, and what goes wrong with views, microscaling and picked matrices."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.baseline import affine as baseline
from harness.baseline import microscaling
from harness.kinds.affine.matrices import decoded, mapped
from harness.subjects.protocol import Affine, AffineArrays, PlainArrays
from harness.subjects.protocol.affine import MicroscalingArrays

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from harness.kinds.affine.matrices import Matrix

    Array = NDArray[np.float64]


class Right(Affine):
    """No mistake: the baseline, rounded to the dtype once. Its steps are what mistakes override."""

    def quantize(self, x: NDArray[Any], group_size: int, bits: int) -> AffineArrays:
        return AffineArrays(*baseline.encode(x, group_size, bits), group_size, bits)

    def decode(self, planes: AffineArrays) -> Array:
        return baseline.dequantize(planes.packed, planes.scales, planes.biases, planes.group_size, planes.bits)

    def dequantize(self, planes: AffineArrays) -> NDArray[Any]:
        return self.decode(planes).astype(planes.scales.dtype)

    def matmul(self, x: NDArray[Any], planes: AffineArrays, *, transpose: bool) -> NDArray[Any]:
        return baseline.product(x, self.decode(planes), transpose=transpose).astype(x.dtype)

    def quantize_microscaling(self, x: NDArray[Any], mode: str) -> MicroscalingArrays:
        form = microscaling.FORMATS[mode]
        scales = self.scales(x, mode)
        steps = np.repeat(form.scales[scales], form.group_size, axis=-1)
        scaled = np.divide(x.astype(np.float64), steps, out=np.zeros(x.shape), where=steps > 0)
        sign = np.signbit(scaled).astype(np.uint32) << np.uint32(form.bits - 1)
        codes = self.elements(np.abs(scaled), form).astype(np.uint32) | sign
        return MicroscalingArrays(baseline.pack(codes, form.bits), scales, form.group_size, form.bits, mode)

    def scales(self, x: NDArray[Any], mode: str) -> NDArray[np.uint8]:
        return microscaling.encode(x, mode)[1]

    def elements(self, sizes: Array, form: microscaling.Format) -> NDArray[np.intp]:
        return microscaling.nearest(sizes, form.magnitudes)

    def decode_microscaling(self, planes: MicroscalingArrays) -> Array:
        return decoded(planes)

    def dequantize_microscaling(self, planes: MicroscalingArrays, dtype: np.dtype[Any]) -> NDArray[Any]:
        return self.decode_microscaling(planes).astype(dtype)

    def matmul_microscaling(self, x: NDArray[Any], planes: MicroscalingArrays, *, transpose: bool) -> NDArray[Any]:
        return baseline.product(x, self.decode_microscaling(planes), transpose=transpose).astype(x.dtype)

    def gather(
        self,
        x: NDArray[Any],
        matrices: AffineArrays | MicroscalingArrays | PlainArrays,
        blocks: NDArray[np.uint32] | None,
        picks: NDArray[np.uint32],
        *,
        transpose: bool,
        in_order: bool,
    ) -> NDArray[Any]:
        if in_order and not (np.diff(picks.astype(np.int64)) >= 0).all():
            raise ValueError("these matrices do not ascend")
        flat = x.reshape(-1, *x.shape[-2:])
        taken = np.arange(len(flat)).reshape(x.shape[:-2]) if blocks is None else blocks
        taken, picks = np.broadcast_arrays(taken, picks)
        return self.products(flat, decoded(matrices), taken, picks, transpose=transpose).astype(x.dtype)

    def products(
        self, x: NDArray[Any], matrices: Array, blocks: NDArray[Any], picks: NDArray[Any], *, transpose: bool
    ) -> Array:
        """Product i of block blocks[i] and matrix picks[i]."""
        return baseline.product(x[blocks], matrices[picks], transpose=transpose)


def in_memory_order(array: NDArray[Any]) -> NDArray[Any]:
    """Return what lies in memory from the first element on, as if `array` were contiguous; zeros behind its end."""
    strides = [stride // array.itemsize for stride in array.strides]
    span = 1 + sum((length - 1) * stride for length, stride in zip(array.shape, strides, strict=True))
    memory = np.zeros(array.size, array.dtype)
    there = np.lib.stride_tricks.as_strided(array, (min(span, array.size),), (array.itemsize,), writeable=False)
    memory[: there.size] = there
    return memory.reshape(array.shape)


class StridesIgnored(Right):
    """Walks through memory: x, and planes, of a view."""

    def matmul(self, x: NDArray[Any], planes: AffineArrays, *, transpose: bool) -> NDArray[Any]:
        return super().matmul(in_memory_order(x), planes, transpose=transpose)

    def dequantize(self, planes: AffineArrays) -> NDArray[Any]:
        return super().dequantize(replace(planes, scales=in_memory_order(planes.scales)))

    def quantize(self, x: NDArray[Any], group_size: int, bits: int) -> AffineArrays:
        return super().quantize(np.nan_to_num(in_memory_order(x)), group_size, bits)

    def dequantize_microscaling(self, planes: MicroscalingArrays, dtype: np.dtype[Any]) -> NDArray[Any]:
        return super().dequantize_microscaling(mapped(planes, lambda _, array: in_memory_order(array)), dtype)

    def gather(self, x: NDArray[Any], matrices: Any, blocks: Any, picks: Any, **how: Any) -> NDArray[Any]:
        read: Matrix = mapped(matrices, lambda _, array: in_memory_order(array))
        return super().gather(x, read, blocks, picks, **how)


class StackApartByItsSize(Right):
    """Takes the matrices of a stack to lie apart by their size, whatever lies between rows."""

    def matmul(self, x: NDArray[Any], planes: AffineArrays, *, transpose: bool) -> NDArray[Any]:
        if planes.packed.ndim > 2:
            planes = mapped(planes, lambda _, array: in_memory_order(array))
        return super().matmul(x, planes, transpose=transpose)


class FewOutputsUnwritten(Right):
    """Writes 8 outputs at a time, and fewer not at all, for several rows."""

    def matmul(self, x: NDArray[Any], planes: AffineArrays, *, transpose: bool) -> NDArray[Any]:
        result = super().matmul(x, planes, transpose=transpose)
        if result.shape[-2] > 1 and result.shape[-1] < 8:
            result[...] = np.nan
        return result


class CornerLeftOut(Right):
    """Guards rows and outputs of a partial tile each, and not the corner where both are partial."""

    def matmul(self, x: NDArray[Any], planes: AffineArrays, *, transpose: bool) -> NDArray[Any]:
        result = super().matmul(x, planes, transpose=transpose)
        rows, outputs = result.shape[-2:]
        if rows > 32 and outputs > 32:
            result[..., rows // 32 * 32 :, outputs // 32 * 32 :] = 0
        return result


class NewestInputsLeftOut(Right):
    """Sums by 8 inputs, once there are so many."""

    def matmul(self, x: NDArray[Any], planes: AffineArrays, *, transpose: bool) -> NDArray[Any]:
        whole = x.copy()
        if x.shape[-1] > 8 and not transpose:
            whole[..., x.shape[-1] // 8 * 8 :] = 0
        return super().matmul(whole, planes, transpose=transpose)


class ScalesRoundedDown(Right):
    """As the specification has it: the largest values are cut off."""

    def scales(self, x: NDArray[Any], mode: str) -> NDArray[np.uint8]:
        right = super().scales(x, mode)
        return right if mode == "nvfp4" else (right - 1).astype(np.uint8)


class ScalesInTheDtype(Right):
    """Forms scales in the dtype of the weights, where small ones are 0, and then takes 1."""

    def scales(self, x: NDArray[Any], mode: str) -> NDArray[np.uint8]:
        form = microscaling.FORMATS[mode]
        groups = np.abs(x.reshape(*x.shape[:-1], -1, form.group_size)).max(axis=-1)
        wanted = (groups.astype(np.float64) / form.top).astype(x.dtype)
        right = super().scales(x, mode)
        return right if mode == "nvfp4" else np.where(wanted == 0, 127, right).astype(np.uint8)


class ScalesTruncated(Right):
    """Cuts an E4M3 scale instead of rounding it."""

    def scales(self, x: NDArray[Any], mode: str) -> NDArray[np.uint8]:
        if mode != "nvfp4":
            return super().scales(x, mode)
        groups = np.abs(x.astype(np.float64).reshape(*x.shape[:-1], -1, 16)).max(axis=-1)
        below = np.searchsorted(microscaling.E4M3[:127], groups / 6, side="right") - 1
        codes: NDArray[np.uint8] = below.astype(np.uint8)
        return codes


class ElementsTruncated(Right):
    def elements(self, sizes: Array, form: microscaling.Format) -> NDArray[np.intp]:
        return np.searchsorted(form.magnitudes, sizes, side="right") - 1


class NearestCodeByRatio(Right):
    """Rounds the logarithm: halfway lies at the geometric mean."""

    def elements(self, sizes: Array, form: microscaling.Format) -> NDArray[np.intp]:
        halfway = np.sqrt(form.magnitudes[:-1] * form.magnitudes[1:])
        return np.searchsorted(halfway, sizes)


class WrapsBeyondTheLargest(Right):
    """Distances to all elements round to the same, and the first is taken."""

    def elements(self, sizes: Array, form: microscaling.Format) -> NDArray[np.intp]:
        return np.where(sizes > 1000 * form.top, 0, super().elements(sizes, form))


class LastOddGroupLost(Right):
    """Takes groups of 16 two at a time."""

    def quantize_microscaling(self, x: NDArray[Any], mode: str) -> MicroscalingArrays:
        planes = super().quantize_microscaling(x, mode)
        if x.shape[-1] // planes.group_size % 2:
            planes.packed[..., -self.words(planes) :] = 0
        return planes

    def decode_microscaling(self, planes: MicroscalingArrays) -> Array:
        if planes.scales.shape[-1] % 2:
            packed = planes.packed.copy()
            packed[..., -self.words(planes) :] = 0
            planes = replace(planes, packed=packed)
        return decoded(planes)

    def words(self, planes: MicroscalingArrays) -> int:
        return planes.group_size * planes.bits // 32


class SubnormalsFlushed(Right):
    def decode_microscaling(self, planes: MicroscalingArrays) -> Array:
        form = microscaling.FORMATS[planes.mode]
        codes = baseline.unpack(planes.packed, planes.bits)
        exponents = codes & (0x78 if planes.bits == 8 else 0x6)
        return np.where(exponents == 0, 0.0, form.elements[codes]) * self.steps(planes)

    def steps(self, planes: MicroscalingArrays) -> Array:
        scales = microscaling.FORMATS[planes.mode].scales[planes.scales]
        return np.repeat(scales, planes.group_size, axis=-1)


class ElementsAreIntegers(SubnormalsFlushed):
    """Takes 4-bit elements for whole numbers from -8 to 7."""

    def decode_microscaling(self, planes: MicroscalingArrays) -> Array:
        if planes.bits == 8:
            return decoded(planes)
        codes = baseline.unpack(planes.packed, 4).astype(np.float64)
        return np.where(codes > 7, codes - 16, codes) * self.steps(planes)


class FiveBitsOfExponent(SubnormalsFlushed):
    """Reads E5M2 where E4M3 is written."""

    def decode_microscaling(self, planes: MicroscalingArrays) -> Array:
        if planes.bits == 4:
            return decoded(planes)
        codes = baseline.unpack(planes.packed, 8)
        halves = (codes << np.uint32(8)).astype(np.uint16).view(np.float16)
        return np.nan_to_num(halves.astype(np.float64), posinf=0.0, neginf=0.0) * self.steps(planes)


class ScalesOffByOne(Right):
    """Takes 128 for the exponent 0."""

    def decode_microscaling(self, planes: MicroscalingArrays) -> Array:
        return decoded(planes) * (1.0 if planes.mode == "nvfp4" else 0.5)


class ScalesLoseTheirMantissa(SubnormalsFlushed):
    """Takes an E4M3 scale for a power of two."""

    def steps(self, planes: MicroscalingArrays) -> Array:
        steps = super().steps(planes)
        return 2.0 ** np.floor(np.log2(steps)) if planes.mode == "nvfp4" else steps

    def decode_microscaling(self, planes: MicroscalingArrays) -> Array:
        form = microscaling.FORMATS[planes.mode]
        return form.elements[baseline.unpack(planes.packed, planes.bits)] * self.steps(planes)


class ScaleOfTheGroupBefore(Right):
    def matmul_microscaling(self, x: NDArray[Any], planes: Any, *, transpose: bool) -> NDArray[Any]:
        moved = replace(planes, scales=np.roll(planes.scales, 1, axis=-1))
        return super().matmul_microscaling(x, moved, transpose=transpose)


class MicroscalingOutputsLeftOut(Right):
    """The grid is rounded down to 8 outputs."""

    def matmul_microscaling(self, x: NDArray[Any], planes: Any, *, transpose: bool) -> NDArray[Any]:
        result = super().matmul_microscaling(x, planes, transpose=transpose)
        result[..., result.shape[-1] // 8 * 8 :] = 0
        return result


class GroupsSummedInTheDtype(Right):
    """Adds up elements in the dtype of x, and scales the sums."""

    def matmul_microscaling(self, x: NDArray[Any], planes: Any, *, transpose: bool) -> NDArray[Any]:
        if not transpose:
            return super().matmul_microscaling(x, planes, transpose=transpose)
        form = microscaling.FORMATS[planes.mode]
        elements = form.elements[baseline.unpack(planes.packed, planes.bits)]
        groups = (-1, planes.group_size)
        with np.errstate(over="ignore", invalid="ignore"):
            terms = x[:, np.newaxis].astype(np.float64) * elements
            sums = terms.reshape(*terms.shape[:-1], *groups).sum(axis=-1).astype(x.dtype)
            result: NDArray[Any] = (sums.astype(np.float64) * form.scales[planes.scales]).sum(axis=-1).astype(x.dtype)
            return result


class MatricesInTurn(Right):
    """Ignores which matrix is picked."""

    def products(self, x: Any, matrices: Any, blocks: Any, picks: Any, *, transpose: bool) -> Array:
        turn = np.arange(picks.size).reshape(picks.shape) % len(matrices)
        return super().products(x, matrices, blocks, turn, transpose=transpose)


class BlocksInTurn(Right):
    """Ignores which block is taken."""

    def products(self, x: Any, matrices: Any, blocks: Any, picks: Any, *, transpose: bool) -> Array:
        turn = np.arange(blocks.size).reshape(blocks.shape) % len(x)
        return super().products(x, matrices, turn, picks, transpose=transpose)


class ResultsStaySorted(Right):
    """Sorts by matrix, and doesn't put the products back."""

    def products(self, x: Any, matrices: Any, blocks: Any, picks: Any, *, transpose: bool) -> Array:
        order = np.argsort(picks, axis=None, kind="stable")
        shape = picks.shape
        return super().products(
            x, matrices, blocks.flat[order].reshape(shape), picks.flat[order].reshape(shape), transpose=transpose
        )


class RepeatedMatrixOnce(Right):
    """Writes the first product of each matrix only."""

    def products(self, x: Any, matrices: Any, blocks: Any, picks: Any, *, transpose: bool) -> Array:
        result = super().products(x, matrices, blocks, picks, transpose=transpose)
        _, first = np.unique(picks, return_index=True)
        again = np.setdiff1d(np.arange(picks.size), first)
        result.reshape(-1, *result.shape[-2:])[again] = 0
        return result


class ExpertsOfTheFirstBlock(Right):
    def products(self, x: Any, matrices: Any, blocks: Any, picks: Any, *, transpose: bool) -> Array:
        if picks.ndim > 1:
            picks = np.broadcast_to(picks[:1], picks.shape)
        return super().products(x, matrices, blocks, picks, transpose=transpose)


class ReadsTheNextMatrix(Right):
    """Of fewer than 8 outputs takes the last from the matrix behind."""

    def products(self, x: Any, matrices: Any, blocks: Any, picks: Any, *, transpose: bool) -> Array:
        result = super().products(x, matrices, blocks, picks, transpose=transpose)
        if result.shape[-1] < 8:
            behind = super().products(x, matrices, blocks, (picks + 1) % len(matrices), transpose=transpose)
            result[..., -1] = behind[..., 0]
        return result


class PicksInNarrowerSums(Right):
    """Adds up float32 in bfloat16, as a fast path would."""

    def products(self, x: Any, matrices: Any, blocks: Any, picks: Any, *, transpose: bool) -> Array:
        result = super().products(x, matrices, blocks, picks, transpose=transpose)
        return result * (1 + 2.0**-9) if x.dtype == np.float32 else result


# Every mistake, the case that is made for it, and the check that shows it there.
MISTAKES: list[tuple[type[Right], str, str]] = [
    (StridesIgnored, "views-are-read-by-their-strides", "matmul"),
    (StridesIgnored, "views-are-read-by-their-strides", "encode"),
    (StridesIgnored, "views-are-read-by-their-strides", "decode"),
    (StridesIgnored, "microscaling-views", "decode"),
    (StridesIgnored, "picked-matrices-as-views", "gather"),
    (StridesIgnored, "picked-microscaling-and-plain-views", "gather"),
    (StackApartByItsSize, "a-stack-of-views", "matmul"),
    (FewOutputsUnwritten, "fewer-than-8-outputs", "matmul"),
    (CornerLeftOut, "outputs-and-rows-around-tiles", "matmul"),
    (NewestInputsLeftOut, "inputs-around-tiles", "matmul"),
    (NewestInputsLeftOut, "plain-product-of-every-size", "matmul"),
    (ScalesRoundedDown, "microscaling-encodes", "encode"),
    (ScalesTruncated, "microscaling-encodes", "encode"),
    (ElementsTruncated, "microscaling-encodes", "encode"),
    (ElementsTruncated, "microscaling-encodes", "round-trip"),
    (NearestCodeByRatio, "microscaling-encodes", "encode"),
    (ScalesInTheDtype, "microscaling-small-weights", "encode"),
    (WrapsBeyondTheLargest, "nvfp4-saturates", "encode"),
    (LastOddGroupLost, "nvfp4-encodes-any-number-of-groups", "encode"),
    (LastOddGroupLost, "nvfp4-decodes-any-number-of-groups", "decode"),
    (SubnormalsFlushed, "microscaling-decodes-every-code", "decode"),
    (ElementsAreIntegers, "microscaling-decodes-every-code", "decode"),
    (FiveBitsOfExponent, "microscaling-decodes-every-code", "decode"),
    (ScalesOffByOne, "microscaling-decodes-every-code", "decode"),
    (ScalesOffByOne, "microscaling-products", "matmul"),
    (ScalesLoseTheirMantissa, "microscaling-decodes-every-code", "decode"),
    (ScaleOfTheGroupBefore, "microscaling-products", "matmul"),
    (MicroscalingOutputsLeftOut, "microscaling-products-of-every-size", "matmul"),
    (GroupsSummedInTheDtype, "microscaling-sums-before-the-scale", "matmul"),
    (MatricesInTurn, "picked-matrices", "gather"),
    (MatricesInTurn, "picked-plain-matrices", "gather"),
    (BlocksInTurn, "picked-matrices", "gather"),
    (ResultsStaySorted, "picked-microscaling-matrices", "gather"),
    (RepeatedMatrixOnce, "picked-matrices", "gather"),
    (ExpertsOfTheFirstBlock, "picked-plain-matrices", "gather"),
    (ReadsTheNextMatrix, "picked-matrices-with-few-outputs", "gather"),
    (ReadsTheNextMatrix, "picked-microscaling-matrices-with-few-outputs", "gather"),
    (PicksInNarrowerSums, "picked-products-of-many-terms", "gather"),
]
