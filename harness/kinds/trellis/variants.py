"""Names of variants, to tell a misspelled one from one that another subject has."""

from __future__ import annotations

from typing import Final

# Every variant that the subject offers and that applies.
ALL: Final = "all"
# Those of the reference (`impl.trellis.variants`); a test keeps them the same.
KNOWN_VARIANTS: Final = (
    "balanced",
    "balanced-rows",
    "dequantize",
    "folded",
    "folded-offset",
    "folded-pairs",
    "folded-staged",
    "gather",
    "lookup",
    "matrix",
    "operations",
    "tiled",
    "word-per-lane",
)
