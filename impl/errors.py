"""Errors of the reference implementation: one base, one class per reason a caller may want to catch."""


class ImplError(Exception):
    """Base of every error that the reference implementation raises on purpose."""


class AffineError(ImplError, ValueError):
    """A tensor, a group size or a number of bits that affine quantization cannot take."""


class AttentionError(ImplError, ValueError):
    """Queries, keys, values and mask that do not belong together."""


class RingError(ImplError, ValueError):
    """An operation that a ring refuses; the ring is as it was before the call."""


class RingShapeError(RingError):
    """Blocks, planes or position state of the wrong shape, type or row count."""


class SinksUnsupportedError(RingError):
    """Attention sinks (``keep > 0``) were asked of a ring that has none."""


class PendingPrefillError(RingError):
    """A padded prefill is open, and the operation needs it finished (or not started twice)."""


class HistoryLostError(RingError):
    """The result would need tokens that the ring no longer holds."""


class MergeError(RingError):
    """Rows that cannot share one batch: other window, type, head count or precision."""


class RowIndexError(ImplError, IndexError):
    """A row number outside the batch, or one named twice."""


class RoundError(ImplError, RuntimeError):
    """A speculative round is open where none may be, or none is open where one must be."""


class AlreadyAffineError(ImplError, TypeError):
    """An affine ring was asked to become affine."""
