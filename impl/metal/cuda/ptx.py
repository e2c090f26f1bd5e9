"""From a translation unit to PTX, here or in a cache that came from elsewhere.

Nothing in the name of a cache entry depends on the machine that made it, so that a GPU machine without a compiler finds
what another one compiled: the name is a digest of the text, the prelude, the modules that decide what comes out, and
MLX's version, and the target. Which clang made it stands in the first line; where another clang is at hand it is made
again.
"""

from __future__ import annotations

import functools
import os
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import mlx.core as mx

from impl.metal import cache
from impl.metal.compiler import _BY_CONTENT, _MATH_FLAGS, _run, front_end, precompiled
from impl.metal.cuda import masks
from impl.metal.cuda.lowering import inlined, lower, threadgroup_bytes
from impl.metal.errors import CompileError, MetalTextError, ToolchainError
from impl.metal.toolchain import CLANG_VARIABLE, PRELUDE, RUNTIME, find_toolchain, front_end_flags

if TYPE_CHECKING:
    from impl.metal.toolchain import Toolchain

TARGET_VARIABLE = "METAL_ASSAY_TARGET"
# What clang knows and MLX's CUDA build runs on. PTX of one runs on all later ones.
TARGETS = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
MOST_THREADGROUP_BYTES = 32768

_HERE = Path(__file__).parent
_DECISIVE = ("compiler", "restrictions", "syntax_tree", "vector_lowering", "toolchain")
_OPTIMIZE = [
    "-O3",
    # float as on Apple's GPUs: denormals are zero, division and square root are rounded correctly.
    "-Xclang",
    "-fdenormal-fp-math-f32=preserve-sign",
    "-cl-fp32-correctly-rounded-divide-sqrt",
    # Without the blocks that end the life of variables the ways are those of the text.
    "-Xclang",
    "-disable-lifetime-markers",
    "-w",
]


def ptx(unit: str, math_mode: str, name: str, *, target: str, poison: bool, clang: str | None, folder: Path) -> str:
    """Return PTX of kernel `name` that runs on `target`, such as `sm_90`, from the cache `folder` when it is there.

    Without a compiler PTX of an earlier target serves as well. Raises CompileError with clang's message at the kernel's
    own line, NotCoveredError, and ToolchainError when there is neither the PTX nor a compiler.
    """
    toolchain = _toolchain(clang)
    digest = cache.digest([unit, math_mode, str(poison), _sources()])
    for wanted in [target] if toolchain else _serving(target):
        found = cache.read(folder / f"{digest}.{wanted}.ptx")
        if found and (toolchain is None or found.startswith(_first_line(toolchain))):
            return found.decode()
    if toolchain is None:
        raise ToolchainError(
            f"kernel {name!r} is not among those compiled for {target} in {folder}, and there is no clang here: "
            f"compile it where there is one, with {TARGET_VARIABLE}={target} and {cache.DIRECTORY_VARIABLE} naming a "
            "folder to bring along; or pip install ziglang"
        )
    made = _first_line(toolchain) + _build(unit, math_mode, name, target, poison, toolchain)
    cache.keep(folder / f"{digest}.{target}.ptx", made)
    return made.decode()


def target(wanted: str | None) -> str:
    """Return what to compile for: `wanted`, else METAL_ASSAY_TARGET, else what this machine's GPU understands.

    Raises ToolchainError for one that is not known, and when there is nothing to go by.
    """
    name = wanted or os.environ.get(TARGET_VARIABLE)
    if name:
        if name not in TARGETS:
            raise ToolchainError(
                f"no target {name!r} (from target= or {TARGET_VARIABLE}); there are {', '.join(TARGETS)}"
            )
        return name
    if not mx.cuda.is_available():
        raise ToolchainError(
            f"no NVIDIA GPU here to compile for; let {TARGET_VARIABLE} name one, such as sm_90 for an H100 or H200"
        )
    info = mx.device_info(mx.gpu)
    number = 10 * int(info["compute_capability_major"]) + int(info["compute_capability_minor"])
    fitting = [one for one in TARGETS if int(one.removeprefix("sm_")) <= number]
    if not fitting:
        raise ToolchainError(f"this GPU is of compute capability {number / 10}; {TARGETS[0]} is the earliest")
    return fitting[-1]


def _serving(wanted: str) -> list[str]:
    return list(reversed(TARGETS[: TARGETS.index(wanted) + 1]))


def _toolchain(clang: str | None) -> Toolchain | None:
    try:
        return find_toolchain(clang)
    except ToolchainError:
        if clang or os.environ.get(CLANG_VARIABLE):
            raise
        return None


def _first_line(toolchain: Toolchain) -> bytes:
    return f"// {toolchain.version}\n".encode()


def _build(unit: str, math_mode: str, name: str, target: str, poison: bool, toolchain: Toolchain) -> bytes:
    machine = ["-target", "nvptx64-nvidia-cuda", f"-march={target}", *_MATH_FLAGS[math_mode], *_OPTIMIZE]
    flags = [flag for flag in front_end_flags() if flag != "-fPIC"]
    read = [*toolchain.clang, *flags, *machine, *_BY_CONTENT]
    header = precompiled(_HERE / "prelude" / "precompiled.h", _sources(), tuple(read), toolchain)
    with tempfile.TemporaryDirectory(prefix="metal-assay-") as made:
        folder = Path(made)
        text = front_end(unit, name, [*read, "-Xclang", "-include-pch", "-Xclang", str(header)], folder)
        optimize = [*toolchain.clang, "-x", "ir", *machine, str(folder / "unit.ll"), "-S"]
        try:
            text = lower(text, poison=poison)
        except MetalTextError as error:
            raise type(error)(f"kernel {name!r}: {error}") from None
        if helpers := masks.asking_helpers(text):
            (folder / "unit.ll").write_text(inlined(text, helpers), encoding="utf-8")
            _run([*optimize, "-O0", "-emit-llvm", "-o", str(folder / "inlined.ll")])
            text = (folder / "inlined.ll").read_text(encoding="utf-8")
        (folder / "unit.ll").write_text(masks.place(text), encoding="utf-8")
        _run([*optimize, "-o", str(folder / "unit.ptx")])
        size, found = threadgroup_bytes((folder / "unit.ptx").read_text(encoding="utf-8"))
    if size > MOST_THREADGROUP_BYTES:
        raise CompileError(
            f"kernel {name!r} has {size} bytes of threadgroup variables; the most is {MOST_THREADGROUP_BYTES}"
        )
    return found.encode()


@functools.cache
def _sources() -> bytes:
    headers = [path for folder in (PRELUDE, _HERE / "prelude") for path in folder.rglob("*") if path.is_file()]
    modules = [*_HERE.glob("*.py"), *(_HERE.parent / f"{name}.py" for name in _DECISIVE)]
    files = sorted([*headers, RUNTIME / "launch.h", *modules], key=lambda path: str(path.relative_to(_HERE.parent)))
    parts = [part for path in files for part in (str(path.relative_to(_HERE.parent)), path.read_bytes())]
    return cache.digest([version("mlx"), *parts]).encode()
