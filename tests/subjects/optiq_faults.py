"""What mlx-optiq gets wrong, as far as the ring cases tell: each cause once, with the shortest steps that show it.

Most of its methods are mlx-lm's, and so are most of its mistakes: `faults.py` has those, and plain caches report them
here, too. Listed below is what happens in caches of mlx-optiq's own. `test_mlx_optiq.py` holds the pinned releases to
it: every entry is reported by its cases and by its own steps, and whatever else is reported is no entry yet.
"""

from __future__ import annotations

from dataclasses import dataclass

PINNED = "0.7.7"


@dataclass(frozen=True)
class Fault:
    """Something wrong: in words, where (file and name in the package), how a report of it reads, cases, and steps.

    `tells`: a pattern for the reason, or the first finding, of an instance that fails for this cause. `cases`: which
    must report it, among others. `given` and `steps`: a case as short as we could make it, in YAML.
    """

    what: str
    where: str
    tells: str
    cases: tuple[str, ...]
    given: str
    steps: str


FAULTS = (
    # mlx-lm's batch generator merges the caches of new requests before their first token. So whatever bits a server
    # was started with, its batches are stored in 8 bits, and rows from its prompt cache can't join them.
    Fault(
        "a batch of rows without tokens takes 8 bits in groups of 64, whatever the rows were set to",
        "runtime/kv/batch.py, BatchQuantizedKVCache.merge",
        r"keys\.(scales|packed)|row 2, query of token 204",
        ("ring/extend-an-empty-batch", "ring/merge-empty-rows-of-every-width", "ring/extend-new-rows-by-old-ones"),
        "{window: none, storage: affine4x64, head_dim: 64, dtype: float32}",
        "[{merge: {rows: [[]]}}, {append: 1}]",
    ),
    # That windows in a batch stay plain is documented. But mlx-lm takes a cache with this method for one that can be
    # merged: a request with a seed is quantized and kept, and the next one that continues it without a seed is merged.
    Fault(
        "a quantized ring inherits a merge that does not know planes",
        "runtime/kv/batch_rotating_merge.py, _safe_merge, by RotatingQuantizedKVCache.merge",
        r"AttributeError: '(list|tuple)' object has no attribute 'shape'|affine planes of .* plain arrays",
        ("ring/merge-quantized-rows", "ring/merge-keeps-every-dtype", "ring/copy-of-a-batch"),
        "{window: 2, storage: affine8x64, head_dim: 64, dtype: float32}",
        "[{merge: {rows: [[{append: 1}]]}}, {append: 1}]",
    ),
    # Its draft loops take every ring for one whose tail can be cut; the position has moved when the cut raises.
    Fault(
        "what a draft loop cuts off a quantized ring is cut as if it had no planes",
        "runtime/ngram_spec.py, _trim_rotating",
        r"rollback .*TypeError: (list|tuple) indices must be integers or slices, not tuple",
        ("ring/round-of-one-request", "ring/rounds-of-one-request"),
        "{window: 2, storage: affine8x64, head_dim: 64, dtype: float32}",
        "[{begin: round}, {append: 2}, {rollback: {keep: 1}}, {append: 1}]",
    ),
    # The same as in mlx-lm, in two places of its own: 3, 5 and 6 bits, where the widths don't happen to agree.
    Fault(
        "planes are allocated with whole codes a word, 32 // bits",
        "runtime/kv/rotating.py, _alloc_pair; runtime/kv/batch.py, _alloc",
        r"ValueError: \[(broadcast_shapes|concatenate)\]",
        ("ring/quantized-cache-takes-every-width", "ring/quantize-every-width-and-dtype", "ring/merge-quantized-rows"),
        "{window: 2, storage: affine5x64, head_dim: 128, dtype: float32}",
        "[{append: 1}]",
    ),
    # mlx-lm looks classes up in a module of its own, and since 0.32 it saves `state` alone: the position, bits and
    # group size that are kept in `meta_state` would be lost. Writing succeeds, so one finds out when it is too late.
    Fault(
        "a prompt cache that was saved can't be loaded",
        "runtime/kv/rotating.py and runtime/kv/batch.py, state and meta_state",
        # An empty one leaves nothing in the file at all.
        r"KeyError: '(Rotating|Mergeable|Batch)QuantizedKVCache'|save-load\) raised IndexError: list index",
        ("ring/saved-full-cache-goes-on", "ring/saved-after-every-token"),
        "{window: none, storage: affine8x64, head_dim: 64, dtype: float32}",
        "[{append: 1}, {save-load: }, {append: 1}]",
    ),
    # What follows repeats mlx-lm's mistakes in methods of mlx-optiq's own, or inherits them.
    Fault(
        "a quantized ring hands out the planes into which it later writes",
        "runtime/kv/rotating.py, RotatingQuantizedKVCache._update_in_place",
        r"untouched: .* returned by update",
        ("ring/arrays-handed-out-do-not-change",),
        "{window: 1, storage: affine8x64, head_dim: 64, dtype: float32}",
        "[{decode: 2}]",
    ),
    Fault(
        "trim of a quantized ring moves its counters, and the columns stay where they are",
        "runtime/kv/rotating.py, RotatingQuantizedKVCache, by RotatingKVCache.trim",
        r"is_trimmable\(\) said no, and trim\(\d+\) returned \d+ all the same",
        ("ring/trim-a-quantized-ring",),
        "{window: 2, storage: affine8x64, head_dim: 64, dtype: float32}",
        "[{append: 3}, {trim: 1}, {append: 1}]",
    ),
    Fault(
        "no row can be extracted from a quantized batch without keys",
        "runtime/kv/batch.py, BatchQuantizedKVCache.extract",
        r"extract .*TypeError: 'NoneType' object is not (iterable|subscriptable)",
        ("ring/extract-an-empty-row",),
        "{window: none, storage: affine8x64, head_dim: 64, dtype: float32}",
        "[{merge: {rows: [[]]}}, {extract: {row: 0}}, {append: 1}]",
    ),
    Fault(
        "filter of a quantized batch forgets what was announced for an open prefill",
        "runtime/kv/batch.py, BatchQuantizedKVCache.filter",
        r"finalize.*offsets \[1, 3\]",
        ("ring/filter-after-the-last-chunk",),
        "{window: none, rows: 2, storage: affine8x64, head_dim: 64, dtype: float32}",
        "[{prepare: {lengths: [1, 3]}}, {chunk: 3}, {filter: {rows: [0]}}, {finalize: }, {append: 1}]",
    ),
)
