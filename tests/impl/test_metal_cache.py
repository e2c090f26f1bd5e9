"""The cache on disk: found again, whole or not at all, bounded, and safe with several processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from impl.metal import (
    CompileError,
    CpuBackend,
    MetalKernel,
    ToolchainError,
    cache,
    compile_all,
    compiler,
    metal_kernel,
)
from impl.metal.toolchain import Toolchain


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(cache.DIRECTORY_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


class Builds:
    """A build that counts how often it was asked for."""

    def __init__(self, data: bytes = b"built") -> None:
        self.count, self.data = 0, data

    def __call__(self) -> bytes:
        self.count += 1
        return self.data


def test_entry_is_built_once(folder: Path) -> None:
    build = Builds()
    first, second = cache.obtain("entry", build), cache.obtain("entry", build)
    assert first == second == folder / "entry"
    assert build.count == 1
    assert first.read_bytes().startswith(b"built")


@pytest.mark.parametrize("damage", [b"", b"bui", b"bXilt", b"built and more"])
@pytest.mark.usefixtures("folder")
def test_damaged_entry_is_built_again(damage: bytes) -> None:
    path = cache.obtain("entry", Builds())
    whole = path.read_bytes()
    path.write_bytes(damage + whole[5:] if damage else b"")
    build = Builds()
    cache.obtain("entry", build)
    assert build.count == 1
    assert path.read_bytes() == whole


def test_failed_build_leaves_nothing(folder: Path) -> None:
    def fail() -> bytes:
        raise CompileError("no")

    with pytest.raises(CompileError):
        cache.obtain("entry", fail)
    assert not folder.exists() or list(folder.iterdir()) == []


def test_border_between_parts_counts() -> None:
    assert cache.digest(["ab", "c"]) != cache.digest(["a", "bc"])


def test_pruning_drops_what_was_not_used_for_longest(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for age, name in enumerate("abc"):
        path = cache.obtain(name, Builds(bytes(1 << 19)))
        os.utime(path, (1000 - age, 1000 - age))
    cache.obtain("c", Builds())  # used again: now the newest
    monkeypatch.setenv(cache.SIZE_VARIABLE, "1")
    cache.obtain("d", Builds(b""))
    assert sorted(path.name for path in folder.iterdir()) == ["c", "d"]


KERNEL = "y[thread_position_in_grid.x] = x[thread_position_in_grid.x] + N;"
ARGUMENTS: dict[str, Any] = {
    "inputs": [mx.ones((64,))],
    "grid": (64, 1, 1),
    "threadgroup": (32, 1, 1),
    "output_shapes": [(64,)],
    "output_dtypes": [mx.float32],
}


def number(n: Any) -> float:
    kernel = metal_kernel("number", ["x"], ["y"], KERNEL, backend="cpu")
    (y,) = kernel(**ARGUMENTS, template=[("N", n)])
    value: float = y[0].item()
    return value


def test_true_and_one_are_different_templates() -> None:
    kernel = metal_kernel("number", ["x"], ["y"], "y[thread_position_in_grid.x] = sizeof(decltype(N));", backend="cpu")
    sizes = [kernel(**ARGUMENTS, template=[("N", n)])[0][0].item() for n in (1, True, 1)]
    assert sizes == [4, 1, 4]


def test_cached_kernel_loads_in_five_milliseconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[Path] = []
    obtain = cache.obtain

    def noted(name: str, build: Any) -> Path:
        used.append(obtain(name, build))
        return used[-1]

    monkeypatch.setattr(cache, "obtain", noted)
    assert number(1) == 2
    needed, times = list(used), []
    for i in range(5):
        # Under a new path nothing of it is loaded yet.
        (tmp_path / str(i)).mkdir()
        for path in needed:
            shutil.copy(path, tmp_path / str(i))
        monkeypatch.setenv(cache.DIRECTORY_VARIABLE, str(tmp_path / str(i)))
        times.append(_timed(lambda: number(1)))
        assert len(list((tmp_path / str(i)).iterdir())) == len(set(needed))  # nothing was compiled
    assert min(times) < 0.005


def _timed(call: Any) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def test_batch_reports_each_kernel() -> None:
    def kernel(source: str) -> MetalKernel:
        made = metal_kernel("batch", ["x"], ["y"], source, backend="cpu")
        assert isinstance(made, MetalKernel)
        return made

    results = compile_all([(kernel("y[0] = x[0];"), ARGUMENTS), (kernel("y[0] = missing;"), ARGUMENTS)], workers=2)
    assert results[0] is None
    assert isinstance(results[1], CompileError)


def test_threads_share_a_kernel_with_threadgroup_memory() -> None:
    source = """
        threadgroup float s[64];
        uint t = thread_index_in_threadgroup, i = thread_position_in_grid.x;
        s[t] = x[i % 64] * float(i);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        y[i] = s[63 - t];
    """
    kernel = metal_kernel("shared", ["x"], ["y"], source, backend=CpuBackend(threads=2))
    wide = {**ARGUMENTS, "grid": (4096, 1, 1), "threadgroup": (64, 1, 1), "output_shapes": [(4096,)]}
    right = np.arange(4096, dtype=np.float32).reshape(64, 64)[:, ::-1].reshape(-1)
    mx.eval(ARGUMENTS["inputs"])  # by this thread, whose work it is
    wrong: list[int] = []

    def work() -> None:
        wrong.extend(i for i in range(20) if not np.array_equal(np.array(kernel(**wide)[0]), right))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_forked_child_has_its_own_threads() -> None:
    kernel = metal_kernel("number", ["x"], ["y"], KERNEL, backend=CpuBackend(threads=2))
    kernel(**ARGUMENTS, template=[("N", 1)])
    # MLX itself is not made for this, so the child uses nothing of it but arrays that are there.
    program = (
        "import os, sys, mlx.core as mx\n"
        "from impl.metal import CpuBackend, metal_kernel\n"
        f"kernel = metal_kernel('number', ['x'], ['y'], {KERNEL!r}, backend=CpuBackend(threads=2))\n"
        "def run():\n"
        "    x = mx.array([1] * 64)\n"
        "    return kernel(inputs=[x], template=[('N', 1)], grid=(64, 1, 1), threadgroup=(32, 1, 1),\n"
        "                  output_shapes=[(64,)], output_dtypes=[mx.int32])[0]\n"
        "run()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    os._exit(0 if memoryview(run())[0] == 2 else 1)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == 0


@pytest.mark.slow
def test_processes_that_build_at_once_all_succeed(folder: Path) -> None:
    program = (
        "import mlx.core as mx\n"
        "from impl.metal import metal_kernel\n"
        f"kernel = metal_kernel('number', ['x'], ['y'], {KERNEL!r}, backend='cpu')\n"
        "y = kernel(inputs=[mx.ones((64,))], template=[('N', 1)], grid=(64, 1, 1), threadgroup=(32, 1, 1),\n"
        "           output_shapes=[(64,)], output_dtypes=[mx.float32])[0]\n"
        "assert y[0].item() == 2\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(4)]
    assert [process.wait(timeout=120) for process in running] == [0] * 4
    # Toolchain version, prelude, kernel, runtime; no temporary file is left.
    assert sorted(path.suffix for path in folder.iterdir()) == [".pch", ".so", ".so", ".version"]


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_kernel_compiles_in_half_a_second() -> None:
    number(1)
    best = min(_timed(lambda n=n: number(n)) for n in range(2, 7))
    assert best < 0.5


@pytest.mark.slow
@pytest.mark.parametrize("clang", ["clang-19", "clang-20", "clang-21", "clang-22"])
@pytest.mark.usefixtures("folder")
def test_system_compilers_agree(clang: str) -> None:
    if shutil.which(clang) is None:
        pytest.skip(f"no {clang} on this machine")
    kernel = metal_kernel("number", ["x"], ["y"], KERNEL, backend=CpuBackend(clang=clang))
    assert kernel(**ARGUMENTS, template=[("N", 41)])[0][0].item() == 42


def test_key_holds_all_that_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []

    def note(name: str, _: Any) -> Path:
        names.append(name)
        return Path(name)

    monkeypatch.setattr(cache, "obtain", note)
    here = Toolchain(("clang",), ("clang++",), ("ld",), "clang 19", "x86_64-linux-gnu")

    def key() -> None:
        compiler.shared_object("text", "safe", here, "name")

    key()
    key()
    assert len(set(names)) == 1
    compiler.shared_object("text 2", "safe", here, "name")
    compiler.shared_object("text", "fast", here, "name")
    compiler.shared_object("text", "safe", replace(here, version="clang 22"), "name")
    compiler.shared_object("text", "safe", replace(here, target="aarch64-linux-gnu"), "name")
    monkeypatch.setattr(compiler, "processor_features", lambda: "another processor")
    key()
    monkeypatch.setattr(compiler, "_sources", lambda: b"another prelude or runtime")
    key()
    assert len(set(names)) == 7


def test_folder_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv(cache.DIRECTORY_VARIABLE, str(tmp_path / "file" / "cache"))
    with pytest.raises(ToolchainError, match=r"compiled kernels cannot be kept in .*file/cache .*METAL_ASSAY_CACHE"):
        cache.obtain("entry", Builds())


def test_size_that_is_no_number_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.SIZE_VARIABLE, "big")
    with pytest.raises(ToolchainError, match="METAL_ASSAY_CACHE_MIB='big' is not a whole number"):
        cache.obtain("entry", Builds())
    assert (folder / "entry").exists()
