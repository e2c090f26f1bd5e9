"""Every Metal text of the installed mlx-lm compiles: what authors really write, with types from their call sites."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from impl.metal import metal_kernel

SCRIPT = Path(__file__).parent / "prelude" / "mlx_lm_texts.py"
DTYPES = {"f": mx.float32, "i": mx.int32, "u": mx.uint32, "b": mx.uint8}


@dataclass(frozen=True)
class Call:
    """How mlx-lm calls a kernel: per input and output `T` (the activations' type), or a key of DTYPES.

    `s` before it is a 0-d input, `1` before it an input with one element.
    """

    inputs: str
    outputs: str
    types: tuple[str, ...] = ("T",)
    numbers: dict[str, int | bool] = field(default_factory=dict)


_DELTA = {"Dk": 64, "Dv": 64, "Hk": 2, "Hv": 4}
CALLS = {
    "expert_routing": Call("f f sf sf sf", "u f", (), {"E": 64, "K": 8}),
    "norm_add_norm": Call("T f f f T sf T sf", "f T", numbers={"D": 64, "TG": 32, "POST_SCALE": True}),
    "norm_add": Call("T f f f T sf", "f", numbers={"D": 64, "TG": 32, "POST_SCALE": False}),
    "norm_add_norm_pre_norm": Call("f T sf", "T", numbers={"D": 64, "TG": 32}),
    "post_expert_norm_combine": Call("T f T sf", "T", numbers={"D": 64, "K": 4, "TG": 32}),
    "qk_norm": Call("T sf sf", "T T", numbers={"D": 64, "HQ": 4, "HK": 2}),
    "qk_norm_rope": Call("T sf sf i si sf", "T T", numbers={"D": 64, "HQ": 4, "HK": 2, "OFFSET_STRIDE": 1}),
    "rms_norm_sigmoid_gate": Call("T T sf", "T", numbers={"D": 64}),
    "bitlinear_matmul": Call(
        "T b 1T", "T", numbers={"invert_weight_scales": True, "in_features": 64, "out_features": 64}
    ),
    "deepseek_v41_sinkhorn": Call("f 1f", "f", (), {"HC": 4, "ITERS": 3}),
    "gated_delta_step": Call("T T T f T f si", "T f", ("InT", "StT"), _DELTA),
    "gated_delta_step_mask": Call("T T T f T f si b", "T f", ("InT", "StT"), _DELTA),
    "gated_delta_step_vec": Call("T T T f T f si", "T f", ("InT", "StT"), _DELTA),
    "gated_delta_step_vec_mask": Call("T T T f T f si b", "T f", ("InT", "StT"), _DELTA),
    "gated_delta_step_xtree": Call("T T T f T f si", "T f", ("InT", "StT"), _DELTA),
    "gated_delta_step_packed_btree": Call("T T T f T f si", "T f", ("InT", "StT"), _DELTA),
    "attnres_mix": Call("T f T f 1f si", "T", ("InT",), {"K": 4, "D": 64, "THREADS": 512}),
    "wkv7_kernel": Call("T T T T T T T si", "T T", ("InT",), {"H": 2, "D": 64}),
    "ssm_kernel": Call("T T T T T T f", "T f", ("T", "U"), {"Dh": 64, "Ds": 64, "H": 4, "G": 2}),
    "kl_forward": Call("T T", "T", numbers={"V": 4096}),
    "kl_backward": Call("T T T", "T", numbers={"V": 4096}),
    "js_forward": Call("T T", "T T", numbers={"V": 4096}),
    "js_backward": Call("T T T T", "T", numbers={"V": 4096}),
}


@functools.cache
def _texts() -> dict[str, dict[str, Any]]:
    pytest.importorskip("mlx_lm")
    ran = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, check=True)
    return {given["name"]: given for given in json.loads(ran.stdout)}


@pytest.mark.slow
def test_no_kernel_of_mlx_lm_is_missing_here() -> None:
    assert set(_texts()) == set(CALLS)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16], ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_kernels_of_mlx_lm_compile(name: str, dtype: mx.Dtype) -> None:
    call = CALLS[name]

    def array(word: str) -> mx.array:
        shape = () if word[0] == "s" else (1,) if word[0] == "1" else (64,)
        return mx.zeros(shape, DTYPES.get(word[-1], dtype))

    # The second type is the one of a state, which is kept in float32.
    types = list(zip(call.types, (dtype, mx.float32), strict=False))
    outputs = [DTYPES.get(word, dtype) for word in call.outputs.split()]
    metal_kernel(**_texts()[name], backend="cpu").compile(
        inputs=[array(word) for word in call.inputs.split()],
        template=[*types, *call.numbers.items()],
        grid=(32, 1, 1),
        threadgroup=(32, 1, 1),
        output_shapes=[(64,)] * len(outputs),
        output_dtypes=outputs,
    )
