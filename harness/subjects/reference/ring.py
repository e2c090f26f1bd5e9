"""The rings of `impl` behind the protocol of kind `ring`: solo rings for one request, batched ones for several.

Other ways to store the rows of a batch are in `groups`. A round on a batched ring is `rollback_rotating_ring` from the
offsets at its beginning, or the speculative ring's own where storage is plain. A solo ring has no rounds; there a
rollback is a trim of what was not kept.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlx.core as mx

from harness.subjects.arrays import to_mlx, to_numpy
from harness.subjects.mlx_ring import Apart, MlxRing, flat
from harness.subjects.protocol import (
    AffineArrays,
    AffineStorage,
    Answer,
    Donor,
    PlainArrays,
    Ring,
    RowsApart,
    Unsupported,
)
from impl.affine import AffinePlanes
from impl.attention import AttentionView, attend
from impl.rings.batched import BatchedRotatingQuantCache
from impl.rings.donor import capture_rotating_donor_attention
from impl.rings.position import UNBOUNDED
from impl.rings.solo import RotatingKVCache, RotatingQuantizedKVCache
from impl.rings.speculative import SpeculativeRotatingKVCache
from impl.rings.transaction import rollback_rotating_ring
from impl.saving import load_cache, save_cache

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from harness.subjects.protocol import Block, Pinned, RingSpec, TimedCall
    from impl.attention import Tensor
    from impl.rings.donor import DonorAttention


def open_ring(spec: RingSpec) -> Ring:
    """Return an empty ring as `spec` asks for; raises Unsupported for sinks and chunked caches."""
    if spec.sinks:
        raise Unsupported("these rings keep no sinks")
    if spec.chunked:
        raise Unsupported("there is no chunked cache here")
    size = UNBOUNDED if spec.window is None else spec.window
    if spec.crossing or (spec.layout != "ring" and spec.rows > 1):
        from harness.subjects.reference.groups import open_group

        return open_group(spec, size)
    cache: Any
    if spec.rows == 1:
        if spec.storage is None:
            cache = RotatingKVCache(size)
        else:
            cache = RotatingQuantizedKVCache(size, spec.storage.group_size, spec.storage.bits)
    elif spec.storage is None:
        cache = SpeculativeRotatingKVCache(size, [0] * spec.rows)
    else:
        cache = BatchedRotatingQuantCache(size, spec.storage.group_size, spec.storage.bits, [0] * spec.rows)
    return ReferenceRing(cache, spec)


class ReferenceRing(MlxRing):
    """One ring of `impl`."""

    def __init__(self, cache: Any, spec: RingSpec, before: list[int] | None = None) -> None:
        """Wrap a ring; `before`: where its rows stood when an open round began."""
        super().__init__(cache, spec, lambda ring, tokens: ring.make_mask(tokens, spec.window), _attend)
        self._before = before

    def _wrapped(self, cache: Any, before: list[int] | None = None, **changes: Any) -> Ring:
        return ReferenceRing(cache, replace(self.spec, **changes), before)

    def offsets(self) -> list[int]:
        """Return the position of every row."""
        return list(self.cache.position.offsets)

    def rope_offsets(self) -> list[int] | None:
        """Return the positions that rotary embeddings of the next block begin with."""
        array = getattr(self.cache, "rope_offset_arr", None)
        return None if array is None else [int(value) for value in array.tolist()]

    def begin(self) -> None:
        """Open a round."""
        if isinstance(self.cache, SpeculativeRotatingKVCache):
            self.cache.spec_round_begin()
        self._before = self.offsets()

    def commit(self) -> None:
        """Accept the round."""
        if isinstance(self.cache, SpeculativeRotatingKVCache):
            self.cache.spec_round_commit()
        self._before = None

    def rollback(self, keep: Sequence[int]) -> None:
        """Keep the first tokens of the round in every row."""
        before = self._before or []
        if isinstance(self.cache, SpeculativeRotatingKVCache):
            self.cache.spec_round_rollback(list(keep))
        elif isinstance(self.cache, BatchedRotatingQuantCache):
            self.cache = rollback_rotating_ring(self.cache, before, list(keep))
        else:
            drop = self.offsets()[0] - before[0] - keep[0]
            if drop:
                self.cache.trim(drop)
        self._before = None

    def prepare(self, lengths: Sequence[int], left: Sequence[int], right: Sequence[int]) -> None:
        """Announce a padded prefill; a solo ring takes no padding."""
        if not hasattr(self.cache, "prepare_prefill"):
            raise Unsupported("a solo ring takes no padding")
        self.cache.prepare_prefill(list(lengths), list(left) if any(left) else None, list(right))

    def finalize(self) -> None:
        """Close it."""
        self.cache.finalize_prefill()

    def merge(self, others: Sequence[Ring]) -> Ring:
        """Make one batch of solo rings."""
        caches = [other.cache for other in others if isinstance(other, ReferenceRing)]
        spec = replace(self.spec, rows=len(others))
        if spec.layout != "ring" or spec.crossing:
            from harness.subjects.reference.groups import merge_into_group

            return merge_into_group(spec, self.cache.max_size, caches)
        batch: Any
        if self.spec.storage is None:
            batch = SpeculativeRotatingKVCache(self.cache.max_size)
            batch.merge_rows(caches)
        else:
            batch = BatchedRotatingQuantCache.merge(caches)
        return self._wrapped(batch, rows=len(others))

    def extend(self, other: Ring) -> None:
        """Add the rows of another batch."""
        if not hasattr(self.cache, "extend"):
            raise Unsupported("a solo ring is no batch; merge it first")
        assert isinstance(other, ReferenceRing)  # noqa: S101 - the driver opens both
        self.cache.extend(other.cache)

    def filter(self, rows: Sequence[int]) -> None:
        """Keep these rows."""
        if not hasattr(self.cache, "filter_rows"):
            raise Unsupported("a solo ring has no rows to filter")
        self.cache.filter_rows(list(rows))
        if self._before is not None:
            self._before = [self._before[row] for row in rows]

    def extract(self, row: int, limit: int | None) -> Ring:
        """Return one row as a solo ring."""
        if hasattr(self.cache, "extract_row"):
            return self._wrapped(self.cache.extract_row(row, limit), rows=1)
        return self._wrapped(self.cache.extract(limit), rows=1)

    def quantize(self, bits: int, group_size: int) -> Ring:
        """Return the ring with affine storage."""
        quantized = self.cache.to_quantized(group_size, bits)
        return self._wrapped(quantized, self._before, storage=AffineStorage(bits, group_size))

    def copy(self) -> Ring:
        """Return a copy."""
        return self._wrapped(self.cache.copy(), self._before)

    def save_load(self) -> Ring:
        """Write the cache to a file and read it; a round that the cache itself knows nothing of stays open here."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "cache.safetensors"
            save_cache(path, self.cache)
            return self._wrapped(load_cache(path, type(self.cache)), self._before)

    def donor(self, *, decoded: bool) -> Donor:
        """Lend the columns."""
        lent = self._capture()
        return ReferenceDonor(lent.decoded() if decoded else lent, self.spec.head_dim**-0.5)

    def timed(self, operation: str, blocks: Sequence[Block]) -> TimedCall:
        """Return lending, attention over what is lent, or what every ring offers."""
        if operation not in ("lend", "attend"):
            return super().timed(operation, blocks)
        lent = self._capture()
        queries = [to_mlx(block.queries) for block in blocks]
        mx.eval(queries, [flat(part) for pair in lent.view.parts for part in pair])
        scale = self.spec.head_dim**-0.5

        window = self.spec.window
        if operation == "lend":
            return lambda _call: _shown(self._capture(), window)
        answer = _shown(lent, window)

        def attend_lent(call: int) -> Answer:
            output: Any = lent.attend(queries[call % len(queries)], scale, window)
            return replace(answer, output=output)

        return attend_lent

    def _capture(self) -> DonorAttention:
        lend = getattr(self.cache, "capture_donor_attention", None)
        lent: DonorAttention = capture_rotating_donor_attention(self.cache) if lend is None else lend()
        return lent

    def pinned(self) -> dict[str, Pinned]:
        """Return layout and policy."""
        cache, position = self.cache, self.cache.position
        pins: dict[str, Pinned] = {
            "bytes_per_token": cache.bytes_per_token(),
            "columns": position.active_length,
            "is_trimmable": cache.is_trimmable(),
            "left_padding": list(position.left_pad),
        }
        if hasattr(cache, "projected_bytes"):
            pins["projected_bytes"] = cache.projected_bytes(1000)
        if hasattr(cache, "signature"):
            pins["signature"] = cache.signature()
        floors = getattr(cache, "minimum_reusable_offsets", None)
        pins["minimum_reusable_offsets"] = list(floors) if floors is not None else [cache.minimum_reusable_offset]
        return pins


class ReferenceDonor(Donor):
    """What a ring of `impl` lent."""

    def __init__(self, lent: DonorAttention, scale: float) -> None:
        """Wrap it."""
        self._lent, self._scale = lent, scale

    def look(self, window: int | None, queries: NDArray[np.generic] | None) -> Answer:
        """Show the columns, the mask of this window, and the attention of the queries."""
        mask = self._lent.mask(window)
        keys, values = (tuple(to_arrays(part[side]) for part in self._lent.view.parts) for side in (0, 1))
        output = None if queries is None else to_numpy(self._lent.attend(to_mlx(queries), self._scale, window))
        return Answer(
            keys[0] if len(keys) == 1 else RowsApart(keys),
            values[0] if len(values) == 1 else RowsApart(values),
            None if mask is None else to_numpy(mask),
            output,
        )

    def offsets(self) -> list[int]:
        """Return the position that each row goes on from."""
        return list(self._lent.offsets)

    def pinned(self) -> dict[str, Pinned]:
        """Return the rectangle and the tokens of each row in it."""
        return {"width": self._lent.width, "starts": list(self._lent.starts), "ends": list(self._lent.ends)}


def _shown(lent: DonorAttention, window: int | None) -> Answer:
    """Return keys, values and mask of a loan as MLX has them."""
    sides = []
    for side in (0, 1):
        parts = tuple(to_arrays(pair[side], lambda array: array) for pair in lent.view.parts)
        sides.append(parts[0] if len(parts) == 1 else RowsApart(parts))
    mask: Any = lent.mask(window)
    return Answer(sides[0], sides[1], mask, None)


def to_arrays(tensor: Tensor, convert: Callable[[mx.array], Any] = to_numpy) -> PlainArrays | AffineArrays:
    """Return keys or values as NumPy arrays, or as what `convert` makes of each array."""
    if isinstance(tensor, AffinePlanes):
        packed, scales, biases = (convert(part) for part in tensor.parts)
        return AffineArrays(packed, scales, biases, tensor.group_size, tensor.bits)
    return PlainArrays(convert(tensor))


def _attend(queries: mx.array, keys: Any, values: Any, scale: float, mask: Any) -> mx.array:
    if isinstance(keys, Apart):
        return AttentionView(tuple(zip(keys.parts, values.parts, strict=True))).attend(queries, scale, mask)
    return attend(queries, keys, values, scale, mask)
