"""Which variant and how many splits to use for a product: what was measured (`choices.json`), else what always works.

`python -m impl.trellis.tune` measures on the machine at hand and writes the file.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from impl.trellis.errors import TrellisVariantError
from impl.trellis.variants import ANYTHING, FALLBACK, VARIANTS_BY_NAME, ProductShape

if TYPE_CHECKING:
    from impl.trellis.layout import TrellisFormat

FILE: Final = Path(__file__).parent / "choices.json"
# A measurement speaks for matrices of up to so many times the size, and so many times as many vectors.
_NEAR: Final = 4.0
_NEAR_BATCH: Final = 2.0
_SIMDGROUPS: Final = {"cpu": 64}
_GPU_SIMDGROUPS: Final = 2048
_FEWEST_ROWS: Final = 32


@dataclass(frozen=True, slots=True)
class Choice:
    """What to use."""

    variant: str
    splits: int


@dataclass(frozen=True, slots=True)
class Measured:
    """The fastest variant that was found for one shape on one backend."""

    backend: str
    device: str
    bits: int
    rows: int
    columns: int
    batch: int
    variant: str
    splits: int

    def distance(self, layout: TrellisFormat, batch: int) -> float | None:
        """Return how far this shape is from another one, None: too far to say anything of it."""
        size = abs(math.log(layout.rows * layout.columns / (self.rows * self.columns)))
        vectors = abs(math.log(batch / self.batch))
        near = layout.bits == self.bits and size <= math.log(_NEAR) and vectors <= math.log(_NEAR_BATCH)
        return size + vectors if near else None


def choose(layout: TrellisFormat, batch: int, backend: str, variant: str | None = None) -> Choice:
    """Return what to use for `batch` vectors on `backend`, or how many splits for a `variant` that is given.

    What was measured nearest counts, where it applies; else `balanced`, and plain operations where that does not
    apply either.
    """
    entries = [
        entry for entry in measured() if entry.backend == backend and entry.variant == (variant or entry.variant)
    ]
    far = [(entry.distance(layout, batch), entry) for entry in entries]
    for _, entry in sorted(((at, entry) for at, entry in far if at is not None), key=lambda item: item[0]):
        splits = min(entry.splits, layout.rows)
        if _applies(entry.variant, ProductShape(layout, batch, splits)):
            return Choice(entry.variant, splits)
    splits = usual_splits(layout, batch, backend)
    if variant is not None:
        return Choice(variant, splits)
    names = (FALLBACK, "lookup", ANYTHING)
    return Choice(next(name for name in names if _applies(name, ProductShape(layout, batch, splits))), splits)


def usual_splits(layout: TrellisFormat, batch: int, backend: str) -> int:
    """Return so many splits that there is work for the whole device, while a split keeps at least 32 rows."""
    wanted = _SIMDGROUPS.get(backend, _GPU_SIMDGROUPS) / (layout.blocks * batch)
    most = max(1, layout.rows // _FEWEST_ROWS)
    return int(min(max(1, 2 ** math.ceil(math.log2(max(wanted, 1)))), most))


def _applies(variant: str, shape: ProductShape) -> bool:
    # Precision is given up only by who asks for it.
    found = VARIANTS_BY_NAME.get(variant)
    return found is not None and found.rounding != "offset" and found.reason(shape) is None


@lru_cache(maxsize=1)
def measured() -> tuple[Measured, ...]:
    """Return what `choices.json` holds; none without it. Raises TrellisVariantError for a file that can't be read."""
    if not FILE.exists():
        return ()
    try:
        return tuple(Measured(**entry) for entry in json.loads(FILE.read_text(encoding="utf-8")))
    except (TypeError, ValueError) as error:
        raise TrellisVariantError(
            f"{FILE} can't be read ({error}); write it anew: python -m impl.trellis.tune"
        ) from None


def merged(old: tuple[Measured, ...], new: list[Measured]) -> list[Measured]:
    """Return the old entries with new ones in the place of those for the same backend and shape."""

    def shape(entry: Measured) -> tuple[object, ...]:
        return entry.backend, entry.bits, entry.rows, entry.columns, entry.batch

    entries = {shape(entry): entry for entry in (*old, *new)}
    return [entries[key] for key in sorted(entries, key=str)]


def written(entries: list[Measured]) -> str:
    """Return the text of a table: one line an entry, so that changes are read line by line."""
    lines = ",\n".join(f"  {json.dumps(asdict(entry))}" for entry in entries)
    return f"[\n{lines}\n]\n" if lines else "[]\n"
