"""Trellis-coded layers, and encoders that are not done yet, in files.

Safetensors, whose metadata has ``format`` (``impl-trellis`` or ``impl-trellis-progress``), ``version`` (``1``) and
``trellis``, a JSON object: rows, columns, bits, state_bits, block, codebook, interleave, and outputs of a layer, or
what decides how an encoder goes on. Tensors of a layer: ``codes``, ``scales``, of a rotation ``row_signs`` and
``column_signs``, of a codebook that is no formula its ``table``.
"""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import mlx.core as mx
import numpy as np

from impl.saving import container
from impl.saving.errors import SavedCacheError, SavedVersionError
from impl.saving.parts import Part
from impl.trellis.codebooks import CODEBOOKS, codeword_table, register_table
from impl.trellis.errors import TrellisError, TrellisFileError, TrellisVersionError
from impl.trellis.layout import TrellisFormat
from impl.trellis.linear import Rotation, TrellisLinear

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from impl.trellis.encoder import MatrixEncoder

LAYER: Final = container.FileSort("impl-trellis", 1, "trellis", "trellis layer of save_linear")
PROGRESS: Final = container.FileSort("impl-trellis-progress", 1, "trellis", "progress of save_progress")


def save_linear(path: str | os.PathLike[str], linear: TrellisLinear) -> None:
    """Write a layer to a safetensors file, whole or not at all; raises OSError when the file can't be written."""
    description, tensors = _describe(linear.layout)
    tensors |= {"codes": linear.codes, "scales": linear.scales}
    if linear.rotation is not None:
        tensors |= {"row_signs": linear.rotation.row_signs, "column_signs": linear.rotation.column_signs}
    description |= {"outputs": linear.outputs, "rotated": linear.rotation is not None}
    container.write(Path(path), description, tensors, LAYER)


def load_linear(path: str | os.PathLike[str]) -> TrellisLinear:
    """Read a layer that ``save_linear`` wrote.

    Raises TrellisFileError, which names the file and what is wrong with it (TrellisVersionError for another version
    of the format), and OSError when the file can't be read.
    """
    with _file_errors(path):
        description, tensors = container.read(Path(path), LAYER)
        part = Part(description, tensors)
        layout = _read_format(part)
        outputs = part.integer("outputs", 1, layout.columns)
        codes = part.tensor("codes", [mx.uint32], [layout.words])
        scales = part.tensor("scales", [mx.float32], [layout.rows])
        rotation = None
        if part.flag("rotated"):
            rows = part.tensor("row_signs", [mx.int8], [layout.rows])
            columns = part.tensor("column_signs", [mx.int8], [layout.columns])
            if not all((mx.abs(signs) == 1).all().item() for signs in (rows, columns)):
                raise TrellisFileError("signs of the rotation are not all 1 or -1")
            rotation = Rotation(rows, columns)
        if not mx.isfinite(scales).all().item():
            raise TrellisFileError("scales are not all finite")
        _close(part, tensors)
        return TrellisLinear(layout, codes, scales, outputs, rotation)


def save_progress(path: str | os.PathLike[str], encoder: MatrixEncoder) -> None:
    """Write the finished rows of an encoder to a safetensors file, whole or not at all."""
    description, tensors = _describe(encoder.layout)
    words, scales, errors = encoder.state()
    # A file has no tensors without rows.
    tensors |= {"words": words, "scales": scales, "errors": errors} if scales.size else {}
    description |= {"rows_done": scales.size, "settings": _settings(encoder)}
    container.write(Path(path), description, tensors, PROGRESS)


def load_progress(path: str | os.PathLike[str], encoder: MatrixEncoder) -> int:
    """Take up what ``save_progress`` wrote, in a new encoder of the same matrix; return how many rows are done.

    Raises TrellisFileError (also for another matrix, format or settings) and OSError; the encoder is then as it was.
    """
    with _file_errors(path):
        description, tensors = container.read(Path(path), PROGRESS)
        part = Part(description, tensors)
        layout = _read_format(part)
        rows = part.integer("rows_done", 0, layout.rows)
        if layout != encoder.layout or part.text("settings") != _settings(encoder):
            raise TrellisFileError("is of another matrix, format or other settings; remove it to begin anew")
        if rows:
            words = part.tensor("words", [mx.uint32], [rows, layout.blocks, layout.block_words])
            scales = part.tensor("scales", [mx.float32], [rows])
            errors = part.tensor("errors", [mx.float32], [rows])
            _close(part, tensors)
            encoder.restore(words, scales, errors)
        return rows


def _settings(encoder: MatrixEncoder) -> str:
    """Return a digest of all that decides what the next rows become."""
    state = hashlib.sha256(repr((encoder.gains, encoder.refit, encoder.passes)).encode())
    for array in (encoder.matrix, encoder.given_scales):
        state.update(b"none" if array is None else np.array(array.astype(mx.float32)).tobytes())
    return state.hexdigest()


def _describe(layout: TrellisFormat) -> tuple[dict[str, Any], dict[str, mx.array]]:
    known = layout.codebook in CODEBOOKS
    tensors = {} if known else {"table": codeword_table(layout.codebook, layout.state_bits)}
    return {**asdict(layout), "own_table": not known}, tensors


def _read_format(part: Part) -> TrellisFormat:
    sizes = {key: part.integer(key) for key in ("rows", "columns", "bits", "state_bits", "block")}
    codebook, interleave = part.text("codebook"), part.flag("interleave")
    if part.flag("own_table"):
        register_table(codebook, part.tensor("table", [mx.float32], [1 << min(sizes["state_bits"], 16)]))
    return TrellisFormat(**sizes, codebook=codebook, interleave=interleave)


def _close(part: Part, tensors: dict[str, mx.array]) -> None:
    part.close()
    if tensors:
        raise TrellisFileError(f"tensors {sorted(tensors)} belong to nothing in the file")


@contextmanager
def _file_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Name the file in every error about what it holds."""
    try:
        yield
    except SavedVersionError as error:
        raise TrellisVersionError(str(error)) from None
    except (SavedCacheError, TrellisError) as error:
        text = str(error)
        raise TrellisFileError(text if text.startswith(f"{path}: ") else f"{path}: {text}") from None
