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


class TrellisMatrixError(TrellisError):
    """A matrix that can't be encoded: not of numbers, not finite, or not of the shape of the format."""


class TrellisFileError(TrellisError):
    """A file that can't be read as what it should hold; its message names the file and what is wrong with it."""


class TrellisVersionError(TrellisFileError):
    """A file that was written in another version of the format."""


class TrellisVariantError(TrellisError):
    """A variant of a product that does not exist, or does not apply to a shape."""
