"""Finds a clang and a linker, and says which flags make clang read Metal text.

The default is the clang inside the `ziglang` wheel (MIT, and Apache-2.0 with LLVM exception): it needs no system
package and no root. `METAL_ASSAY_CLANG` names another clang, such as `clang-19`, which must have its lld.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import mlx.core as mx

from impl.metal import cache
from impl.metal.errors import ToolchainError

HERE = Path(__file__).parent
PRELUDE = HERE / "prelude"
RUNTIME = HERE / "runtime"
CLANG_VARIABLE = "METAL_ASSAY_CLANG"

# Metal has half and 64-bit integers but no double: with every other extension off, `1.0` is a float and `double` is
# an unknown type, as in Metal. Generic pointers exist in the dialect only so that `this` and lambdas work.
_EXTENSIONS = (
    "-all",
    "+cl_khr_fp16",
    "+__opencl_c_generic_address_space",
    "+__opencl_c_program_scope_global_variables",
    "+__opencl_c_int64",
    "+__cl_clang_non_portable_kernel_param_types",
)


@dataclass(frozen=True)
class Toolchain:
    """A clang, what links its objects, and what the cache keys on."""

    clang: tuple[str, ...]
    # Compiles the runtime, which includes libc's headers.
    cxx: tuple[str, ...]
    linker: tuple[str, ...]
    version: str
    target: str


def front_end_flags() -> list[str]:
    """Return the flags with which clang reads a translation unit of Metal text.

    The text must begin with `#include "metal_prelude.h"`, which `-I` finds.
    """
    return [
        "-x",
        "cl",
        "-cl-std=clc++2021",
        "-cl-no-stdinc",
        "-Xclang",
        "-cl-ext=" + ",".join(_EXTENSIONS),
        "-I",
        str(PRELUDE),
        # MLX puts helpers such as elem_to_loc before every kernel; the prelude takes them from the installed MLX.
        "-I",
        str(mlx_headers()),
        "-fPIC",
        "-fno-math-errno",
        # Otherwise a bfloat or half expression is kept in float until it is stored; Metal rounds each operation.
        "-Xclang",
        "-fbfloat16-excess-precision=none",
        "-Xclang",
        "-ffloat16-excess-precision=none",
        "-Wno-unknown-attributes",
        "-Wno-c++17-extensions",
        "-Wno-c++20-extensions",
        "-Wno-unused-value",
        "-Wno-unknown-pragmas",
    ]


@functools.cache
def mlx_headers() -> Path:
    """Return the folder of the installed MLX's headers."""
    return Path(mx.__file__).parent / "include"


def machine() -> str:
    """Return the processor architecture: `x86_64` or `aarch64`.

    Raises ToolchainError on any other, whose floating-point unit the runtime does not know, and beside Linux.
    """
    if platform.system() != "Linux":
        raise ToolchainError(f"Metal text runs on processors under Linux only, not under {platform.system()}")
    name = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine().lower())
    if name not in ("x86_64", "aarch64"):
        raise ToolchainError(f"Metal text runs on x86_64 and aarch64 processors, not on {name}")
    return name


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.cache
def processor_features() -> str:
    """Return what `-march=native` depends on, so that a cache on a shared disk serves different machines."""
    try:
        first = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n", 1)[0]
    except OSError:
        return platform.processor()
    keys = ("model name", "cpu family", "model", "flags", "Features", "CPU implementer", "CPU part", "CPU variant")
    return "\n".join(line for line in first.splitlines() if line.split(":")[0].strip() in keys)


def find_toolchain(clang: str | None = None) -> Toolchain:
    """Return the compiler to use: `clang` if given, else the one named by METAL_ASSAY_CLANG, else ziglang's.

    Raises ToolchainError when there is none, or when the one named does not run.
    """
    return _find(clang or os.environ.get(CLANG_VARIABLE) or "")


@functools.cache
def _find(named: str) -> Toolchain:
    target = f"{machine()}-linux-gnu"
    if named:
        path = shutil.which(named)
        if path is None:
            raise ToolchainError(f"no program {named!r} here; let {CLANG_VARIABLE} name a clang, version 19 or later")
        # Debian's clang-19 goes with ld.lld-19.
        linker = shutil.which("ld.lld" + Path(named).name.removeprefix("clang")) or shutil.which("ld.lld")
        linker = linker or shutil.which("ld")
        if linker is None:
            raise ToolchainError(f"{path} is here, but no linker: install lld, or unset {CLANG_VARIABLE}")
        return Toolchain((path,), (path, "--driver-mode=g++"), (linker,), _version((path,)), target)
    zig = _zig()
    if zig is None:
        raise ToolchainError(
            "Metal text needs a clang to run on this machine's processor, and there is none: "
            f"pip install 'metal-assay[cpu]' (it brings ziglang), or let {CLANG_VARIABLE} name a clang >= 19"
        )
    return Toolchain((zig, "clang"), (zig, "c++"), (zig, "ld.lld"), _version((zig, "clang")), target)


def _zig() -> str | None:
    found = importlib.util.find_spec("ziglang")
    if found is None or not found.submodule_search_locations:
        return None
    program = Path(found.submodule_search_locations[0]) / "zig"
    return str(program) if program.exists() else None


def _version(clang: tuple[str, ...]) -> str:
    # Asking takes 40 ms; remembered for this very file.
    program = Path(clang[0]).resolve()
    status = program.stat()
    identity = cache.digest([*clang, str(program), str(status.st_size), str(status.st_mtime_ns)])
    path = cache.obtain(f"{identity}.version", lambda: _ask_version(clang))
    return path.read_bytes().split(b"\n", 1)[0].decode()


def _ask_version(clang: tuple[str, ...]) -> bytes:
    try:
        ran = subprocess.run([*clang, "--version"], capture_output=True, check=False)  # noqa: S603 - found on PATH
    except OSError as error:
        raise ToolchainError(f"{clang[0]} does not run: {error}") from None
    if ran.returncode:
        raise ToolchainError(f"{' '.join(clang)} --version failed: {ran.stderr.decode(errors='replace').strip()}")
    return ran.stdout
