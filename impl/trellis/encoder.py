"""Encoding of matrices, some rows at a time: it can be interrupted, looked at, saved, and taken up again."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import mlx.core as mx

from impl.trellis.codebooks import codebook_rms, codeword_table
from impl.trellis.errors import TrellisFormatError, TrellisMatrixError
from impl.trellis.layout import join_blocks
from impl.trellis.viterbi import PASSES, Encoded, Geometry, check_encodable, encode_blocks, usual_geometry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from impl.metal.backend import Backend
    from impl.trellis.layout import TrellisFormat

    # Rows done, and all rows.
    Progress = Callable[[int, int], None]

# Weights a launch: a fraction of a second, so that progress moves and little is lost by an interruption.
_ALONE_WEIGHTS: Final = 1 << 18
_GROUP_WEIGHTS: Final = 1 << 23


class MatrixEncoder:
    """Encodes a matrix [rows, columns] of any float type into `layout`, one scale a row.

    A row is divided by `gain` times its root mean square, relative to that of the codebook; with several `gains` every
    row keeps the one that comes nearest. Then, unless `refit` is false, its scale becomes the best one for the path
    that was found. With `scales` (float32 [rows]) all that is settled, and neither gains nor refit mean anything.
    A row of zeros has the scale 0.

    `run` encodes what is left; when it is interrupted or raises, rows that were finished stay so, and another `run`
    goes on. `state` is what a file needs to go on elsewhere (`impl.trellis.saving.save_progress`).
    Raises TrellisMatrixError for a matrix or scales of another shape or not finite, TrellisFormatError for a format or
    gains that can't be encoded.
    """

    def __init__(
        self,
        matrix: mx.array,
        layout: TrellisFormat,
        gains: Sequence[float] = (1.0,),
        *,
        scales: mx.array | None = None,
        refit: bool = True,
        passes: str = "two",
        geometry: Geometry | None = None,
        backend: str | Backend | None = None,
    ) -> None:
        """Look at the arguments; nothing is encoded yet."""
        check_encodable(layout.bits, layout.state_bits, layout.block)
        if passes not in PASSES or passes == "free":
            raise TrellisFormatError(f"passes={passes!r}; a matrix is encoded with two or exact")
        if not gains or not all(math.isfinite(gain) and gain > 0 for gain in gains):
            raise TrellisFormatError(f"gains={list(gains)} are not all positive numbers")
        check_matrix(matrix, layout, scales)
        self.layout, self.gains, self.refit, self.passes = layout, tuple(map(float, gains)), refit, passes
        self._matrix, self._given_scales = matrix, scales
        self._geometry = geometry or usual_geometry(layout.bits, layout.state_bits, layout.block, backend)
        self._backend = backend
        weights = _ALONE_WEIGHTS if self._geometry.threads == 1 else _GROUP_WEIGHTS
        self.chunk_rows = max(1, weights // layout.columns)
        # Words, scales and errors of finished rows.
        self._parts: list[tuple[mx.array, mx.array, mx.array]] = []

    @property
    def matrix(self) -> mx.array:
        """The matrix that is being encoded."""
        return self._matrix

    @property
    def given_scales(self) -> mx.array | None:
        """The scales that it was given; None: they are found."""
        return self._given_scales

    @property
    def rows_done(self) -> int:
        """Rows that are finished, from the first on."""
        return sum(scales.size for _, scales, _ in self._parts)

    def run(self, progress: Progress | None = None, rows: int | None = None) -> bool:
        """Encode what is left, or the next `rows` rows; return whether all is done. `progress` is called now and then.

        An exception of `progress`, and Ctrl-C, end it between two parts, or within one that is then lost.
        """
        start = self.rows_done
        stop = self.layout.rows if rows is None else min(self.layout.rows, start + rows)
        while start < stop:
            end = min(stop, start + self.chunk_rows)
            part = self._encode(start, end)
            mx.eval(part)
            self._parts.append(part)
            start = end
            if progress is not None:
                progress(start, self.layout.rows)
        return start == self.layout.rows

    def result(self) -> tuple[mx.array, mx.array]:
        """Return flat codes in the order of `layout`, and scales float32 [rows]; TrellisMatrixError too early."""
        if self.rows_done < self.layout.rows:
            raise TrellisMatrixError(f"{self.rows_done} of {self.layout.rows} rows are encoded; call run() first")
        words, scales, _ = self.state()
        return join_blocks(words, self.layout), scales

    def row_errors(self) -> mx.array:
        """Return the sum of squared errors of every finished row, float32 [rows_done]."""
        return self.state()[2]

    def state(self) -> tuple[mx.array, mx.array, mx.array]:
        """Return words [rows_done, blocks, block_words], scales [rows_done] and errors [rows_done] of finished rows."""
        shape = (0, self.layout.blocks, self.layout.block_words)
        nothing = mx.zeros(shape, mx.uint32), mx.zeros(0, mx.float32), mx.zeros(0, mx.float32)
        words, scales, errors = (mx.concatenate(list(column)) for column in zip(nothing, *self._parts, strict=True))
        return words, scales, errors

    def restore(self, words: mx.array, scales: mx.array, errors: mx.array) -> None:
        """Take over the `state` of another encoder of the same matrix; raises TrellisMatrixError for other shapes."""
        rows = scales.size
        fits = words.shape == (rows, self.layout.blocks, self.layout.block_words) and errors.shape == scales.shape
        if scales.ndim != 1 or rows > self.layout.rows or not fits:
            raise TrellisMatrixError(
                f"words {list(words.shape)} and scales {list(scales.shape)} are not of this matrix"
            )
        if (words.dtype, scales.dtype, errors.dtype) != (mx.uint32, mx.float32, mx.float32):
            raise TrellisMatrixError("words are uint32, scales and errors float32")
        self._parts = [(words, scales, errors)]

    def _encode(self, start: int, end: int) -> tuple[mx.array, mx.array, mx.array]:
        rows = self._matrix[start:end].astype(mx.float32)
        if self._given_scales is not None:
            scales = self._given_scales[start:end]
            encoded = self._encode_rows(rows, scales)
            return self._words_of(encoded), scales, self._by_row(encoded.costs) * scales * scales
        rms = mx.sqrt((rows * rows).mean(axis=1)) / codebook_rms(self.layout.codebook, self.layout.state_bits)
        best: tuple[mx.array, mx.array, mx.array] | None = None
        for gain in self.gains:
            scales = rms * gain
            encoded = self._encode_rows(rows, scales)
            errors = self._by_row(encoded.costs) * scales * scales
            if self.refit:
                scales, errors = self._refit(rows, encoded, scales)
            found = self._words_of(encoded), scales, errors
            if best is not None:
                nearer = errors < best[2]
                found = mx.where(nearer[:, None, None], found[0], best[0]), *_pick(nearer, found[1:], best[1:])
            best = found
        assert best is not None  # noqa: S101 - there is at least one gain
        return best

    def _encode_rows(self, rows: mx.array, scales: mx.array) -> Encoded:
        numbers = mx.where(scales[:, None] == 0, 0, rows / mx.where(scales == 0, 1, scales)[:, None])
        table = codeword_table(self.layout.codebook, self.layout.state_bits)
        blocks = numbers.reshape(-1, self.layout.block)
        return encode_blocks(blocks, table, self.layout.bits, self.passes, self._geometry, self._backend)

    def _refit(self, rows: mx.array, encoded: Encoded, scales: mx.array) -> tuple[mx.array, mx.array]:
        """Return the scales with the least squared error for the paths found, and that error."""
        products, squares = self._by_row(encoded.products), self._by_row(encoded.squares)
        factor = products / mx.maximum(squares, 1e-30)
        errors = (rows * rows).sum(axis=1) - scales * scales * products * factor
        return scales * factor, mx.maximum(errors, 0)

    def _words_of(self, encoded: Encoded) -> mx.array:
        return encoded.words.reshape(-1, self.layout.blocks, self.layout.block_words)

    def _by_row(self, values: mx.array) -> mx.array:
        return values.reshape(-1, self.layout.blocks).sum(axis=1)


def encode_matrix(
    matrix: mx.array,
    layout: TrellisFormat,
    gains: Sequence[float] = (1.0,),
    *,
    scales: mx.array | None = None,
    refit: bool = True,
    passes: str = "two",
    progress: Progress | None = None,
) -> tuple[mx.array, mx.array]:
    """Return flat codes and scales of a matrix [rows, columns]: a `MatrixEncoder` run to its end; raises as it does."""
    encoder = MatrixEncoder(matrix, layout, gains, scales=scales, refit=refit, passes=passes)
    encoder.run(progress)
    return encoder.result()


def check_matrix(matrix: mx.array, layout: TrellisFormat, scales: mx.array | None = None) -> None:
    """Raise TrellisMatrixError unless the matrix [rows, columns] is of `layout`, and all numbers are finite."""
    shape = (layout.rows, layout.columns)
    if matrix.shape != shape or not mx.issubdtype(matrix.dtype, mx.floating):
        raise TrellisMatrixError(f"the matrix is {matrix.dtype} {list(matrix.shape)}; floats {list(shape)} are needed")
    if not mx.isfinite(matrix).all().item():
        raise TrellisMatrixError("the matrix has numbers that are not finite; no codeword is near to them")
    if scales is None:
        return
    if scales.shape != (layout.rows,) or scales.dtype != mx.float32 or not mx.isfinite(scales).all().item():
        raise TrellisMatrixError(
            f"scales are {scales.dtype} {list(scales.shape)}; finite float32 [{layout.rows}] needed"
        )


def _pick(
    nearer: mx.array, found: tuple[mx.array, mx.array], best: tuple[mx.array, mx.array]
) -> tuple[mx.array, mx.array]:
    return mx.where(nearer, found[0], best[0]), mx.where(nearer, found[1], best[1])
