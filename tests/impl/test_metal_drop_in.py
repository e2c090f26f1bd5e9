"""Packages that call `mx.fast.metal_kernel` run inside `metal_text()`, and MLX is as before afterwards."""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
import pytest

from impl.metal import CpuBackend, MetalTextError, metal_kernel, metal_text

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(mx.metal.is_available(), reason="there MLX runs the kernels itself")

PACKAGE = """
import mlx.core as mx

LOADED = object()
stream = mx.new_stream(mx.default_device())

def make():
    if not mx.metal.is_available():
        return None
    return mx.fast.metal_kernel(
        name="double", input_names=["x"], output_names=["y"],
        source="y[thread_position_in_grid.x] = 2 * x[thread_position_in_grid.x];")

kernel = make()
unconditional = mx.fast.metal_kernel("k", ["x"], ["y"], "y[thread_position_in_grid.x] = x[0];")

def double(x):
    if kernel is None or mx.default_device() != mx.gpu:
        return "without a kernel"
    return kernel(inputs=[x], grid=(x.size, 1, 1), threadgroup=(32, 1, 1),
                  output_shapes=[x.shape], output_dtypes=[x.dtype], stream=mx.gpu)[0]

compiled = mx.compile(double)
"""
PATCHED = ["default_device", "is_available", "device_info", "new_stream", "stream", "default_stream", "synchronize"]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "package_with_kernels.py").write_text(PACKAGE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield "package_with_kernels"
    sys.modules.pop("package_with_kernels", None)


def state() -> list[Any]:
    return [mx.fast.metal_kernel, mx.metal.is_available, *(getattr(mx, name) for name in PATCHED)]


X = mx.arange(64).astype(mx.float32)


def test_package_imported_inside(package: str) -> None:
    before = state()
    with metal_text():
        module = importlib.import_module(package)
        assert mx.array_equal(module.double(X), 2 * X)
        assert mx.array_equal(module.compiled(X), 2 * X)
    assert state() == before
    assert module.double(X) == "without a kernel"
    with pytest.raises(RuntimeError, match="No Metal back-end"):
        module.kernel(inputs=[X], grid=(4, 1, 1), threadgroup=(4, 1, 1), output_shapes=[(4,)], output_dtypes=[mx.int8])


def test_package_imported_before_keeps_its_objects(package: str) -> None:
    module = importlib.import_module(package)
    names = dict(vars(module))
    assert module.kernel is None
    with metal_text():
        assert mx.array_equal(module.double(X), 2 * X)
        assert module.LOADED is names["LOADED"]
        assert module.double is names["double"]
    assert dict(vars(module)) == names
    assert module.double(X) == "without a kernel"


def test_all_is_restored_after_an_error_and_blocks_nest() -> None:
    before = state()
    seen = []

    def fail() -> None:
        with metal_text(), metal_text():
            seen.append(mx.default_device())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert seen == [mx.gpu]
    assert state() == before
    assert mx.default_device() == mx.cpu


@pytest.mark.parametrize("on", [True, False])
def test_compile_is_as_before(on: bool) -> None:
    runs = []

    def function(x: mx.array) -> mx.array:
        runs.append(1)
        return x + 1

    compiled = mx.compile(function)
    try:
        if not on:
            mx.disable_compile()
        with metal_text():
            compiled(X)
            compiled(X)
        assert len(runs) == 2
        compiled(X)
        compiled(X)
        assert len(runs) == (3 if on else 4)
    finally:
        mx.enable_compile()


def square(x: mx.array) -> mx.array:
    kernel = metal_kernel("square", ["x"], ["y"], "uint i = thread_position_in_grid.x; y[i] = x[i] * x[i];")
    y: mx.array = kernel(
        inputs=[x],
        grid=(x.size, 1, 1),
        threadgroup=(32, 1, 1),
        output_shapes=[x.shape],
        output_dtypes=[x.dtype],
    )[0]
    return y


def test_gradient_is_refused_and_not_zero() -> None:
    with pytest.raises(ValueError, match=r"\[Primitive::vjp\] Not implemented for CustomKernel"):
        mx.eval(mx.grad(lambda x: square(x).sum())(X))


def test_gradient_of_the_author_is_used() -> None:
    function: Any = mx.custom_function(square)

    function.vjp(lambda primal, cotangent, _: 2 * primal * cotangent)
    assert mx.array_equal(mx.grad(lambda x: function(x).sum())(X), 2 * X)


@pytest.mark.parametrize("transform", [mx.compile, mx.vmap])
def test_tracing_is_refused_with_a_reason(transform: Any) -> None:
    with pytest.raises(MetalTextError, match=r"inside mx\.compile or mx\.vmap the inputs have no values"):
        transform(square)(X)


@pytest.mark.slow  # mlx-lm takes seconds to import
@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16])
@pytest.mark.parametrize(("vector_gate", "masked"), [(False, False), (True, True)])
def test_gated_delta_kernels_of_mlx_lm_agree_with_its_ops(dtype: mx.Dtype, vector_gate: bool, masked: bool) -> None:
    gated_delta = pytest.importorskip("mlx_lm.models.gated_delta")
    rng = np.random.default_rng(4)
    rows, tokens, key_heads, value_heads, width, values = 1, 3, 1, 2, 128, 8

    def random(*shape: int) -> mx.array:
        return mx.array(rng.standard_normal(shape).astype(np.float32) * 0.3)

    q, k = (random(rows, tokens, key_heads, width).astype(dtype) for _ in "qk")
    v = random(rows, tokens, value_heads, values).astype(dtype)
    gate = mx.sigmoid(random(rows, tokens, value_heads, *([width] if vector_gate else [])))
    beta = mx.sigmoid(random(rows, tokens, value_heads).astype(dtype))
    mask = mx.array([[True, False, True]]) if masked else None
    state = random(rows, value_heads, values, width)
    y_ops, state_ops = gated_delta.gated_delta_ops(q, k, v, gate, beta, state, mask)
    with metal_text():
        y, new_state = gated_delta.gated_delta_kernel(q, k, v, gate, beta, state, mask)
        if not vector_gate:
            explicit = gated_delta.gated_delta_kernel_xtree(q, k, v, gate, beta, state)
            assert mx.array_equal(explicit[0], y)
            assert mx.array_equal(explicit[1], new_state)
    if mask is not None:
        y_ops = mx.where(mask[..., None, None], y_ops, mx.zeros_like(y_ops))
    # Sums of 128 products in float32, over three tokens; y is rounded to its own type.
    bound = 3 * 128 * 2.0**-24 * 4
    assert mx.allclose(new_state, state_ops, rtol=0, atol=bound)
    unit = 2.0**-7 if dtype == mx.bfloat16 else bound
    assert mx.allclose(y.astype(mx.float32), y_ops.astype(mx.float32), rtol=0, atol=unit)


@pytest.mark.slow
def test_missing_barrier_of_mlx_lm_shows_in_random_orders() -> None:
    """Release 0.32.2 overwrites the maxima of a threadgroup with its sums before all threads have read them."""
    losses = pytest.importorskip("mlx_lm.tuner.losses")
    if importlib.metadata.version("mlx-lm") != "0.32.2":
        pytest.skip("the fault was seen in mlx-lm 0.32.2")
    rng = np.random.default_rng(5)
    q, p = (mx.array((rng.standard_normal((3, 1000)) * 2).astype(np.float32)) for _ in "qp")
    log_q, log_p = (x - mx.logsumexp(x, axis=-1, keepdims=True) for x in (q, p))
    right = (mx.exp(log_p) * (log_p - log_q)).sum(axis=-1)
    errors = []
    for backend in (CpuBackend(), *(CpuBackend(lane_order="random", lane_seed=seed) for seed in range(3))):
        with metal_text(backend):
            errors.append(float(np.abs(np.array(losses.kl_div_loss(q, p) - right)).max()))
    assert errors[0] < 1e-5
    assert max(errors[1:]) > 1e-3
