"""From a translation unit to a shared object: front end, two edits, optimizer, linker."""

from __future__ import annotations

import functools
import subprocess
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from impl.metal import cache, diagnostics, restrictions
from impl.metal.errors import MetalTextError, ToolchainError
from impl.metal.lowering import lower
from impl.metal.toolchain import HERE, PRELUDE, RUNTIME, front_end_flags, processor_features

if TYPE_CHECKING:
    from impl.metal.toolchain import Toolchain

# What MLX's compile option `math_mode` means to clang. Metal's safe mode keeps infinities and NaNs, and may contract
# a * b + c written in one expression.
_MATH_FLAGS = {
    "safe": ["-ffp-contract=on"],
    "relaxed": [
        "-ffp-contract=on",
        "-fassociative-math",
        "-freciprocal-math",
        "-fno-signed-zeros",
        "-fno-trapping-math",
    ],
    "fast": ["-ffast-math"],
}
_OPTIMIZE = ["-O3", "-march=native"]
# Variables that fill more than the guard behind a thread's stack must not step over it.
_PROBED = ["-fstack-clash-protection"]
# Modules that decide what comes out for a translation unit, or whether it is refused.
_DECISIVE = ("compiler", "convergence", "lowering", "restrictions", "syntax_tree", "vector_lowering")
# A precompiled header is valid while its files have the same content, whatever their dates.
_BY_CONTENT = ["-Xclang", "-fvalidate-ast-input-files-content"]


def shared_object(unit: str, math_mode: str, toolchain: Toolchain, name: str) -> Path:
    """Return the path of the compiled `unit` (the text after the includes), from the cache when it is there.

    Raises CompileError with clang's message at the kernel's own line, and NotCoveredError.
    """
    key = cache.digest(
        [unit, math_mode, _sources(), toolchain.version, toolchain.target, processor_features(), *front_end_flags()]
    )
    return cache.obtain(f"{key}.so", lambda: _build(unit, math_mode, toolchain, name))


def runtime_library(toolchain: Toolchain) -> Path:
    """Return the path of the compiled runtime."""
    flags = ["-std=c++17", "-O2", "-fPIC", "-fno-exceptions", "-fno-rtti", "-nostdinc++", "-nostdlib++"]
    flags += ["-fvisibility=hidden", "-fno-sanitize=all", "-U_FORTIFY_SOURCE", "-D_GNU_SOURCE"]
    if toolchain.cxx[0] == toolchain.clang[0] and len(toolchain.clang) > 1:
        flags += ["-target", toolchain.target]
    key = cache.digest([_sources(), toolchain.version, toolchain.target, *flags])

    def build() -> bytes:
        with tempfile.TemporaryDirectory(prefix="metal-assay-") as folder:
            made = Path(folder)
            source = str(RUNTIME / "runtime.cpp")
            _run([*toolchain.cxx, *flags, "-I", str(PRELUDE), "-c", source, "-o", str(made / "runtime.o")])
            return _link(toolchain, made / "runtime.o")

    return cache.obtain(f"{key}.so", build)


def _build(unit: str, math_mode: str, toolchain: Toolchain, name: str) -> bytes:
    flags = [*toolchain.clang, *front_end_flags(), "-target", toolchain.target, *_MATH_FLAGS[math_mode], *_OPTIMIZE]
    flags += _BY_CONTENT
    header = _precompiled(tuple(flags), toolchain)
    with tempfile.TemporaryDirectory(prefix="metal-assay-") as folder:
        made = Path(folder)
        read = ["-Xclang", "-include-pch", "-Xclang", str(header), *_PROBED]
        text = front_end(unit, name, [*flags, *read], made)
        try:
            lowered = lower(text)
        except MetalTextError as error:
            raise type(error)(f"kernel {name!r}: {error}") from None
        (made / "unit.ll").write_text(lowered, encoding="utf-8")
        back = [*toolchain.clang, "-x", "ir", "-target", toolchain.target, *_MATH_FLAGS[math_mode], *_OPTIMIZE]
        _run([*back, "-fPIC", "-w", "-c", str(made / "unit.ll"), "-o", str(made / "unit.o")])
        return _link(toolchain, made / "unit.o")


def front_end(unit: str, name: str, command: list[str], folder: Path) -> str:
    """Return unoptimized LLVM text of `unit`, which `command` reads and which is Metal as far as can be checked."""
    (folder / "unit.cl").write_text(unit, encoding="utf-8")
    front = [*command, "-ferror-limit=8", str(folder / "unit.cl")]
    # Two front ends at once: one writes LLVM text, the other shows the syntax tree to be searched.
    tree = _start([*front, "-fsyntax-only", "-w", "-Xclang", "-ast-dump"])
    code = _start([*front, "-Xclang", "-disable-llvm-passes", "-S", "-emit-llvm", "-o", str(folder / "unit.ll")])
    seen, _ = tree.communicate()
    _, complaint = code.communicate()
    if code.returncode:
        raise diagnostics.compile_error(name, complaint)
    restrictions.check(name, seen, unit)
    return (folder / "unit.ll").read_text(encoding="utf-8")


def precompiled(source: Path, contents: bytes, flags: tuple[str, ...], toolchain: Toolchain) -> Path:
    """Return the path of the precompiled header `source`, whose files have the digest `contents`."""
    # Its files are known by their paths: beside another copy of this project it would not keep them from being
    # included a second time.
    key = cache.digest([str(HERE), contents, toolchain.version, processor_features(), *flags])

    def build() -> bytes:
        with tempfile.TemporaryDirectory(prefix="metal-assay-") as folder:
            made = Path(folder) / "prelude.pch"
            _run([*flags, "-I", str(source.parent), "-S", "-Xclang", "-emit-pch", str(source), "-o", str(made)])
            return made.read_bytes()

    return cache.obtain(f"{key}.pch", build)


def _precompiled(flags: tuple[str, ...], toolchain: Toolchain) -> Path:
    # The prelude is thousands of lines: parsed once for each set of flags, it costs a kernel nothing.
    return precompiled(RUNTIME / "precompiled.h", _sources(), flags, toolchain)


@functools.cache
def _sources() -> bytes:
    files = [*PRELUDE.rglob("*"), *RUNTIME.rglob("*"), *(HERE / f"{name}.py" for name in _DECISIVE)]
    names = sorted(path for path in files if path.is_file())
    parts = [part for path in names for part in (path.name, path.read_bytes())]
    return cache.digest([version("mlx"), *parts]).encode()


def _link(toolchain: Toolchain, made: Path) -> bytes:
    # No libc is linked in or named: what is missing is found in the process that loads this. `now` looks everything
    # up at load, so that a launch that is stopped never stops inside the dynamic linker.
    out = made.with_suffix(".so")
    _run([*toolchain.linker, "-shared", "-z", "now", "--build-id=none", str(made), "-o", str(out)])
    return out.read_bytes()


def _start(command: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(  # noqa: S603 - the compiler that find_toolchain found
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8", errors="replace"
    )


def _run(command: list[str]) -> None:
    """Run the compiler. Raises ToolchainError with what it wrote when it fails."""
    ran = subprocess.run(  # noqa: S603 - the compiler that find_toolchain found
        command, capture_output=True, text=True, errors="replace", check=False
    )
    if ran.returncode:
        raise ToolchainError(f"{' '.join(command)}\n{ran.stderr.strip()[:4000]}")
