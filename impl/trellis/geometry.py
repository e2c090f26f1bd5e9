"""How the kernels of products are launched: which threads make which sums, and the constants that each text needs.

In every text a threadgroup is one row of simdgroups; y counts groups of blocks (or parts of blocks), z vectors times
splits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from impl.trellis.layout import BLOCK

if TYPE_CHECKING:
    from impl.trellis.variants import ProductShape

LANES: Final = 32
MATRIX_VECTORS: Final = 16
_MATRIX_COLUMNS: Final = 64
_TILES: Final = (1, 2, 4, 8)
_CPU: Final = "cpu"


@dataclass(frozen=True, slots=True)
class Launch:
    """`grid` and `threadgroup` in threads, and what a text needs beside T, K and CODEBOOK."""

    grid: tuple[int, int, int]
    threadgroup: tuple[int, int, int]
    template: tuple[tuple[str, int], ...] = ()


def _simdgroups(count: int, wanted: int, deep: int, *template: tuple[str, int]) -> Launch:
    """Share out `count` simdgroups to threadgroups of `wanted`, `deep` times."""
    size = min(wanted, count)
    return Launch((LANES * size, -(-count // size), deep), (LANES * size, 1, 1), template)


def blocks(shape: ProductShape, backend: str) -> Launch:
    """Return a simdgroup a block; threadgroups are small, since nothing is shared."""
    return _simdgroups(shape.layout.blocks, 1 if backend == _CPU else 2, shape.batch * shape.splits)


def hoisted_blocks(shape: ProductShape, backend: str) -> Launch:
    """Return a simdgroup a block with the words of several rows loaded ahead."""
    size, rows = (1, 2) if backend == _CPU else (2, 8)
    return _simdgroups(shape.layout.blocks, size, shape.batch * shape.splits, ("ROWS", rows))


def pairs(shape: ProductShape, backend: str) -> Launch:
    """Return a simdgroup for two blocks, with the words of several rows loaded ahead.

    Nothing is shared, so a threadgroup is one simdgroup: on an H200 two of them take a tenth longer.
    """
    rows = 2 if backend == _CPU else 4
    return _simdgroups(shape.layout.blocks // 2, 1, shape.batch * shape.splits, ("ROWS", rows))


def staged_blocks(shape: ProductShape, backend: str) -> Launch:
    """Return simdgroups that share the factors of up to 512 rows."""
    size, rows = (8, 2) if backend == _CPU else (4, 8)
    return _simdgroups(shape.layout.blocks, size, shape.batch * shape.splits, ("ROWS", rows), ("STAGED", 512))


def wide_blocks(shape: ProductShape, backend: str) -> Launch:
    """Return many simdgroups a threadgroup, since each threadgroup fills a table."""
    del backend
    return _simdgroups(shape.layout.blocks, 8, shape.batch * shape.splits, ("L", shape.layout.state_bits))


def tiles(shape: ProductShape, backend: str) -> Launch:
    """Return a simdgroup a block and tile of vectors."""
    tile = next((size for size in _TILES if size >= shape.batch), _TILES[-1])
    groups = -(-shape.batch // tile)
    return _simdgroups(shape.layout.blocks, 1 if backend == _CPU else 2, groups * shape.splits, ("TILE", tile))


def runs(shape: ProductShape, backend: str) -> Launch:
    """Return a simdgroup for eight columns."""
    del backend
    return _simdgroups(shape.layout.blocks * (BLOCK // 8), 4, shape.batch * shape.splits)


def strips(shape: ProductShape, backend: str) -> Launch:
    """Return a simdgroup for 64 columns of 16 vectors."""
    del backend
    groups = -(-shape.batch // MATRIX_VECTORS)
    count = shape.layout.columns // _MATRIX_COLUMNS
    return _simdgroups(count, 4, groups * shape.splits, ("SIMDGROUPS", min(4, count)))


def matrix_runs(shape: ProductShape, backend: str) -> Launch:
    """Return a thread for eight columns of one row of the matrix."""
    del backend
    eights = shape.layout.columns // 8
    return Launch((eights, shape.layout.rows, 1), (min(256, eights), 1, 1))
