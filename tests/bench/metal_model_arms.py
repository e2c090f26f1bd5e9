"""mlx-lm's kernels of single models and of losses, each beside the package's own operations."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np

from tests.bench.metal_arms import UNIT, Arm, answers, double, numbers, relative, single

# By name: their annotations do not fit calls with unpacked arguments.
bitlinear_layers, deepseek_v41, kimi_k3, losses = (
    import_module(f"mlx_lm.{name}")
    for name in ("models.bitlinear_layers", "models.deepseek_v41", "models.kimi_k3", "tuner.losses")
)

if TYPE_CHECKING:
    from tests.bench.metal_arms import Floats


def bitlinear_arm() -> Arm:
    """Ternary weights, four in a byte: 3 rows of 64 inputs, 12 outputs."""
    rows, inputs, outputs = 3, 64, 12
    x, codes = numbers(1, rows, inputs), np.random.default_rng(2).integers(0, 3, (4, outputs // 4, inputs))
    layer = bitlinear_layers.BitLinear(inputs, outputs, bias=False)
    layer.weight = mx.array((codes << np.array([0, 2, 4, 6])[:, None, None]).sum(0).astype(np.uint8))
    layer.weight_scale = mx.array([0.75])
    weights = (codes - 1).reshape(outputs, inputs)
    return Arm(
        "bitlinear_matmul",
        "models/bitlinear_layers.py",
        f"{rows} x {inputs} x {outputs}",
        lambda: [layer(single(x))],
        [0.75 * x @ weights.T],
        [(inputs + 4) * UNIT * 0.75 * np.abs(x) @ np.abs(weights).T],
        "the formula, in NumPy",
    )


def sinkhorn_arm() -> Arm:
    """Seven normalizations of 4 x 4 matrices; each at most doubles the relative error and adds HC + 2 roundings."""
    hc, iterations = 4, 4
    comb, eps = np.abs(numbers(1, 9, hc, hc)) + 0.1, mx.array([1e-6])
    expected = answers(
        deepseek_v41._sinkhorn(double(comb), iters=iterations, eps=double(np.array([np.float32(1e-6)], np.float64)))
    )
    return Arm(
        "deepseek_v41_sinkhorn",
        "models/deepseek_v41.py",
        f"9 matrices {hc} x {hc}",
        lambda: [deepseek_v41._sinkhorn(single(comb), iters=iterations, eps=eps)],
        expected,
        relative((2 ** (2 * iterations - 1) - 1) * (hc + 2), *expected),
        "_sinkhorn without the kernel",
    )


def residual_arm() -> Arm:
    """Softmax over the outputs of earlier blocks: K = 3, N = 2, D = 40."""
    count, n, d, eps = 3, 2, 40, 1e-5
    raw, partial, w = numbers(1, count, 1, n, d), numbers(2, 1, n, d), numbers(3, d) / 4
    inverse = ((raw**2).mean(-1) + eps) ** -0.5
    expected = answers(kimi_k3._attn_res_combine(*map(double, (raw, inverse, partial, w)), eps))
    logits = np.concatenate([(raw @ w) * inverse, ((partial @ w) * ((partial**2).mean(-1) + eps) ** -0.5)[None]])
    weights = np.exp(logits) / np.exp(logits).sum(0)
    large = max(((np.abs(raw) @ np.abs(w)) * inverse).max(), (np.abs(partial) @ np.abs(w)).max() * 2)
    size = (weights[:-1, ..., None] * np.abs(raw)).sum(0) + weights[-1, ..., None] * np.abs(partial)
    blocks = kimi_k3.ResidualBlocks(eps)
    blocks.raw, blocks.inv_rms = single(raw), single(inverse)
    # A logit is off by 1.5 D + 8 roundings of its terms; the weights by twice that.
    roundings = (2 * (1.5 * d + 8) * large + 2 * count + 16) * UNIT
    return Arm(
        "attnres_mix",
        "models/kimi_k3.py",
        f"K={count}, N={n}, D={d}",
        lambda: [kimi_k3._attn_res_mix(blocks, single(partial), single(w), eps)],
        expected,
        [roundings * size],
        "_attn_res_combine",
    )


def loss_arms(size: int, rows: int = 2) -> list[Arm]:
    """Return both losses, forward and backward, over `rows` rows of `size` logits."""
    q, p, cotangent = numbers(1, rows, size) * 2, numbers(2, rows, size) * 2, numbers(3, rows)
    arms = []
    logq, logp = (one - np.log(np.exp(one).sum(-1, keepdims=True)) for one in (q, p))
    # A sum of exponentials is off by size + 8 roundings and 3 + 2 |x| of fast::exp; so is its logarithm.
    roundings = (size + 40 + 8 * max(np.abs(q).max(), np.abs(p).max())) * UNIT
    both = np.exp(logp) * (np.abs(logp) + np.abs(logq) + 2)
    for name, loss in (("kl", losses.kl_div_loss), ("js", losses.js_div_loss)):
        value, slope = _with_gradient(loss, double, q, p, cotangent)
        reach = (both + np.exp(logq) * (np.abs(logp) + np.abs(logq) + 2)).sum(-1)
        slopes = np.abs(cotangent)[:, None] * (np.exp(logq) * (np.abs(logp - logq) + reach[:, None] + 2) + np.exp(logp))
        arms += [
            Arm(
                f"{name}_forward",
                "tuner/losses.py",
                f"{rows} x {size}",
                partial(_forward, loss, q, p),
                [value],
                [roundings * reach],
                "the loss of nn.losses",
            ),
            Arm(
                f"{name}_backward",
                "tuner/losses.py",
                f"{rows} x {size}",
                partial(_backward, loss, q, p, cotangent),
                [slope],
                [roundings * slopes],
                "mx.vjp of the loss of nn.losses",
            ),
        ]
    return arms


def _forward(loss: Any, q: Floats, p: Floats) -> list[mx.array]:
    return [loss(single(q), single(p))]


def _backward(loss: Any, q: Floats, p: Floats, cotangent: Floats) -> list[mx.array]:
    # The kernel itself: the engine's outputs have no gradient to be asked for.
    name = "_kl" if loss is losses.kl_div_loss else "_js"
    extra = [] if name == "_kl" else [losses._js_div_loss(single(q), single(p))[1]]
    kernel = getattr(losses, f"{name}_backward_kernel")
    made: list[mx.array] = kernel(
        inputs=[single(q), single(p), single(cotangent), *extra],
        output_shapes=[q.shape],
        output_dtypes=[mx.float32],
        template=[("T", mx.float32), ("V", q.shape[-1])],
        grid=(1024, cotangent.size, 1),
        threadgroup=(1024, 1, 1),
    )
    return made


def _with_gradient(loss: Any, convert: Any, q: Floats, p: Floats, cotangent: Floats) -> tuple[Floats, Floats]:
    with mx.stream(mx.cpu):
        values, slopes = mx.vjp(lambda x: loss(x, convert(p)), [convert(q)], [convert(cotangent)])
        return np.array(values[0], np.float64), np.array(slopes[0], np.float64)


def model_arms() -> list[Arm]:
    """Return all of this module."""
    return [bitlinear_arm(), sinkhorn_arm(), residual_arm(), *loss_arms(200), *loss_arms(4196)]
