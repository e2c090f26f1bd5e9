"""The naive batch with one mistake each, and for each a shipped case that is there to catch it."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING

import numpy as np

from harness.subjects.protocol import Answer, Refused, Ring
from tests.fakes.batches import Array, NaiveBatch, NaiveRow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


class SharedCopy(NaiveBatch):
    """A copy that has the rows of the original."""

    def copy(self) -> Ring:
        return type(self)(self.spec, self.rows)


class FilterForgetsRound(NaiveBatch):
    """Leaves the beginning of the round where it was when rows go."""

    def filter(self, rows: Sequence[int]) -> None:
        began = [row.round_length for row in self.rows]
        super().filter(rows)
        for row, length in zip(self.rows, began, strict=False):
            row.round_length = length


class FilterForgetsPrefill(NaiveBatch):
    def filter(self, rows: Sequence[int]) -> None:
        real = self.real
        super().filter(rows)
        self.real = None if real is None else real[: len(rows)]


class FilterKeepsOrder(NaiveBatch):
    def filter(self, rows: Sequence[int]) -> None:
        super().filter(sorted(rows))


class StaleRope(NaiveBatch):
    """Makes rope offsets at each update and at no other time."""

    rope: list[int] | None = None

    def append(self, keys: Array, values: Array, queries: Array | None) -> Answer:
        answer = super().append(keys, values, queries)
        self.rope = self.offsets()
        return answer

    def rope_offsets(self) -> list[int] | None:
        return self.rope


class RefusedRollbackCuts(NaiveBatch):
    """Says no, and has cut the first row."""

    def rollback(self, keep: Sequence[int]) -> None:
        self.rows[0].cut(self.rows[0].round_length + keep[0])
        raise Refused("the tokens before are gone")


class RollbackByFirst(NaiveBatch):
    def rollback(self, keep: Sequence[int]) -> None:
        super().rollback([min(keep[0], row.length - row.round_length) for row in self.rows])


class PaddingIsTokens(NaiveBatch):
    """Takes every column of a padded prefill for a token."""

    def prepare(self, lengths: Sequence[int], left: Sequence[int], right: Sequence[int]) -> None:
        """Forget it."""


class LeftPaddingIsTokens(NaiveBatch):
    def prepare(self, lengths: Sequence[int], left: Sequence[int], right: Sequence[int]) -> None:
        super().prepare(lengths, [0] * len(left), right)


class PaddingGivesNan(NaiveBatch):
    """Lets a padding query see nothing."""

    def attend(self, queries: Array, keys: Array, values: Array, mask: Array) -> Array:
        out = super().attend(queries, keys, values, mask)
        blind = np.zeros_like(mask[..., :1]) if self.real is None else mask.all(-1, keepdims=True)
        return np.where(blind, np.array(np.nan, out.dtype), out)


class PaddingSeen(NaiveBatch):
    """Shows the column before a shorter row."""

    def mask(self, row: NaiveRow, real: Array, width: int) -> NDArray[np.bool_]:
        sees = super().mask(row, real, width)
        if row.length < width:
            sees[:, width - row.length - 1] = True
        return sees


class MaskOfFirstRow(NaiveBatch):
    def attend(self, queries: Array, keys: Array, values: Array, mask: Array) -> Array:
        return super().attend(queries, keys, values, np.broadcast_to(mask[:1], mask.shape))


class OffsetOfWidth(NaiveBatch):
    """Tells one position for all rows."""

    def offsets(self) -> list[int]:
        return [max(row.length for row in self.rows)] * len(self.rows)


class TrimPastEmpty(NaiveBatch):
    """Trims rows below nothing and counts on."""

    def trim(self, tokens: int) -> int:
        super().trim(min(tokens, *(row.length for row in self.rows)) if len(self.rows) > 1 else tokens)
        return tokens


class TrimFirstRow(NaiveBatch):
    def trim(self, tokens: int) -> int:
        self.rows[0].cut(self.rows[0].length - tokens)
        return tokens


class MergeReverses(NaiveBatch):
    def merge(self, others: Sequence[Ring]) -> Ring:
        return super().merge(others[::-1])


class MergeEncodesAgain(NaiveBatch):
    """Decodes quantized rows and quantizes the batch."""

    def merge(self, others: Sequence[Ring]) -> Ring:
        merged = super().merge(others)
        assert isinstance(merged, NaiveBatch)
        for row in merged.rows:
            for name, parts in row.planes.items():
                if len(parts) == 3 and row.length:
                    row.planes[name] = self.encode(merged.decoded(self.arrays(parts)).astype(parts[1].dtype))
        return merged


class ExtendInFront(NaiveBatch):
    def extend(self, other: Ring) -> None:
        assert isinstance(other, NaiveBatch)
        self.rows = [*other.rows, *self.rows]


class ExtractNext(NaiveBatch):
    def extract(self, row: int, limit: int | None) -> Ring:
        return super().extract((row + 1) % len(self.rows), limit)


class ExtractIgnoresLimit(NaiveBatch):
    def extract(self, row: int, limit: int | None) -> Ring:
        del limit
        return super().extract(row, None)


class QuantizeKeysOnly(NaiveBatch):
    """Makes the values of its keys."""

    def quantize(self, bits: int, group_size: int) -> Ring:
        other = super().quantize(bits, group_size)
        assert isinstance(other, NaiveBatch)
        for row in other.rows:
            row.planes = dict.fromkeys(row.planes, row.planes["keys"])
        return other


class SavedWithoutLast(NaiveBatch):
    """Writes all columns but the newest."""

    def save_load(self) -> Ring:
        other = deepcopy(self)
        for row in other.rows:
            row.cut(max(0, row.length - 1))
        return other


class SavedRowsAlike(NaiveBatch):
    """Forgets which row had how much padding."""

    def save_load(self) -> Ring:
        other = deepcopy(self)
        for row in other.rows:
            row.cut(min(each.length for each in self.rows))
        return other


class ChunkTrimsAll(NaiveBatch):
    """Drops all of the front when it is to drop what is beyond the chunk."""

    def near(self, row: NaiveRow, column: Array, query: Array) -> Array:
        window = self.spec.window or 0
        return super().near(row, column, query) & (column >= (row.length if row.length > window else 0))


class ChunkIsWindow(NaiveBatch):
    """Slides through a block like a ring."""

    def near(self, row: NaiveRow, column: Array, query: Array) -> Array:
        return super().near(row, column, query) & (column > query - (self.spec.window or 0))


class NoSinks(NaiveBatch):
    def near(self, row: NaiveRow, column: Array, query: Array) -> Array:
        return (column > query - (self.spec.window or 0)) & (column >= row.first)


class SinksHiddenFromBlock(NaiveBatch):
    """Slides its mask over the sinks for the later queries of a block."""

    def near(self, row: NaiveRow, column: Array, query: Array) -> Array:
        later = (query > row.length) & (query >= (self.spec.window or 0))
        return super().near(row, column, query) & ~(later & (column < self.spec.sinks))


class SinksEvictedByBlock(NaiveBatch):
    """Loses the sinks in the tokens after a block that crossed the window."""

    gone = False

    def near(self, row: NaiveRow, column: Array, query: Array) -> Array:
        crosses = len(query) > 1 and query.max() >= (self.spec.window or 0)
        self.gone = self.gone or crosses
        hidden = self.spec.sinks if self.gone and not crosses else 0
        return super().near(row, column, query) & (column >= hidden)


class SinksLostByTrim(NaiveBatch):
    trimmed = False

    def trim(self, tokens: int) -> int:
        self.trimmed = True
        return super().trim(tokens)

    def near(self, row: NaiveRow, column: Array, query: Array) -> Array:
        return super().near(row, column, query) & (column >= (self.spec.sinks if self.trimmed else 0))


class SinksCountTwice(NaiveBatch):
    """Shows a whole window besides the sinks."""

    def near(self, row: NaiveRow, column: Array, query: Array) -> Array:
        return super().near(row, column, query) | (column > query - (self.spec.window or 0))


# Each mistake, and a case that is there to catch it.
BATCH_MISTAKES: dict[str, tuple[type[NaiveBatch], str]] = {
    "a copy that shares its rows": (SharedCopy, "copy-of-a-batch"),
    "a copy of one ring that shares": (SharedCopy, "copy-of-a-ring"),
    "filter forgets the open round": (FilterForgetsRound, "filter-in-an-open-round"),
    "filter forgets the open prefill": (FilterForgetsPrefill, "filter-in-an-open-prefill"),
    "filter keeps the old order": (FilterKeepsOrder, "filter-keeps-rows-in-the-order-asked"),
    "stale rope offsets": (StaleRope, "rollback-keeps-any-number-in-each-row"),
    "a refused rollback that changed a row": (RefusedRollbackCuts, "rollback-past-what-is-held"),
    "one rollback for all rows": (RollbackByFirst, "rollback-across-the-window"),
    "padding is tokens": (PaddingIsTokens, "prefill-right-padded"),
    "left padding is tokens": (LeftPaddingIsTokens, "prefill-left-padded"),
    "padding queries give NaN": (PaddingGivesNan, "padding-queries-give-finite-answers"),
    "padding is seen": (PaddingSeen, "merge-rows-of-different-lengths"),
    "the mask of the first row": (MaskOfFirstRow, "batch-shares-key-heads"),
    "one position for all rows": (OffsetOfWidth, "batch-decodes-past-the-window"),
    "a trim that gives less and claims all": (TrimPastEmpty, "trim-more-than-the-shortest-row-holds"),
    "a trim of one row": (TrimFirstRow, "trim-a-batch"),
    "merge turns rows round": (MergeReverses, "merge-five-rows-of-every-kind"),
    "merge encodes again": (MergeEncodesAgain, "merge-quantized-rows"),
    "extend puts rows in front": (ExtendInFront, "extend-by-a-longer-or-shorter-batch"),
    "extract takes the next row": (ExtractNext, "extract-each-row"),
    "extract ignores its limit": (ExtractIgnoresLimit, "extract-with-a-limit"),
    "values quantized from keys": (QuantizeKeysOnly, "quantize-a-ring"),
    "the newest column is not saved": (SavedWithoutLast, "saved-ring-goes-on"),
    "the newest column of a cache is not saved": (SavedWithoutLast, "saved-full-cache-goes-on"),
    "rows are saved alike": (SavedRowsAlike, "saved-batch-goes-on"),
    "saved rows alike, filtered": (SavedRowsAlike, "saved-batch-works-on"),
    "a chunked cache drops everything": (ChunkTrimsAll, "chunked-cache-drops-its-front"),
    "a chunked cache slides": (ChunkIsWindow, "chunked-cache-takes-blocks"),
    "a chunked cache copied by sharing": (SharedCopy, "chunked-cache-is-copied-and-saved"),
    "no sinks": (NoSinks, "sinks-stay-while-the-ring-turns"),
    "no sinks when the buffer has grown": (NoSinks, "sinks-while-the-buffer-grows"),
    "sinks besides a whole window": (SinksCountTwice, "sinks-stay-while-the-ring-turns"),
    "sinks hidden within a block": (SinksHiddenFromBlock, "sinks-seen-by-every-query-of-a-block"),
    "sinks lost by a block": (SinksEvictedByBlock, "sinks-after-a-block"),
    "sinks lost by a trim": (SinksLostByTrim, "sinks-and-a-trim"),
}
