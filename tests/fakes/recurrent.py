"""A naive recurrent cache in NumPy that is right, and the same cache with one mistake each, for kind `recurrent`.

Each mistake is named with the case that must catch it.
"""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from harness.baseline.recurrent import Layer, Row, Token
from harness.subjects.protocol import HandedOut, Recurrent, RecurrentAnswer, Refused, Subject

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.subjects.protocol import RecurrentBlock, RecurrentSpec


class NaiveRecurrent(Recurrent):
    """Right in everything: one baseline row a request, fed with the tokens of its row."""

    def __init__(self, spec: RecurrentSpec, rows: int | None = None) -> None:
        self.spec = spec
        weights = spec.weights
        conv, skip = np.asarray(weights.conv).astype(np.float64), weights.skip.astype(np.float64)
        self.layer = Layer(spec.layer, spec.heads, spec.key_dim, spec.value_dim, conv, skip)
        count = spec.rows if rows is None else rows
        self.rows = [Row(self.layer) for _ in range(count)]
        # Per row the columns in front of the next token, and up to the last one; None: no prefill is open.
        self.left: list[int] | None = None
        self.ends: list[int] | None = None
        self.before: list[int] | None = None
        self.book: list[tuple[str, Any, Any]] = []

    def mask(self, tokens: int) -> Any:
        if self.left is None or self.ends is None:
            return np.ones((len(self.rows), tokens), bool)
        column = np.arange(tokens)[None]
        return (column >= np.array(self.left)[:, None]) & (column < np.array(self.ends)[:, None])

    def lengths(self, tokens: int) -> list[int]:
        return [tokens] * len(self.rows) if self.ends is None else [max(0, min(tokens, end)) for end in self.ends]

    def advance(self, tokens: int) -> None:
        if self.left is not None and self.ends is not None:
            self.left = [pad - tokens for pad in self.left]
            self.ends = [end - tokens for end in self.ends]

    def padding_comes(self, row: Row, token: Token) -> None:
        """Do what a column of padding does to a row: nothing."""

    def update(self, block: RecurrentBlock) -> RecurrentAnswer:
        count, tokens = block.inputs.shape[:2]
        mask, lengths = self.mask(tokens), self.lengths(tokens)
        output = np.zeros((count, tokens, self.spec.heads, self.spec.value_dim))
        for row, own in enumerate(self.rows):
            for column in range(tokens):
                arrays = (block.inputs, block.decay, block.gate)
                token = Token(*(np.asarray(array[row, column]).astype(np.float64) for array in arrays))
                if mask[row, column]:
                    output[row, column] = own.push(token)
                else:
                    self.padding_comes(own, token)
        self.advance(tokens)
        self.book += [("a mask", mask, mask.copy()), ("inputs", block.inputs, block.inputs.copy())]
        return RecurrentAnswer(mask, lengths, self.counts(mask), output.astype(block.inputs.dtype))

    def counts(self, mask: Any) -> list[int]:
        return [int(own.sum()) for own in mask]

    def prepare(self, lengths: Sequence[int], left: Sequence[int], right: Sequence[int]) -> None:
        assert len(right) == len(lengths)
        self.left, self.ends = list(left), list(lengths)

    def finalize(self) -> None:
        self.left = self.ends = None

    def begin(self) -> None:
        self.before = self.positions()

    def commit(self) -> None:
        self.before = None

    def rollback(self, keep: Sequence[int]) -> None:
        for row, then, kept in zip(self.rows, self.before or [], keep, strict=True):
            row.cut(then + kept)

    def trim(self, tokens: int) -> int:
        raise Refused(f"can't forget {tokens} tokens")

    def joined(self, others: Sequence[NaiveRecurrent]) -> None:
        for other in others:
            self.rows = [*self.rows, *other.rows]
            if self.left is not None and self.ends is not None:
                self.left = [*self.left, *(0 for _ in other.rows)]
                self.ends = [*self.ends, *(1000 for _ in other.rows)]

    def merge(self, others: Sequence[Recurrent]) -> Recurrent:
        batch = type(self)(self.spec, rows=0)
        batch.joined([other for other in others if isinstance(other, NaiveRecurrent)])
        return batch

    def extend(self, other: Recurrent) -> None:
        assert isinstance(other, NaiveRecurrent)
        self.joined([other])

    def filter(self, rows: Sequence[int]) -> None:
        self.rows = [self.rows[row] for row in rows]
        if self.left is not None and self.ends is not None:
            self.left, self.ends = [self.left[row] for row in rows], [self.ends[row] for row in rows]

    def extract(self, row: int) -> Recurrent:
        solo = type(self)(self.spec, rows=0)
        solo.rows = [self.rows[row]]
        return solo

    def copy(self) -> Recurrent:
        return deepcopy(self)

    def positions(self) -> list[int]:
        return [len(row.tokens) for row in self.rows]

    def offsets(self) -> list[int]:
        return self.positions()

    def conv_state(self) -> Any:
        return np.stack([row.conv_state() for row in self.rows]).astype(np.asarray(self.spec.weights.conv).dtype)

    def state(self) -> Any:
        return np.stack([row.state() for row in self.rows]).astype(np.float32)

    def handed_out(self) -> list[HandedOut]:
        return [HandedOut(label, then, now) for label, now, then in self.book]


class MaskForgetsLengths(NaiveRecurrent):
    def mask(self, tokens: int) -> Any:
        return super().mask(tokens) if self.left is None else np.arange(tokens)[None] >= np.array(self.left)[:, None]


class MaskForgetsLeft(NaiveRecurrent):
    def mask(self, tokens: int) -> Any:
        return super().mask(tokens) if self.ends is None else np.arange(tokens)[None] < np.array(self.ends)[:, None]


class MaskWithoutRows(NaiveRecurrent):
    """Right numbers, but a mask of one row for all where all are tokens."""

    def mask(self, tokens: int) -> Any:
        return super().mask(tokens)

    def update(self, block: RecurrentBlock) -> RecurrentAnswer:
        answer = super().update(block)
        assert not isinstance(answer.mask, str)
        assert answer.mask is not None
        mask = answer.mask[:1] if answer.mask.all() else answer.mask
        return RecurrentAnswer(mask, answer.lengths, answer.counts, answer.output)


class NeverAdvances(NaiveRecurrent):
    def advance(self, tokens: int) -> None:
        del tokens


class PaddingDecays(NaiveRecurrent):
    def padding_comes(self, row: Row, token: Token) -> None:
        decays = zip(row.states, token.decay, strict=True)
        row.states = [state * float(decay) for state, decay in decays]


class PaddingIsConvolved(NaiveRecurrent):
    def padding_comes(self, row: Row, token: Token) -> None:
        if row.window:
            row.window = [*row.window[1:], np.zeros_like(token.inputs)]


class LengthsUnclamped(NaiveRecurrent):
    def lengths(self, tokens: int) -> list[int]:
        return super().lengths(tokens) if self.ends is None else [min(tokens, end) for end in self.ends]


class CountsColumns(NaiveRecurrent):
    def counts(self, mask: Any) -> list[int]:
        return [mask.shape[1]] * len(mask)


class PaddingStaysOpen(NaiveRecurrent):
    def finalize(self) -> None:
        """Forget nothing."""


class FilterForgetsPadding(NaiveRecurrent):
    def filter(self, rows: Sequence[int]) -> None:
        left, ends = self.left, self.ends
        super().filter(rows)
        self.left, self.ends = left and left[: len(rows)], ends and ends[: len(rows)]


class JoinsWithLengthZero(NaiveRecurrent):
    def joined(self, others: Sequence[NaiveRecurrent]) -> None:
        super().joined(others)
        self.ends = self.ends and [0 if end == 1000 else end for end in self.ends]


class ExtractsWithPadding(NaiveRecurrent):
    def extract(self, row: int) -> Recurrent:
        solo = super().extract(row)
        assert isinstance(solo, NaiveRecurrent)
        solo.left, solo.ends = self.left and [self.left[row]], self.ends and [self.ends[row]]
        return solo


class ShallowCopy(NaiveRecurrent):
    def copy(self) -> Recurrent:
        twin = type(self)(self.spec, rows=0)
        twin.rows, twin.left, twin.ends = self.rows, self.left, self.ends
        return twin


class KeepsAll(NaiveRecurrent):
    def rollback(self, keep: Sequence[int]) -> None:
        del keep


class TrimsCounters(NaiveRecurrent):
    def trim(self, tokens: int) -> int:
        self.turned_back = tokens
        return tokens

    def offsets(self) -> list[int]:
        return [position - getattr(self, "turned_back", 0) for position in self.positions()]


class CountsTheMaskDown(NaiveRecurrent):
    def update(self, block: RecurrentBlock) -> RecurrentAnswer:
        if self.book:
            self.book[0][1][:] = False
        return super().update(block)


class MergesInReverse(NaiveRecurrent):
    def joined(self, others: Sequence[NaiveRecurrent]) -> None:
        super().joined(list(reversed(others)))


class WrongType(NaiveRecurrent):
    def state(self) -> Any:
        return super().state().astype(np.float16)


class Naive(Subject):
    """Opens caches of one class."""

    name: ClassVar[str] = "naive"

    def __init__(self, kind: type[NaiveRecurrent] = NaiveRecurrent) -> None:
        self.cache_class = kind

    def recurrent(self, spec: RecurrentSpec) -> Recurrent:
        return self.cache_class(spec)


# Mistakes, and the case that must catch each of them.
MISTAKES: dict[type[NaiveRecurrent], str] = {
    MaskForgetsLengths: "prefill-right-padded",
    MaskForgetsLeft: "prefill-left-padded",
    MaskWithoutRows: "prefill-without-padding",
    NeverAdvances: "prefill-in-chunks",
    PaddingDecays: "prefill-on-warm-rows",
    PaddingIsConvolved: "convolution-state-of-a-short-row",
    LengthsUnclamped: "row-ended-many-chunks-ago",
    CountsColumns: "prefill-with-a-row-without-tokens",
    PaddingStaysOpen: "prefill-turn-after-turn",
    FilterForgetsPadding: "filter-in-an-open-prefill",
    JoinsWithLengthZero: "extend-in-an-open-prefill",
    ExtractsWithPadding: "extract-in-an-open-prefill",
    ShallowCopy: "copy-of-a-cache",
    KeepsAll: "rollback-keeps-any-number-in-each-row",
    TrimsCounters: "state-refuses-to-trim",
    CountsTheMaskDown: "arrays-handed-out-do-not-change",
    MergesInReverse: "merge-rows-of-different-lengths",
    WrongType: "every-dtype",
}
