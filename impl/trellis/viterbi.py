"""Encoding of blocks: a Viterbi search over all paths through the trellis, as a Metal kernel (`kernels/viterbi.metal`).

The search is that of "QTIP: Quantization with Trellises and Incoherence Processing", arXiv 2406.11235, section 3: a
tail-biting path is found in two passes, the first of them over the block turned by half, to guess where the seam lies.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import mlx.core as mx

from impl.metal import CpuBackend, metal_kernel
from impl.metal.backend import choose
from impl.metal.toolchain import cores
from impl.trellis.errors import TrellisFormatError, TrellisShapeError
from impl.trellis.kernels import kernel_text
from impl.trellis.layout import BLOCK, MAX_STATE_BITS, WORD_BITS, check_block

if TYPE_CHECKING:
    from impl.metal.backend import Backend

# How the two ends of a path are made to meet: not at all, by a guess from the turned block, or by trying every context.
PASSES: Final = {"free": 1, "two": 2, "exact": 0}
_INPUTS: Final = ("numbers", "book", "by_symbol", "counts")
_OUTPUTS: Final = ("words", "costs", "fits", "rows", "survivors")
_BODY: Final = """
    constexpr int contexts = 1 << (STATE_BITS - BITS);
    threadgroup float near_metrics[SHARED ? 2 * contexts : 1];
    threadgroup float least_metric[THREADS];
    threadgroup int least_context[THREADS];
    if (THREADS == 1) {
        int worker = thread_position_in_grid.x;
        device float* own = rows + size_t(worker) * size_t(BLOCK + 1) * contexts;
        for (int block = worker; block < counts[0]; block += counts[1])
            encode_alone<BITS, STATE_BITS, BLOCK, PASSES>(
                numbers + size_t(block) * BLOCK, book, by_symbol, own,
                words + size_t(block) * (BLOCK * BITS / 32), costs + block, fits + size_t(block) * 2);
    } else {
        int worker = threadgroup_position_in_grid.x;
        Group<BITS, STATE_BITS, BLOCK, THREADS, SHARED> group = {
            near_metrics, rows + size_t(worker) * (SHARED ? 0 : 2 * contexts),
            survivors + size_t(worker) * BLOCK * contexts, least_metric, least_context,
            int(thread_index_in_threadgroup)};
        for (int block = worker; block < counts[0]; block += counts[1])
            group.template encode<PASSES>(numbers + size_t(block) * BLOCK, book,
                                          words + size_t(block) * (BLOCK * BITS / 32), costs + block,
                                          fits + size_t(block) * 2);
    }
"""
_THREADGROUP_BYTES: Final = 32768
_SCRATCH_BYTES: Final = 256 << 20


@dataclass(frozen=True, slots=True)
class Encoded:
    """Blocks as words uint32 [blocks, block * bits / 32], and how near they come.

    `costs` float32 [blocks] are sums of squared errors; `products` and `squares` float32 [blocks] are the sums of
    codeword times number and of codeword squared: products / squares is the scale that would have been best.
    """

    words: mx.array
    costs: mx.array
    products: mx.array
    squares: mx.array


@dataclass(frozen=True, slots=True)
class Geometry:
    """How blocks are shared out: `threads` work on one block at a time, and `workers` blocks are worked on at once.

    One thread a block suits a processor, where waiting at a barrier costs more than the work between two of them.
    """

    threads: int
    workers: int

    def shared(self, contexts: int) -> bool:
        """Whether two rows of metrics, and what a search for the least of them needs, fit into threadgroup memory."""
        return self.threads > 1 and 8 * (contexts + self.threads) <= _THREADGROUP_BYTES


def usual_geometry(bits: int, state_bits: int, block: int = BLOCK, backend: str | Backend | None = None) -> Geometry:
    """Return the geometry for a backend: one thread a block on a processor, else 16 states a thread."""
    contexts = 1 << (state_bits - bits)
    if isinstance(choose(backend), CpuBackend):
        return Geometry(1, cores())
    threads = min(512, contexts, max(1 << state_bits >> 4, 2))
    return Geometry(threads, max(1, min(2048, _SCRATCH_BYTES // (block * contexts))))


def check_encodable(bits: int, state_bits: int, block: int = BLOCK) -> None:
    """Raise TrellisFormatError for a format that can be decoded, but not encoded here."""
    check_block(block, bits)
    if not 2 * bits <= state_bits <= MAX_STATE_BITS:
        raise TrellisFormatError(
            f"state_bits={state_bits} can't be encoded with bits={bits}; use {2 * bits} to {MAX_STATE_BITS}"
        )
    if block * bits < state_bits:
        raise TrellisFormatError(f"block={block} with bits={bits} is shorter than a state of {state_bits} bits")


def encode_blocks(
    numbers: mx.array,
    table: mx.array,
    bits: int,
    passes: str = "two",
    geometry: Geometry | None = None,
    backend: str | Backend | None = None,
) -> Encoded:
    """Encode `numbers` float32 [blocks, block].

    `table` float32 [2 ** state_bits] is the codebook. `passes`: `two` finds a tail-biting path that is the best one or
    close to it, `exact` the best one (in 2 ** (state_bits - bits) passes), and `free` the best path whose ends don't
    meet: its cost is a lower bound, and its words do not decode to it.
    Raises TrellisShapeError for arrays of another shape or type, TrellisFormatError for what can't be encoded.
    """
    if passes not in PASSES:
        raise TrellisFormatError(f"passes={passes!r} is none of {', '.join(PASSES)}")
    if numbers.ndim != 2 or numbers.dtype != mx.float32 or not numbers.shape[0]:
        raise TrellisShapeError(f"numbers are {numbers.dtype} {list(numbers.shape)}; float32 [blocks, block] is needed")
    state_bits = table.size.bit_length() - 1
    if table.shape != (1 << state_bits,) or table.dtype != mx.float32:
        raise TrellisShapeError(f"table is {table.dtype} {list(table.shape)}; float32 [2 ** state_bits] is needed")
    blocks, block = numbers.shape
    check_encodable(bits, state_bits, block)
    chosen = geometry or usual_geometry(bits, state_bits, block, backend)
    contexts = 1 << (state_bits - bits)
    if chosen.threads < 1 or contexts % chosen.threads or chosen.workers < 1:
        raise TrellisFormatError(f"{chosen} can't share out {contexts} contexts; threads must divide them")
    workers = min(chosen.workers, blocks)
    shared, alone = chosen.shared(contexts), chosen.threads == 1
    row_numbers = (block + 1) * contexts if alone else 2 * contexts
    # Backends are values, and hashable, though their protocol does not say so.
    runner: Any = choose(backend)
    words, costs, fits, *_ = _kernel(runner)(
        inputs=[numbers, table, _by_symbol(table, bits), mx.array([blocks, workers], mx.int32)],
        template=[
            ("BITS", bits),
            ("STATE_BITS", state_bits),
            ("BLOCK", block),
            ("THREADS", chosen.threads),
            ("SHARED", shared),
            ("PASSES", PASSES[passes]),
        ],
        grid=(workers * chosen.threads, 1, 1),
        threadgroup=(chosen.threads, 1, 1),
        output_shapes=[
            (blocks, block * bits // WORD_BITS),
            (blocks,),
            (blocks, 2),
            (1,) if shared else (workers, row_numbers),
            (1,) if alone else (workers, block * contexts),
        ],
        output_dtypes=[mx.uint32, mx.float32, mx.float32, mx.float32, mx.uint8],
    )
    return Encoded(words, costs, fits[:, 0], fits[:, 1])


@lru_cache(maxsize=8)
def _kernel(backend: Any) -> Any:
    return metal_kernel("trellis_viterbi", _INPUTS, _OUTPUTS, _BODY, kernel_text("viterbi"), backend=backend)


def _by_symbol(table: mx.array, bits: int) -> mx.array:
    """Return the codebook with the digits between the oldest and the newest symbol of a state innermost."""
    symbols = 1 << bits
    return table.reshape(symbols, -1, symbols).transpose(0, 2, 1).flatten()
