"""Kind `ring`: one KV cache, solo or of several rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from harness.subjects.protocol.outcomes import Unsupported

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from harness.subjects.protocol.arrays import AffineStorage, Arrays
    from harness.subjects.protocol.timed import TimedCall


@dataclass(frozen=True)
class Answer:
    """What an update showed.

    `keys` and `values` are what attention would read, `mask` which of their columns each query sees: None (all),
    "causal" (the block's queries are the newest columns), or an array that broadcasts to
    [rows, heads, queries, columns] (boolean, or additive). `output` [rows, query_heads, queries, value_dim] is the
    subject's own attention over exactly these; None where the subject has no attention.
    """

    keys: Arrays
    values: Arrays
    mask: Literal["causal"] | NDArray[np.generic] | None
    output: NDArray[np.generic] | None


Layout = Literal["ring", "aligned", "affine", "speculative-affine"]

# What a case may pin of the reference's layout and policy, by name.
Pinned = int | float | bool | str | list[int]


@dataclass(frozen=True)
class RingSpec:
    """The cache that a case asks for. `window` None: a full cache. `storage` None: plain.

    `chunked`: the cache keeps the newest `window` tokens before an update, and then shows those and the update's.
    `layout`: how rows are stored, where a subject has several ways (`ring`: its usual one). `crossing`, one number a
    row: it is plain until it has that many tokens, then as `storage` says; tokens of an open round do not count, nor
    does padding. Empty: rows are stored as `storage` says from the beginning.
    """

    window: int | None
    rows: int
    kv_heads: int
    query_heads: int
    head_dim: int
    value_dim: int
    dtype: str
    storage: AffineStorage | None
    sinks: int
    chunked: bool = False
    layout: Layout = "ring"
    crossing: tuple[int, ...] = ()


@dataclass(frozen=True)
class HandedOut:
    """An array that was given to or received from the subject: what it held then, and what it holds now."""

    label: str
    then: NDArray[np.generic]
    now: NDArray[np.generic]


class Donor:
    """Keys and values that a cache lent at some moment. What happens to the cache later must not change them."""

    def look(self, window: int | None, queries: NDArray[np.generic] | None) -> Answer:
        """Show what a layer of this window sees (None: everything lent), without storing anything.

        `queries` [rows, query_heads, tokens, head_dim]; None: no output is asked for, the mask is that of one token.
        """
        raise Unsupported("looking at a donor")

    def offsets(self) -> list[int] | None:
        """Positions of the next token of each row when the cache lent them, or None where the subject doesn't tell."""
        return None

    def pinned(self) -> dict[str, Pinned]:
        """Return what a case may pin of the loan."""
        raise Unsupported("pins")


class Ring:
    """One cache under test (kind `ring`). Steps of a case call the methods of the same name, in order."""

    def append(
        self, keys: NDArray[np.generic], values: NDArray[np.generic], queries: NDArray[np.generic] | None
    ) -> Answer:
        """Take a block [rows, kv_heads, tokens, head_dim] for every row and show what its queries may see.

        `queries` [rows, query_heads, tokens, head_dim] where attention is looked at; None: no output is asked for.
        """
        raise Unsupported("append")

    def trim(self, tokens: int) -> int:
        """Forget the newest `tokens` tokens of every row; return how many were forgotten."""
        raise Unsupported("trim")

    def begin(self) -> None:
        """Open a speculative round."""
        raise Unsupported("speculative rounds")

    def commit(self) -> None:
        """Accept everything written in the round."""
        raise Unsupported("speculative rounds")

    def rollback(self, keep: Sequence[int]) -> None:
        """Keep the first `keep[row]` tokens written in the round, drop the others, and close the round."""
        raise Unsupported("speculative rounds")

    def prepare(self, lengths: Sequence[int], left: Sequence[int], right: Sequence[int]) -> None:
        """Announce a padded prefill.

        `lengths`: input columns up to each row's last real token, left padding included; `left`, `right`: padding
        columns in front of and behind it. The blocks that follow come by `append`.
        """
        raise Unsupported("padded prefill")

    def finalize(self) -> None:
        """Close the padded prefill."""
        raise Unsupported("padded prefill")

    def merge(self, others: Sequence[Ring]) -> Ring:
        """Return one batch made of `others`, solo caches of which this is the first; they are not used again."""
        raise Unsupported("merge")

    def extend(self, other: Ring) -> None:
        """Add the rows of another batch."""
        raise Unsupported("extend")

    def filter(self, rows: Sequence[int]) -> None:
        """Keep these rows, in this order."""
        raise Unsupported("filter")

    def extract(self, row: int, limit: int | None) -> Ring:
        """Return one row as a solo cache, holding at most `limit` tokens."""
        raise Unsupported("extract")

    def quantize(self, bits: int, group_size: int) -> Ring:
        """Return the cache with affine storage."""
        raise Unsupported("quantize")

    def copy(self) -> Ring:
        """Return an independent copy."""
        raise Unsupported("copy")

    def save_load(self) -> Ring:
        """Write the cache to a file by the subject's own means and return what is read back."""
        raise Unsupported("save and load")

    def quantize_rows(self, rows: Sequence[int], bits: int, group_size: int) -> Ring:
        """Return the cache with affine storage for these rows alone."""
        raise Unsupported("quantize of single rows")

    def donor(self, *, decoded: bool) -> Donor:
        """Return what the cache lends to layers that have only queries; `decoded`: as plain arrays in any case."""
        raise Unsupported("donor")

    def pinned(self) -> dict[str, Pinned]:
        """Return what a case may pin: layout and policy, right or wrong for this subject alone."""
        raise Unsupported("pins")

    def offsets(self) -> list[int] | None:
        """Positions advanced per row, or None where the subject does not tell."""
        return None

    def rope_offsets(self) -> list[int] | None:
        """Positions with which rotary embeddings of the next block begin, or None where the subject keeps none."""
        return None

    def remarks(self) -> list[str]:
        """Return what a reader of evidence should know ("is_trimmable() said no before trim(3), which returned 3")."""
        return []

    def handed_out(self) -> list[HandedOut] | None:
        """Every array that crossed the border so far, or None where the subject keeps no book of them."""
        return None

    def timed(self, operation: str, blocks: Sequence[Block]) -> TimedCall:
        """Return what does `operation` once a call, for the clock (`protocol.timed`); each call returns an Answer.

        Call n writes or asks with block n modulo their number. `append` and `decode` write it, and answer without an
        output; `attention` asks over what one update with the first block showed. Of a loan, `lend` takes one, and
        `attend` asks it for the window of the cache.
        """
        raise Unsupported(f"timing of {operation}")


@dataclass(frozen=True)
class Block:
    """Input of one timed call: keys, values and queries [rows, heads, tokens, dim]."""

    keys: NDArray[np.generic]
    values: NDArray[np.generic]
    queries: NDArray[np.generic]
