"""Errors of trellis-coded matrices, one class per reason a caller may want to catch."""

from impl.errors import ImplError


class TrellisError(ImplError, ValueError):
    """Base of every refusal of this package."""


class TrellisFormatError(TrellisError):
    """A number of bits, state bits, rows or splits, a block length or a codebook that does not exist."""


class UnevenColumnsError(TrellisError):
    """The columns do not fill whole blocks."""


class OddBlocksError(TrellisError):
    """An interleaved layout pairs the blocks of a row, and one block has no partner."""


class TrellisShapeError(TrellisError):
    """Codes, scales, symbols or vectors whose shape or type does not belong to the format."""
