"""What an implementation under test has to offer, per kind, and the arrays that travel.

A subject gets NumPy arrays (bfloat16 as `ml_dtypes.bfloat16`) and returns NumPy arrays. It never sees an expected
answer. Every method has a default that says "unsupported", so that a subject offers just what it has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray


class Unsupported(Exception):  # noqa: N818 - an outcome, not an error
    """The subject does not offer what is asked; the text says why ("keeps no sinks after a merge")."""


class Refused(Exception):  # noqa: N818 - an outcome, not an error
    """The subject declined an operation and says that it left its state alone; the text is its reason."""


@dataclass(frozen=True)
class PlainArrays:
    """Keys or values as they are: `data` [rows, kv_heads, columns, head_dim]."""

    data: NDArray[np.generic]


@dataclass(frozen=True)
class AffineArrays:
    """Affine-quantized planes: `packed` uint32 [..., head_dim * bits / 32], `scales`, `biases` [..., head_dim / group].

    For keys and values the leading axes are [rows, kv_heads, columns].
    """

    packed: NDArray[np.uint32]
    scales: NDArray[np.generic]
    biases: NDArray[np.generic]
    group_size: int
    bits: int


Arrays = PlainArrays | AffineArrays
Mask = Literal["causal"] | None | "NDArray[np.generic]"


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


@dataclass(frozen=True)
class AffineStorage:
    """Storage by groups of `group_size` channels with `bits` bits a channel."""

    bits: int
    group_size: int


@dataclass(frozen=True)
class RingSpec:
    """The cache that a case asks for. `window` None: a full cache. `storage` None: plain.

    `chunked`: the cache keeps the newest `window` tokens before an update, and then shows those and the update's.
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


@dataclass(frozen=True)
class HandedOut:
    """An array that was given to or received from the subject: what it held then, and what it holds now."""

    label: str
    then: NDArray[np.generic]
    now: NDArray[np.generic]


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

    def donor(self, window: int | None) -> Answer:
        """Show what the cache lends to a layer that has only queries."""
        raise Unsupported("donor")

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

    def timed(self, operation: str, blocks: Sequence[Block]) -> Callable[[int], None]:
        """Return a function of a call number that does `operation` once, evaluated, for the clock."""
        raise Unsupported(f"timing of {operation}")


@dataclass(frozen=True)
class Block:
    """Input of one timed call: keys, values and queries [rows, heads, tokens, dim]."""

    keys: NDArray[np.generic]
    values: NDArray[np.generic]
    queries: NDArray[np.generic]


class Affine:
    """Affine quantization under test (kind `affine`)."""

    def quantize(self, x: NDArray[np.generic], group_size: int, bits: int) -> AffineArrays:
        """Quantize `x` [..., n] by groups along the last axis."""
        raise Unsupported("quantize")

    def dequantize(self, planes: AffineArrays) -> NDArray[np.generic]:
        """Return [..., n] in the dtype of the scales."""
        raise Unsupported("dequantize")

    def matmul(self, x: NDArray[np.generic], planes: AffineArrays, *, transpose: bool) -> NDArray[np.generic]:
        """Return x @ W.T (`transpose`) or x @ W, W the dequantized planes."""
        raise Unsupported("quantized matmul")

    def timed(
        self, operation: str, x: NDArray[np.generic], planes: AffineArrays, *, transpose: bool
    ) -> Callable[[int], None]:
        """Return a function of a call number that does `operation` once, evaluated, for the clock."""
        raise Unsupported(f"timing of {operation}")


@dataclass(frozen=True)
class TrellisSpec:
    """A trellis-coded matrix [rows, columns], and how its `codes` (uint32 words) are read.

    Each row has columns / block blocks, each a bit string of block * bits bits: bit p is bit p mod 32 of word
    p div 32. Column t of a block has the state made of the `state_bits` bits from (block - 1 - t) * bits on, lowest
    first; after the last bit of a block comes its first. The weight is the state's value in `codebook` (`1mad`,
    `2mad`, `mul1`, `3inst`, `mcg`; formulas in `harness.baseline.trellis`), float32, times the scale of its row.
    Codes are words [rows][blocks][words of a block], or, with `interleave`, [blocks / 2][rows][2][words of a block].
    """

    rows: int
    columns: int
    bits: int
    state_bits: int
    block: int
    codebook: str
    interleave: bool


class Trellis:
    """Trellis-quantized matrices under test (kind `trellis`). Arrays that it is given can't be written to."""

    def states(self, spec: TrellisSpec, codes: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """Return the state of every weight, [rows, columns]; `codes` is the flat word array in the layout of `spec`."""
        raise Unsupported("trellis states")

    def decode(self, spec: TrellisSpec, codes: NDArray[np.uint32], scales: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the matrix [rows, columns]: values rounded to float32, then times the scale [rows] of their row."""
        raise Unsupported("trellis decoding")

    def gemv(
        self,
        spec: TrellisSpec,
        codes: NDArray[np.uint32],
        scales: NDArray[np.float32],
        x: NDArray[np.generic],
        *,
        splits: int,
    ) -> NDArray[np.float32]:
        """Return x @ matrix, float32 [batch, columns], for `x` [batch, rows], summed in `splits` parts of rows.

        A part has ceil(rows / splits) rows, the last ones fewer or none; their float32 sums are added in order.
        """
        raise Unsupported("trellis products")

    def timed(
        self,
        operation: str,
        spec: TrellisSpec,
        codes: NDArray[np.uint32],
        scales: NDArray[np.float32],
        x: NDArray[np.generic],
        *,
        splits: int,
    ) -> Callable[[int], None]:
        """Return a function of a call number that does `operation` once, evaluated, for the clock."""
        raise Unsupported(f"timing of {operation}")


class Subject:
    """An implementation under test. Subclass it, name it, and override the kinds that it has.

    `capabilities` answers `requires:` of case files (`sinks`, `rows`, ...). `package` is the distribution whose
    version is recorded.
    """

    name: ClassVar[str] = ""
    package: ClassVar[str | None] = None
    capabilities: ClassVar[frozenset[str]] = frozenset()

    def ring(self, spec: RingSpec) -> Ring:
        """Return an empty cache as `spec` asks for; raise Unsupported with the reason where there is none."""
        raise Unsupported("kind ring")

    def affine(self) -> Affine:
        """Return the subject's affine quantization."""
        raise Unsupported("kind affine")

    def trellis(self) -> Trellis:
        """Return the subject's trellis kernels."""
        raise Unsupported("kind trellis")

    def versions(self) -> dict[str, str]:
        """Versions that explain a result, for the record."""
        from importlib.metadata import PackageNotFoundError, version

        found = {}
        for package in filter(None, (self.package, "mlx")):
            try:
                found[package] = version(package)
            except PackageNotFoundError:
                continue
        return found

    @classmethod
    def kinds(cls) -> frozenset[str]:
        """Kinds that this subject overrides."""
        return frozenset(
            kind for kind in ("ring", "affine", "trellis") if getattr(cls, kind) is not getattr(Subject, kind)
        )
