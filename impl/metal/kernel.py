"""`metal_kernel`: the call of `mx.fast.metal_kernel`, on the machine at hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx

from impl.metal.backend import Backend, Call, choose
from impl.metal.gradients import without_gradient
from impl.metal.native import Report
from impl.metal.signature import Text, input_types, metal_source

if TYPE_CHECKING:
    from collections.abc import Sequence

# Taken now: `metal_text()` puts this module's function in their place.
_mlx_metal_kernel = mx.fast.metal_kernel
_metal_is_available = mx.metal.is_available

_NO_METAL = "[metal_kernel] No Metal back-end."


class MetalKernel:
    """What `metal_kernel` returns where MLX's own Metal does not run it. Called with MLX's keyword arguments."""

    def __init__(self, mlx_kernel: Any, text: Text, backend: Backend) -> None:
        """Use `metal_kernel` instead."""
        self._mlx_kernel = mlx_kernel
        self._text = text
        self._runner = backend.runner(text)
        self.report = Report()
        """What was noticed in the last call."""

    def __call__(self, *args: Any, **kwargs: Any) -> list[mx.array]:
        """Run the kernel; arguments, results and errors are those of MLX, and the results are there at once.

        inputs: arrays, or Python scalars; template: pairs of a name and a bool, an int or a dtype; grid: threads in x,
        y and z; threadgroup: threads of one group; output_shapes, output_dtypes; init_value: what outputs begin with
        (else NaN, or 0xAA bytes); verbose: print the generated Metal source; stream: a GPU's, or none.
        Raises CompileError, NotCoveredError, ToolchainError and LaunchError beside MLX's ValueError and TypeError.
        """
        exported = self._checked_by_mlx(args, kwargs)
        if exported is not None:
            return exported
        call = _converted(**kwargs)
        if kwargs.get("verbose"):
            source = metal_source(self._text, input_types(call.inputs), call.output_dtypes, call.template)
            print(f"Generated source code for `{self._text.name}`:\n```\n{source}\n```")  # noqa: T201 - as MLX does
        outputs, self.report = self._runner.run(call)
        return without_gradient(call.inputs, outputs)

    def compile(self, **kwargs: Any) -> None:
        """Compile for a call with these arguments, and run nothing."""
        self._checked_by_mlx((), kwargs)
        self._runner.compile(_converted(**kwargs))

    def _checked_by_mlx(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[mx.array] | None:
        # MLX checks its arguments before it looks for a GPU: what it raises until then is raised here word for word.
        try:
            outputs: list[mx.array] = self._mlx_kernel(*args, **kwargs)
        except RuntimeError as error:
            if str(error) != _NO_METAL:
                raise
            _refuse_cpu_stream(kwargs.get("stream"))
            return None
        # Without Metal MLX gets here only inside mx.export_function, which records the kernel and runs nothing.
        return None if _metal_is_available() else outputs


def metal_kernel(
    name: str,
    input_names: Sequence[str],
    output_names: Sequence[str],
    source: str,
    header: str = "",
    ensure_row_contiguous: bool = True,
    atomic_outputs: bool = False,
    compile_options: dict[str, str] | None = None,
    *,
    backend: str | Backend | None = None,
) -> Any:
    """Return a kernel with the body `source`: MLX's own on Metal, else one that runs on this machine all the same.

    The arguments are those of `mx.fast.metal_kernel`, and `backend`: `metal`, `cpu`, a Backend, or None for
    METAL_ASSAY_BACKEND and then what the machine has. Nothing is compiled before the first call.
    """
    options = {} if compile_options is None else {"compile_options": compile_options}
    mlx_kernel = _mlx_metal_kernel(
        name, input_names, output_names, source, header, ensure_row_contiguous, atomic_outputs, **options
    )
    chosen = choose(backend)
    if chosen is None:
        return mlx_kernel
    text = Text(
        name,
        tuple(input_names),
        tuple(output_names),
        source,
        header,
        ensure_row_contiguous,
        atomic_outputs,
        (compile_options or {}).get("math_mode", "safe"),
    )
    return MetalKernel(mlx_kernel, text, chosen)


def _converted(
    *,
    inputs: Sequence[Any],
    output_shapes: Sequence[Sequence[int]],
    output_dtypes: Sequence[mx.Dtype],
    grid: tuple[int, int, int],
    threadgroup: tuple[int, int, int],
    template: Sequence[tuple[str, bool | int | mx.Dtype]] | None = None,
    init_value: float | None = None,
    verbose: bool = False,
    stream: Any = None,
) -> Call:
    del verbose
    return Call(
        tuple(x if isinstance(x, mx.array) else mx.array(x) for x in inputs),
        tuple((name, value) for name, value in template or ()),
        grid,
        threadgroup,
        [tuple(shape) for shape in output_shapes],
        list(output_dtypes),
        init_value,
        stream,
    )


def _refuse_cpu_stream(stream: Any) -> None:
    device = getattr(stream, "device", stream)
    if device is not None and device == mx.cpu:
        raise ValueError("[metal_kernel] Only supports the GPU.")
