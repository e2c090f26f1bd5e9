"""`--metal-text` and `--allow-code` through the real command line and pytest."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import mlx.core as mx
import pytest

from harness.kinds.kernel.files import ALLOW_CODE_VARIABLE
from harness.worker import METAL_TEXT_VARIABLE

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

# A package that makes its kernel while it is imported, and only where it finds Metal.
SUBJECT = """
import mlx.core as mx
import numpy as np
from harness.subjects.mlx_kernel import MlxKernels
from harness.subjects.protocol import KernelAnswer, Subject, Unsupported

KERNEL = None
if mx.metal.is_available() and mx.default_device() == mx.gpu:
    KERNEL = mx.fast.metal_kernel("k", ["x"], ["y"], "y[thread_position_in_grid.x] = 2 * x[thread_position_in_grid.x];")


class Mine(Subject):
    name = "mine"

    def kernel(self):
        if KERNEL is None:
            raise Unsupported("no Metal")
        return MlxKernels(lambda **given: KERNEL)
"""
CASE = """
assay: 1
kind: kernel
title: t
why: w
given:
  source: "y[thread_position_in_grid.x] = 2 * x[thread_position_in_grid.x];"
  inputs: {x: {shape: [9]}}
  outputs: {y: {shape: [9], EXPECT}}
  grid: [9]
  threadgroup: [9]
check: [output]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(SUBJECT)
    (tmp_path / "cases").mkdir()
    (tmp_path / "cases" / "answers.py").write_text("def double(x):\n    return 2 * x\n")
    return tmp_path


def command(folder: Path, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    clean = {key: value for key, value in os.environ.items() if key not in (ALLOW_CODE_VARIABLE, METAL_TEXT_VARIABLE)}
    line = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(line, cwd=folder, env=clean, capture_output=True, text=True, check=False, timeout=120)
    assert "Traceback" not in done.stdout + done.stderr
    return done


def write(folder: Path, expect: str) -> None:
    (folder / "cases" / "double.yaml").write_text(CASE.replace("EXPECT", expect))


@pytest.mark.skipif(mx.metal.is_available(), reason="there is Metal")
def test_kernels_of_a_package_run_without_metal(folder: Path) -> None:
    write(folder, "expect: 2 * x")
    without = command(folder, "metal_assay.command", "run", "-q", "--subject", "mine.py:Mine")
    assert without.returncode == 0
    assert "no Metal" in without.stdout
    with_text = command(folder, "metal_assay.command", "run", "-q", "--subject", "mine.py:Mine", "--metal-text")
    assert with_text.returncode == 0
    assert ": 1 passed" in with_text.stdout
    assert "Metal text on cpu" in with_text.stdout
    pytest_line = ["-q", "-p", "no:cacheprovider", "--assay-subject", "mine.py:Mine", "cases"]
    assert "1 skipped" in command(folder, "pytest", *pytest_line).stdout
    assert "1 passed" in command(folder, "pytest", "--metal-text", *pytest_line).stdout


def test_python_of_a_case_needs_leave(folder: Path) -> None:
    write(folder, 'function: "answers.py:double"')
    refused = command(folder, "metal_assay.command", "run", "-q")
    assert refused.returncode == 2
    assert "add --allow-code if you trust it" in refused.stderr
    assert ": 1 passed" in command(folder, "metal_assay.command", "run", "-q", "--allow-code").stdout
    refused = command(folder, "pytest", "-q", "-p", "no:cacheprovider", "cases")
    assert refused.returncode == 2
    assert "add --allow-code if you trust it" in refused.stdout
    assert "1 passed" in command(folder, "pytest", "-q", "-p", "no:cacheprovider", "--allow-code", "cases").stdout
