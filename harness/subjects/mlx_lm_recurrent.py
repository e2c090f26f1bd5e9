"""mlx-lm's ArraysCache, driven as mlx-lm's own models and generators drive it.

What qwen3_next and mamba2 do with the cache around their projections, norms and activations, this adapter does, with
the same operations: a mask is asked for before each chunk; masked inputs become zeros; `cache[0]`, the convolution's
state, is taken at `clip(cache.lengths, 0, tokens)`, or from the end where the cache has no lengths; `cache[1]` is what
mlx-lm's own `gated_delta_ops` or `ssm_attn` returns for the mask and the lengths; then `advance` is called. Generators
make a batch of empty caches with left paddings of 0; they announce right padding by `prepare`, and left padding (in
releases that pad on the left) by the attribute `left_padding`. `ssm_attn` makes its decays by exponentials, so that it
is run on cases that give rates, and elsewhere the cache is one of a layer that has a convolution only (as in lfm2);
its models mask the inputs of the convolution and not the step lengths, so padding has to be finite there.
"""

from __future__ import annotations

import copy
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np

from harness.subjects.arrays import to_mlx, to_numpy
from harness.subjects.protocol import HandedOut, Recurrent, RecurrentAnswer, Unsupported

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from harness.subjects.protocol import RecurrentBlock, RecurrentSpec


def open_recurrent(spec: RecurrentSpec) -> Recurrent:
    """Return an empty ArraysCache, of two arrays where the layer has a state."""
    from mlx_lm.models.cache import ArraysCache

    arrays = 2 if _has_state(spec) else 1
    return MlxLmRecurrent(ArraysCache(arrays, left_padding=[0] * spec.rows if spec.rows > 1 else None), spec)


def _has_state(spec: RecurrentSpec) -> bool:
    return spec.layer == "gated-delta" or spec.weights.rate is not None


class MlxLmRecurrent(Recurrent):
    """One ArraysCache, and the layer around it."""

    def __init__(self, cache: Any, spec: RecurrentSpec) -> None:
        """Wrap a cache."""
        self.cache, self.spec = cache, spec
        self._book: list[tuple[str, mx.array, NDArray[np.generic]]] = []

    def update(self, block: RecurrentBlock) -> RecurrentAnswer:
        """Mask, convolve, run the recurrence, advance."""
        from mlx_lm.models.base import create_ssm_mask

        inputs = to_mlx(block.inputs)
        rows, tokens, channels = inputs.shape
        mask = create_ssm_mask(inputs, self.cache)
        weight = to_mlx(self.spec.weights.conv)
        past = self.cache[0]
        if past is None:
            past = mx.zeros((rows, self.spec.kernel - 1, channels), inputs.dtype)
        masked = inputs if mask is None else mx.where(mask[..., None], inputs, 0)
        full = mx.concatenate([past, masked], axis=1)
        keep, lengths = self.spec.kernel - 1, self.cache.lengths
        ends = None if lengths is None else mx.clip(lengths, 0, tokens)
        if ends is None:
            self.cache[0] = mx.contiguous(full[:, full.shape[1] - keep :])
        else:
            positions = (ends[:, None] + mx.arange(keep))[..., None]
            self.cache[0] = mx.take_along_axis(full, positions, axis=1)
        convolved = mx.conv1d(full, weight[..., None], groups=channels)
        output = self._recur(convolved, block, mask, lengths)
        shown = None if output is None else to_numpy(output)
        self.cache.advance(tokens)
        self._note("a mask", mask)
        self._note("a convolution state", self.cache[0])
        if _has_state(self.spec):
            self._note("a state", self.cache[1])
        ends_shown = [tokens] * rows if ends is None else to_numpy(ends).tolist()
        return RecurrentAnswer("all" if mask is None else to_numpy(mask), ends_shown, None, shown)

    def _recur(
        self, convolved: mx.array, block: RecurrentBlock, mask: mx.array | None, lengths: mx.array | None
    ) -> mx.array | None:
        spec = self.spec
        rows, tokens, _ = convolved.shape
        if spec.layer == "gated-delta":
            from mlx_lm.models.gated_delta import gated_delta_ops

            keys = spec.heads * spec.key_dim
            parts = mx.split(convolved, [keys, 2 * keys], axis=-1)
            q, k, v = (part.reshape(rows, tokens, spec.heads, -1) for part in parts)
            decay, gate = to_mlx(block.decay), to_mlx(block.gate)
            output: mx.array
            output, self.cache[1] = gated_delta_ops(q, k, v, decay, gate, self.cache[1], mask)
            return output
        if spec.weights.rate is None:
            return None
        if not np.isfinite(block.gate).all():
            raise Unsupported("mlx-lm's state space layers take finite padding only")
        from mlx_lm.models.ssm import ssm_attn

        values = spec.heads * spec.value_dim
        x, entrance, exit_ = mx.split(convolved, [values, values + spec.key_dim], axis=-1)
        # Its step lengths are softplus(dt), and its decays exp(-exp(A_log) * step length).
        dt = to_mlx(np.log(np.expm1(block.gate.astype(np.float64))).astype(np.float32))
        a_log = to_mlx(np.log(spec.weights.rate.astype(np.float64)).astype(np.float32))
        output, self.cache[1] = ssm_attn(
            x.reshape(rows, tokens, spec.heads, spec.value_dim),
            a_log,
            entrance[:, :, None],
            exit_[:, :, None],
            to_mlx(spec.weights.skip),
            dt,
            mx.zeros((spec.heads,)),
            self.cache[1],
            (0.0, 100.0),
            mask,
            lengths,
        )
        return output

    def _note(self, label: str, array: mx.array | None) -> None:
        if array is not None:
            self._book.append((f"{label} shown earlier", array, to_numpy(array)))

    def prepare(self, lengths: Sequence[int], left: Sequence[int], right: Sequence[int]) -> None:
        """Announce padding on one side, as generators do."""
        if any(left) and any(right):
            raise Unsupported("mlx-lm pads prompts on one side")
        if any(left):
            self.cache.left_padding = mx.array(list(left))
        else:
            self.cache.prepare(lengths=list(lengths), right_padding=list(right))

    def finalize(self) -> None:
        """Close the padded prefill."""
        self.cache.finalize()

    def trim(self, tokens: int) -> int:
        """Trim as a prompt cache is trimmed."""
        from mlx_lm.models.cache import trim_prompt_cache

        removed: Any = trim_prompt_cache([self.cache], tokens)
        return int(removed)

    def merge(self, others: Sequence[Recurrent]) -> Recurrent:
        """Merge by the class of the first."""
        caches = [other.cache for other in others if isinstance(other, MlxLmRecurrent)]
        return MlxLmRecurrent(type(self.cache).merge(caches), self.spec)

    def extend(self, other: Recurrent) -> None:
        """Add the rows of another batch."""
        assert isinstance(other, MlxLmRecurrent)  # noqa: S101 - the driver opens both
        self.cache.extend(other.cache)

    def filter(self, rows: Sequence[int]) -> None:
        """Keep these rows, given as an array, as generators give them."""
        self.cache.filter(mx.array(list(rows), mx.int32))

    def extract(self, row: int) -> Recurrent:
        """Return one row as a solo cache."""
        return MlxLmRecurrent(self.cache.extract(row), self.spec)

    def copy(self) -> Recurrent:
        """Return a deep copy, as mlx-lm's server makes of its prompt caches."""
        return MlxLmRecurrent(copy.deepcopy(self.cache), self.spec)

    def save_load(self) -> Recurrent:
        """Write a prompt cache and read it."""
        from mlx_lm.models.cache import load_prompt_cache, save_prompt_cache

        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "cache.safetensors")
            save_prompt_cache(path, [self.cache])
            return MlxLmRecurrent(load_prompt_cache(path)[0], self.spec)

    def conv_state(self) -> NDArray[np.generic] | None:
        """Return `cache[0]`."""
        return None if self.cache[0] is None else to_numpy(self.cache[0])

    def state(self) -> NDArray[np.generic] | None:
        """Return `cache[1]`."""
        return None if not _has_state(self.spec) or self.cache[1] is None else to_numpy(self.cache[1])

    def handed_out(self) -> list[HandedOut]:
        """Return the book."""
        return [HandedOut(label, then, to_numpy(array)) for label, array, then in self._book]
