"""Kind `recurrent`: caches of layers that carry a state instead of keys and values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from harness.subjects.protocol.outcomes import Unsupported

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from harness.subjects.protocol.ring import HandedOut
    from harness.subjects.protocol.timed import TimedCall


@dataclass(frozen=True, eq=False)
class RecurrentWeights:
    """Weights of a layer: `conv` [channels, kernel] in the case's dtype, `skip` [heads] (ssm), `rate` [heads] (ssm).

    With `rate`, every decay is exp(-rate * gate) to float32; None: decays come with the blocks and follow no rule.
    """

    conv: NDArray[np.generic]
    skip: NDArray[np.float32]
    rate: NDArray[np.float32] | None


@dataclass(frozen=True)
class RecurrentSpec:
    """The recurrent cache that a case asks for, and the layer that it belongs to.

    A layer convolves its channels, each by itself: output t is the sum over i of conv[channel, i] * input of token
    t - kernel + 1 + i, with zeros before the first token and without an activation. Then, head by head with its state
    S [value_dim, key_dim], for every token:

    - `gated-delta`, channels (queries, keys [heads * key_dim], values [heads * value_dim]):
      S = decay S; S = S + gate (value - S key) key^T; output S query.
    - `ssm`, channels (x [heads * value_dim], B [key_dim], C [key_dim]):
      S = decay S + gate x B^T; output S C + skip x.
    """

    rows: int
    layer: Literal["gated-delta", "ssm"]
    kernel: int
    heads: int
    key_dim: int
    value_dim: int
    dtype: str
    weights: RecurrentWeights


@dataclass(frozen=True)
class RecurrentBlock:
    """One chunk: `inputs` [rows, columns, channels] in the case's dtype; `decay` and `gate` [rows, columns, heads].

    In an open prefill some columns are padding and hold anything.
    """

    inputs: NDArray[np.generic]
    decay: NDArray[np.float32]
    gate: NDArray[np.float32]


@dataclass(frozen=True)
class RecurrentAnswer:
    """What a chunk showed; None where the subject does not tell.

    `mask`: bool [rows, columns], true for tokens, or "all". `lengths`: per row, the columns of this chunk up to the
    row's last token, from where the convolution's state is taken. `counts`: tokens of each row among the columns.
    `output` [rows, columns, heads, value_dim] in the case's dtype; what stands at padding does not matter.
    """

    mask: Literal["all"] | NDArray[np.generic] | None = None
    lengths: Sequence[int] | None = None
    counts: Sequence[int] | None = None
    output: NDArray[np.generic] | None = None


class Recurrent:
    """One recurrent cache under test (kind `recurrent`). Steps of a case call the methods of the same name."""

    def update(self, block: RecurrentBlock) -> RecurrentAnswer:
        """Take one chunk for every row, and show how it was masked and what came out."""
        raise Unsupported("update")

    def prepare(self, lengths: Sequence[int], left: Sequence[int], right: Sequence[int]) -> None:
        """Announce a padded prefill.

        `lengths`: input columns up to each row's last token, left padding included; `left`, `right`: padding columns
        in front of and behind the tokens.
        """
        raise Unsupported("padded prefill")

    def finalize(self) -> None:
        """Close the padded prefill."""
        raise Unsupported("padded prefill")

    def begin(self) -> None:
        """Open a speculative round."""
        raise Unsupported("speculative rounds")

    def commit(self) -> None:
        """Accept everything written in the round."""
        raise Unsupported("speculative rounds")

    def rollback(self, keep: Sequence[int]) -> None:
        """Keep the first `keep[row]` tokens written in the round, and close it."""
        raise Unsupported("speculative rounds")

    def trim(self, tokens: int) -> int:
        """Forget the newest `tokens` tokens of every row; return how many were forgotten."""
        raise Unsupported("trim")

    def merge(self, others: Sequence[Recurrent]) -> Recurrent:
        """Return one batch made of `others`, solo caches of which this is the first; they are not used again."""
        raise Unsupported("merge")

    def extend(self, other: Recurrent) -> None:
        """Add the rows of another batch."""
        raise Unsupported("extend")

    def filter(self, rows: Sequence[int]) -> None:
        """Keep these rows, in this order."""
        raise Unsupported("filter")

    def extract(self, row: int) -> Recurrent:
        """Return one row as a solo cache, in an open prefill as it is by now and without what was announced."""
        raise Unsupported("extract")

    def copy(self) -> Recurrent:
        """Return an independent copy."""
        raise Unsupported("copy")

    def save_load(self) -> Recurrent:
        """Write the cache to a file by the subject's own means and return what is read back."""
        raise Unsupported("save and load")

    def conv_state(self) -> NDArray[np.generic] | None:
        """Return the inputs that the next convolution begins with [rows, kernel - 1, channels], or None."""
        return None

    def state(self) -> NDArray[np.generic] | None:
        """Return the states [rows, heads, value_dim, key_dim], or None where there are none (yet)."""
        return None

    def offsets(self) -> list[int] | None:
        """Return the tokens that each row has taken, or None where the subject does not tell."""
        return None

    def remarks(self) -> list[str]:
        """Return what a reader of evidence should know."""
        return []

    def timed(self, operation: str, blocks: Sequence[RecurrentBlock]) -> TimedCall:
        """Return what takes the next block each call, for the clock (`protocol.timed`).

        Call n takes block n, so there are no more calls than blocks; `operation` is `decode` where they have one
        column, else `update`. A call returns an answer with an output, and behind it, in a tuple, the states that the
        next call begins with: they are this call's work, too.
        """
        raise Unsupported(f"timing of {operation}")

    def handed_out(self) -> list[HandedOut] | None:
        """Every array that crossed the border so far, or None where the subject keeps no book of them."""
        return None
