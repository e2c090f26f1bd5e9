"""Lets packages that call `mx.fast.metal_kernel` run on this machine, unchanged.

Such packages also ask whether there is Metal, and what the default device is, often while they are imported. Inside
`metal_text()` the answers are those of a machine with a GPU; work that is not a kernel is done by MLX's CPU.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import sys
from typing import TYPE_CHECKING, Any

import mlx.core as mx

from impl.metal.backend import CUDA, Backend, choose
from impl.metal.kernel import MetalKernel, metal_kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

_GPU = mx.Device(mx.gpu, 0)


class _Scoped:
    """A kernel made inside `metal_text()`: afterwards it is MLX's own again."""

    def __init__(self, here: Any, mlx_kernel: Any, scope: _Scope) -> None:
        self.here = here
        self._mlx_kernel = mlx_kernel
        self._scope = scope

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return (self.here if self._scope.active else self._mlx_kernel)(*args, **kwargs)


class _Scope:
    active = True


@contextlib.contextmanager
def metal_text(backend: str | Backend | None = None) -> Iterator[None]:
    """Make `mx.fast.metal_kernel` run Metal text here, and MLX look like MLX with a GPU, until the block ends.

    With the `cpu` backend mx.compile is off inside, because a compiled function is traced with arrays that have no
    values yet, and streams and devices of the GPU are the CPU's. mx.vmap over a kernel and mx.grad through one raise.
    Modules that were imported before, and whose text mentions metal_kernel, run again so that they make their kernels;
    what that changes in them is undone at the end. Kernels made inside are MLX's own afterwards.

    On a machine with Metal, unless `backend` names another one, nothing is changed. Blocks nest; threads share one.
    """
    chosen = choose(backend)
    if chosen is None:
        yield
        return
    scope = _Scope()
    compiles = chosen.name != CUDA and _compiles()  # MLX's launch on CUDA can be traced
    with contextlib.ExitStack() as stack:
        for owner, name, replacement in _replacements(chosen, scope):
            stack.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, replacement)
        if compiles:
            mx.disable_compile()
            stack.callback(mx.enable_compile)
        stack.callback(setattr, scope, "active", False)
        for module in _with_kernels():
            stack.callback(_restore, module, dict(vars(module)))
            _run_again(module)
        yield


def _replacements(backend: Backend, scope: _Scope) -> list[tuple[Any, str, Callable[..., Any]]]:
    mlx_metal_kernel = mx.fast.metal_kernel

    def scoped_metal_kernel(*args: Any, **kwargs: Any) -> Any:
        here = metal_kernel(*args, **kwargs, backend=backend)
        return _Scoped(here, mlx_metal_kernel(*args, **kwargs), scope) if isinstance(here, MetalKernel) else here

    def on_cpu(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            return function(*map(_cpu_for_gpu, args), **{key: _cpu_for_gpu(value) for key, value in kwargs.items()})

        return call

    known_info, known_availability = mx.device_info, mx.is_available

    def device_info(*args: Any, **kwargs: Any) -> dict[str, Any]:
        # Keys that packages read on Metal; a working set of all memory is what a CPU has.
        memory = _memory_bytes()
        sizes = {"memory_size": memory, "max_recommended_working_set_size": memory, "max_buffer_length": memory}
        return {**sizes, **known_info(*map(_cpu_for_gpu, args), **kwargs)}

    replaced: list[tuple[Any, str, Callable[..., Any]]] = [
        (mx.fast, "metal_kernel", scoped_metal_kernel),
        (mx.metal, "is_available", lambda: True),
        (mx, "is_available", lambda device: _is_gpu(device) or known_availability(device)),
        (mx, "default_device", lambda: _GPU),
        (mx, "device_info", device_info),
        (mx.metal, "device_info", device_info),
    ]
    if backend.name == CUDA:  # MLX's GPU is there, and does all the work
        return [one for one in replaced if one[1] in ("metal_kernel", "is_available") and one[0] is not mx]
    moved = ("set_default_device", "new_stream", "new_thread_local_stream", "default_stream", "stream", "synchronize")
    return replaced + [(mx, name, on_cpu(getattr(mx, name))) for name in moved if hasattr(mx, name)]


def _is_gpu(value: Any) -> bool:
    return isinstance(value, (mx.Device, mx.DeviceType)) and value == mx.gpu


def _cpu_for_gpu(value: Any) -> Any:
    return mx.cpu if _is_gpu(value) else value


def _compiles() -> bool:
    """Find out whether mx.compile is on: a compiled function runs as Python once, and every time if it is off."""
    runs = []

    def probe(x: mx.array) -> mx.array:
        runs.append(1)
        return x

    compiled = mx.compile(probe)
    compiled(mx.array(0))
    compiled(mx.array(0))
    return len(runs) == 1


def _with_kernels() -> list[ModuleType]:
    """Return the imported modules, other than this package's, whose text mentions metal_kernel."""
    found = []
    for name, module in list(sys.modules.items()):
        values = list(getattr(module, "__dict__", {}).values())
        if name.startswith("impl.metal") or name == "__main__" or not any(value is mx for value in values):
            continue
        with contextlib.suppress(TypeError, OSError):  # no text, such as a module made by hand
            if "metal_kernel" in inspect.getsource(module):
                found.append(module)
    return found


def _run_again(module: ModuleType) -> None:
    """Let `module` make its kernels, and keep nothing else of the second run: its functions and classes stay."""
    before = dict(vars(module))
    importlib.reload(module)
    kernels = {name: value for name, value in vars(module).items() if _holds_kernel(value)}
    _restore(module, before)
    vars(module).update(kernels)


def _holds_kernel(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_holds_kernel, value.values()))
    if isinstance(value, (list, tuple)):
        return any(map(_holds_kernel, value))
    return isinstance(value, _Scoped)


def _restore(module: ModuleType, before: dict[str, Any]) -> None:
    vars(module).clear()
    vars(module).update(before)


def _memory_bytes() -> int:
    import psutil  # noqa: PLC0415 - only packages that size a cache by the GPU's memory get here

    total: int = psutil.virtual_memory().total
    return total
