"""No gradient is better than a wrong one: what happens to a kernel's outputs inside mx.grad.

The outputs are computed at the call, so to mx.grad they would be constants, and the gradient silently zero. On Metal
MLX refuses to differentiate a kernel that is not inside an mx.custom_function with its own vjp; here it does too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import mlx.core as mx

if TYPE_CHECKING:
    from collections.abc import Sequence


def without_gradient(inputs: Sequence[mx.array], outputs: list[mx.array]) -> list[mx.array]:
    """Return `outputs`, as arrays that depend on `inputs` and raise MLX's own error when they are differentiated."""
    followed = [x for x in inputs if mx.issubdtype(x.dtype, mx.inexact)]
    if not followed:
        return outputs

    def kernel(*_: mx.array) -> list[mx.array]:
        return outputs

    guarded = mx.custom_function(kernel)

    @guarded.vjp
    def refuse_vjp(*_: Any) -> None:
        raise ValueError("[Primitive::vjp] Not implemented for CustomKernel.")

    @guarded.jvp
    def refuse_jvp(*_: Any) -> None:
        raise ValueError("[Primitive::jvp] Not implemented for CustomKernel.")

    return cast("list[mx.array]", guarded(*followed))
