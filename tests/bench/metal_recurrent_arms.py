"""mlx-lm's kernels of recurrent layers: gated delta, RWKV 7, Mamba 2; each beside the package's own operations."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import mlx.core as mx
import numpy as np

from tests.bench.metal_arms import UNIT, Arm, answers, double, numbers, single

# By name: their annotations do not fit calls with unpacked arguments.
gated_delta, rwkv7, ssm = (import_module(f"mlx_lm.models.{name}") for name in ("gated_delta", "rwkv7", "ssm"))


def gated_delta_arm(name: str, call: Any, *, masked: bool = False, vector: bool = False, dk: int = 64) -> Arm:
    """Return one of the variants of the gated delta rule; B = 1, T = 3, Hk = 1, Hv = 2, Dv = 8."""
    t, hk, hv, dv = 3, 1, 2, 8
    q, k = numbers(1, 1, t, hk, dk) / 8, numbers(2, 1, t, hk, dk) / 8
    v, state = numbers(3, 1, t, hv, dv), numbers(4, 1, hv, dv, dk)
    gate = np.abs(numbers(5, 1, t, hv, *([dk] if vector else []))) / 4
    beta = np.abs(numbers(6, 1, t, hv)) / 4
    mask = np.array([[True, False, True]]) if masked else None
    given = [q, k, v, gate, beta, state]
    flags = None if mask is None else mx.array(mask)
    expected = answers(*gated_delta.gated_delta_ops(*map(double, given), mask=flags))
    # The rule on magnitudes: each step rounds sums of dk terms and a few products.
    size, sizes = np.abs(state), np.zeros((1, t, hv, dv))
    for step in range(t):
        if mask is not None and not mask[0, step]:
            # The kernel writes 0 for padding, and the operations something; nobody reads either.
            sizes[:, step] = np.inf
            continue
        size = size * (gate[:, step, :, None, :] if vector else gate[:, step, :, None, None])
        keys, queries = np.abs(k[:, step]).repeat(hv // hk, 1), np.abs(q[:, step]).repeat(hv // hk, 1)
        memory = (size * keys[:, :, None]).sum(-1)
        size = size + keys[:, :, None] * ((np.abs(v[:, step]) + memory) * beta[:, step, :, None])[..., None]
        sizes[:, step] = (size * queries[:, :, None]).sum(-1)
    roundings = t * (dk + 6) * UNIT
    inputs = [single(one) for one in given]
    extra = [] if flags is None else [flags]
    return Arm(
        name,
        "models/gated_delta.py",
        f"T={t}, Dk={dk}, Dv={dv}",
        lambda: list(call(*inputs, *extra)),
        expected,
        [roundings * sizes, roundings * size],
        "gated_delta_ops",
        "" if mask is None else "padding left out: the kernel writes 0 there, `gated_delta_ops` another number",
    )


def gated_delta_arms() -> list[Arm]:
    """Return every variant."""
    plain, packed = gated_delta.gated_delta_kernel_unpacked, gated_delta.gated_delta_kernel
    return [
        gated_delta_arm("gated_delta_step", plain),
        gated_delta_arm("gated_delta_step_mask", plain, masked=True),
        gated_delta_arm("gated_delta_step_vec", plain, vector=True),
        gated_delta_arm("gated_delta_step_vec_mask", plain, vector=True, masked=True),
        gated_delta_arm("gated_delta_step_xtree", gated_delta.gated_delta_kernel_xtree, dk=128),
        gated_delta_arm("gated_delta_step_packed_btree", packed, dk=128),
    ]


def wkv7_arm() -> Arm:
    """RWKV 7: B = 1, T = 2, H = 2, D = 32."""
    t, h, d = 2, 2, 32
    r, k, v, a, b = (numbers(seed, 1, t, h, d) / 4 for seed in range(5))
    w, state = np.abs(numbers(6, 1, t, h, d)) / 4, numbers(7, 1, h, d, d)
    given = [r, w, k, v, a, b]
    states, steps, size, sizes = double(state), [], np.abs(state), []
    for step in range(t):
        y, states = rwkv7._wkv7_step_ops(*(double(one[:, step]) for one in given), states)
        steps.append(np.array(y).squeeze(-1))
        ra, wa, ka, va, aa, ba = (np.abs(one[:, step]) for one in given)
        size = size * wa[:, :, None] + va[..., None] * ka[:, :, None] + (size @ aa[..., None]) * ba[:, :, None]
        sizes.append((size @ ra[..., None]).squeeze(-1))
    roundings = t * (d + 6) * UNIT
    inputs = [single(one) for one in (*given, state)]
    return Arm(
        "wkv7_kernel",
        "models/rwkv7.py",
        f"T={t}, H={h}, D={d}",
        lambda: list(rwkv7.wkv7_kernel(*inputs)),
        [np.stack(steps, 1), np.array(states)],
        [roundings * np.stack(sizes, 1), roundings * size],
        "_wkv7_step_ops",
    )


def ssm_arm() -> Arm:
    """Mamba 2's step: n = 2, H = 4, Dh = 8, two groups, Ds = 32."""
    n, h, dh, groups, ds = 2, 4, 8, 2, 32
    x, state = numbers(1, n, 1, h, dh), numbers(2, n, h, dh, ds)
    decay, skip, bias = numbers(3, h) / 2, numbers(4, h), numbers(5, h) / 4
    b, c, dt = numbers(6, n, 1, groups, ds), numbers(7, n, 1, groups, ds), numbers(8, n, 1, h)
    given, limit = [x, decay, b, c, skip, dt, bias, state], (0.001, 100.0)
    expected = answers(*ssm.ssm_attn(*map(double, given), time_step_limit=limit))
    step = np.array(ssm.compute_dt(single(dt), single(bias), limit), np.float64)[:, 0]
    power = np.exp(decay) * step
    gain = np.abs(b[:, 0]).repeat(h // groups, 1)[:, :, None]
    size = np.exp(-power)[..., None, None] * np.abs(state) + (step[..., None] * np.abs(x[:, 0]))[..., None] * gain
    sizes = (size * np.abs(c[:, 0]).repeat(h // groups, 1)[:, :, None]).sum(-1) + np.abs(x[:, 0] * skip[:, None])
    # fast::exp twice, 3 + 2 |argument| each, and an error of the exponent of that times the exponent.
    roundings = (ds + 16 + 16 * power.max()) * UNIT
    inputs = [single(one) for one in given]
    return Arm(
        "ssm_kernel",
        "models/ssm.py",
        f"H={h}, Dh={dh}, Ds={ds}",
        lambda: list(ssm.ssm_update_kernel(*inputs, limit)),
        expected,
        [roundings * sizes[:, None], roundings * size],
        "ssm_attn",
    )


def recurrent_arms() -> list[Arm]:
    """Return all of this module."""
    return [*gated_delta_arms(), wkv7_arm(), ssm_arm()]
