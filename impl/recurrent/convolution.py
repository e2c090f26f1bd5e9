"""The short causal depthwise convolution in front of a recurrence, chunk by chunk."""

from __future__ import annotations

import mlx.core as mx


def causal_convolution(
    inputs: mx.array, weight: mx.array, conv_state: mx.array, mask: mx.array | None, lengths: list[int]
) -> tuple[mx.array, mx.array]:
    """Return the convolution of a chunk, and the new convolution state.

    ``inputs`` is ``[rows, tokens, channels]``, ``weight`` ``[channels, kernel]`` (its last column meets the token
    itself), ``conv_state`` the ``kernel - 1`` inputs before the chunk. Sums are float32, results in the dtype of the
    inputs. Padding counts as zeros, whatever it holds: in front of a row that is what its empty past is.

    The new state of row b are the entries from ``lengths[b]`` on of the old state and the inputs behind each other:
    the newest inputs of the row, and with length 0 the old state. The last columns of the chunk may be padding.
    """
    if mask is not None:
        # Not a product with the mask: 0 times NaN is NaN.
        inputs = mx.where(mask[..., None], inputs, mx.zeros_like(inputs))
    kernel, tokens = weight.shape[1], inputs.shape[1]
    full = mx.concatenate([conv_state, inputs], axis=1)
    taps = weight.astype(mx.float32)
    outputs = mx.zeros(inputs.shape, mx.float32)
    for tap in range(kernel):
        outputs = outputs + full[:, tap : tap + tokens].astype(mx.float32) * taps[:, tap]
    if kernel == 1:
        return outputs.astype(inputs.dtype), conv_state
    newest = mx.array(lengths, dtype=mx.int32)[:, None] + mx.arange(kernel - 1, dtype=mx.int32)[None]
    return outputs.astype(inputs.dtype), mx.take_along_axis(full, newest[..., None], axis=1)
