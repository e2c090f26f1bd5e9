"""Compiles a translation unit with checks, and the runtime of checked kernels."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from impl.metal import cache
from impl.metal.checks.instrument import DECLARATIONS, instrument
from impl.metal.compiler import _BY_CONTENT, _MATH_FLAGS, _link, _precompiled, _run, front_end
from impl.metal.compiler import _OPTIMIZE as _AS_EVER
from impl.metal.compiler import _sources as _plain_sources
from impl.metal.errors import MetalTextError
from impl.metal.lowering import lower
from impl.metal.toolchain import PRELUDE, front_end_flags, processor_features

if TYPE_CHECKING:
    from impl.metal.toolchain import Toolchain

_HERE = Path(__file__).parent
_SOURCE = _HERE / "runtime" / "checked.cpp"
_DECISIVE = (
    "accesses",
    "arithmetic",
    "beginnings",
    "instrument",
    "lending",
    "llvm_text",
    "objects",
    "pointers",
    "table",
)
# Lines and columns for every instruction, and the author's names for variables. A frame larger than a stack and its
# guard must not reach beyond: each of its pages is touched in turn.
_DEBUG = ["-gline-tables-only", "-gcolumn-info", "-fno-discard-value-names", "-fstack-clash-protection"]
# Most of the time is the runtime's: more would only compile longer.
_OPTIMIZE = ["-O1", "-march=native"]


def checked_object(unit: str, buffers: int, math_mode: str, toolchain: Toolchain, name: str) -> Path:
    """Return the path of the compiled `unit` with checks, a kernel of `buffers` buffers; from the cache if it is there.

    Raises as `compiler.shared_object` does.
    """
    key = cache.digest(
        [
            "checked",
            *(unit, str(buffers), math_mode, _plain_sources(), _sources(), toolchain.version, toolchain.target),
            *(processor_features(), *front_end_flags()),
        ]
    )
    return cache.obtain(f"{key}.so", lambda: _build(unit, buffers, math_mode, toolchain, name))


def checked_runtime(toolchain: Toolchain) -> Path:
    """Return the path of the compiled runtime of checked kernels."""
    flags = ["-std=c++17", "-O2", "-fPIC", "-fno-exceptions", "-fno-rtti", "-nostdinc++", "-nostdlib++"]
    flags += ["-fvisibility=hidden", "-fno-sanitize=all", "-U_FORTIFY_SOURCE", "-D_GNU_SOURCE"]
    if toolchain.cxx[0] == toolchain.clang[0] and len(toolchain.clang) > 1:
        flags += ["-target", toolchain.target]
    key = cache.digest(["checked", _plain_sources(), _sources(), toolchain.version, toolchain.target, *flags])

    def build() -> bytes:
        with tempfile.TemporaryDirectory(prefix="metal-assay-") as folder:
            made = Path(folder) / "checked.o"
            _run([*toolchain.cxx, *flags, "-I", str(PRELUDE), "-c", str(_SOURCE), "-o", str(made)])
            return _link(toolchain, made)

    return cache.obtain(f"{key}.so", build)


def _build(unit: str, buffers: int, math_mode: str, toolchain: Toolchain, name: str) -> bytes:
    math = _MATH_FLAGS[math_mode]
    # As for plain kernels, whose precompiled prelude serves here, too.
    flags = [*toolchain.clang, *front_end_flags(), "-target", toolchain.target, *math, *_AS_EVER]
    flags += _BY_CONTENT
    header = _precompiled(tuple(flags), toolchain)
    with tempfile.TemporaryDirectory(prefix="metal-assay-") as folder:
        made = Path(folder)
        read = [*flags, "-Xclang", "-include-pch", "-Xclang", str(header), *_DEBUG]
        text, table = instrument(front_end(unit, name, read, made), buffers)
        try:
            lowered = lower(text)
        except MetalTextError as error:
            raise type(error)(f"kernel {name!r}: {error}") from None
        lowered = lowered.replace("@msl_rt_", "@msl_checked_")
        (made / "unit.ll").write_text(f"{lowered}\n{DECLARATIONS}{table.llvm()}", encoding="utf-8")
        back = [*toolchain.clang, "-x", "ir", "-target", toolchain.target, *math, *_OPTIMIZE]
        _run([*back, "-fPIC", "-w", "-c", str(made / "unit.ll"), "-o", str(made / "unit.o")])
        return _link(toolchain, made / "unit.o")


@functools.cache
def _sources() -> bytes:
    files = [*(_HERE / "runtime").iterdir(), *(_HERE / f"{name}.py" for name in _DECISIVE)]
    parts = [part for path in sorted(files) for part in (path.name, path.read_bytes())]
    return cache.digest(parts).encode()
