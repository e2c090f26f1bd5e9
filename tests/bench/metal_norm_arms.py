"""mlx-lm's fused norms and routing, which have no other path in the package: the formula in NumPy's float64."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import mlx.core as mx
import numpy as np

from tests.bench.metal_arms import FAST_ANGLE, UNIT, Arm, numbers, relative, single

# By name: their annotations do not fit calls with unpacked arguments.
kernels, nn = import_module("mlx_lm.kernels"), import_module("mlx.nn")

FORMULA = "the formula, in NumPy"


def norm_arms() -> list[Arm]:
    """Return the fused kernels of muse_spark, which have no other path in the package."""
    return [*_head_norms(), _gate_arm(), _routing_arm(), _combine_arm(), *_stream_arms()]


def _head_norms() -> list[Arm]:
    rows, heads, kv, d, eps, scale, base = 5, 2, 1, 40, 1e-5, 0.25, 10000.0
    x = numbers(1, 1, rows, 2 * (heads + kv) * d)
    parts = x.reshape(rows, 2 * (heads + kv), d)[:, : heads + kv]
    normed = parts * ((parts**2).mean(-1, keepdims=True) + np.float32(eps)) ** -0.5
    q, k = normed[:, :heads] * scale, normed[:, heads:]
    common = {"n_heads": heads, "n_kv_heads": kv, "head_dim": d, "eps": eps, "query_scale": scale}
    angle = (np.arange(rows) + 3)[:, None] * base ** -(np.arange(d // 2) / (d // 2))
    cos, sin = (np.repeat(turn(angle), 2, axis=-1)[:, None] for turn in (np.cos, np.sin))
    turned, sizes = [], []
    for one in (q, k):
        other = one.reshape(*one.shape[:-1], -1, 2)[..., ::-1].reshape(one.shape)
        turned.append(one * cos + other * sin * np.tile([-1, 1], d // 2))
        sizes.append(np.abs(one) + np.abs(other))
    off = FAST_ANGLE + (d + 8 + 16 * angle.max()) * UNIT
    return [
        Arm(
            "qk_norm",
            "kernels/qk_norm.py",
            f"{rows} x {heads + kv} x {d}",
            lambda: kernels.qk_norm(single(x), **common),
            [q[None], k[None]],
            relative(d + 8, q[None], k[None]),
            FORMULA,
        ),
        Arm(
            "qk_norm_rope",
            "kernels/qk_norm_rope.py",
            f"{rows} x {heads + kv} x {d}",
            lambda: kernels.qk_norm_rope(single(x), rope_base=base, offset=3, **common),
            [one[None] for one in turned],
            [off * one[None] for one in sizes],
            FORMULA,
        ),
    ]


def _gate_arm() -> Arm:
    heads, length, d = 2, 3, 40
    x, gate = numbers(1, 1, heads, length, d), numbers(2, 1, length, heads * d)
    normed = (x * ((x**2).mean(-1, keepdims=True) + np.float32(1e-5)) ** -0.5).swapaxes(1, 2).reshape(1, length, -1)
    expected = [normed / (1 + np.exp(-gate))]
    return Arm(
        "rms_norm_sigmoid_gate",
        "kernels/rms_norm_sigmoid_gate.py",
        f"{heads} x {length} x {d}",
        lambda: [kernels.rms_norm_sigmoid_gate(single(x), single(gate), eps=1e-5)],
        expected,
        relative(d + 16, *expected),
        FORMULA,
    )


def _routing_arm() -> Arm:
    tokens, experts, top, multiplier = 5, 40, 3, 0.5
    logits, bias = numbers(1, tokens, experts), numbers(2, experts) / 8
    score = 1 / (1 + np.exp(-logits * multiplier))
    indices = np.argsort(-(score + bias), axis=-1, kind="stable")[:, :top]
    chosen = np.take_along_axis(score, indices, -1)
    weights = chosen / (chosen.sum(-1, keepdims=True) + np.float32(1e-6)) * 2.5
    keys = {"top_k": top, "multiplier": multiplier, "score_eps": 1e-6, "route_scale": 2.5}
    return Arm(
        "expert_routing",
        "kernels/expert_routing.py",
        f"{tokens} x {experts}, top {top}",
        lambda: kernels.expert_routing(single(logits), single(bias), **keys),
        [indices.astype(np.float64), weights],
        [np.zeros(indices.shape), *relative(top + 24, weights)],
        FORMULA,
    )


def _combine_arm() -> Arm:
    rows, count, d = 2, 3, 300
    x, weights, norm = numbers(1, rows, count, d), numbers(2, rows, count), numbers(3, d)
    scaled = x * norm
    normed = scaled * ((scaled**2).mean(-1, keepdims=True) + np.float32(1e-5)) ** -0.5 * weights[..., None]
    return Arm(
        "post_expert_norm_combine",
        "kernels/post_expert_norm_combine.py",
        f"{rows} x {count} x {d}",
        lambda: [
            kernels.post_expert_norm_combine(single(x), single(weights), norm_weight=single(norm), eps=1e-5),
        ],
        [normed.sum(1)],
        [(d + count + 10) * UNIT * np.abs(normed).sum(1)],
        FORMULA,
    )


def _stream_arms() -> list[Arm]:
    # Wide enough for two simdgroups a row.
    rows, d, eps = 2, 600, np.float32(1e-5)
    branch, stream, alpha, beta = numbers(1, rows, d), numbers(2, rows, d), numbers(3, d), numbers(4, d)
    norm = nn.RMSNorm(d, eps=1e-5)
    norm.weight = single(numbers(5, d))
    weight = numbers(5, d)
    after = beta * branch * ((branch**2).mean(-1, keepdims=True) + eps) ** -0.5
    added = alpha * stream + after
    off = (d + 10) * UNIT * (np.abs(alpha * stream) + np.abs(after))
    turn = ((added**2).mean(-1, keepdims=True) + eps) ** -0.5
    spread = np.sqrt((off**2).sum(-1, keepdims=True) / (added**2).sum(-1, keepdims=True))
    off_normed = turn * np.abs(weight) * (off + np.abs(added) * ((d + 8) * UNIT + spread))
    plain = stream * ((stream**2).mean(-1, keepdims=True) + eps) ** -0.5 * weight

    def call(following: Any) -> list[mx.array]:
        keys = {"alpha": single(alpha), "beta": single(beta), "post_weight": None, "post_eps": 1e-5}
        made = kernels.norm_add_norm(single(branch), single(stream), next_norm=following, **keys)
        return [one for one in made if one is not None]

    place, size = "kernels/norm_add_norm.py", f"{rows} x {d}"
    return [
        Arm(
            "norm_add_norm", place, size, lambda: call(norm), [added, added * turn * weight], [off, off_normed], FORMULA
        ),
        Arm("norm_add", place, size, lambda: call(None), [added], [off], FORMULA),
        Arm(
            "norm_add_norm_pre_norm",
            place,
            size,
            lambda: [kernels.pre_norm(single(stream), norm, dtype=mx.float32)],
            [plain],
            relative(d + 8, plain),
            FORMULA,
        ),
    ]
