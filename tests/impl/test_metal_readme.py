"""The README of impl/metal: its example runs, its error is the real one, and its settings are all there are."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

import impl.metal
from impl.metal import CompileError, CpuBackend, metal_kernel
from impl.metal.native import ORDERS, Report

FOLDER = Path(impl.metal.__file__).parent
TEXT = (FOLDER / "README.md").read_text(encoding="utf-8")


@pytest.mark.skipif(mx.metal.is_available(), reason="the text is about other machines")
def test_example_runs() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)[:1]
    names: dict[str, Any] = {}
    exec(example, names)  # noqa: S102 - our own text
    np.testing.assert_allclose(np.array(names["y"]), np.exp(np.arange(64.0)), rtol=2.0**-23)


def test_error_is_the_one_shown() -> None:
    shown = TEXT.partition("impl.metal.errors.CompileError: ")[2].partition("\n```")[0]
    source = "uint i = thread_position_in_grid.x;\n  float v = missing(x[i]);\n  y[i] = v;"
    with pytest.raises(CompileError) as caught:
        metal_kernel("probe", ["x"], ["y"], source, backend="cpu")(
            inputs=[mx.zeros((8,))],
            grid=(1, 1, 1),
            threadgroup=(1, 1, 1),
            output_shapes=[(1,)],
            output_dtypes=[mx.int8],
        )
    assert str(caught.value).rstrip("~") == shown.rstrip("~")


def test_settings_are_complete() -> None:
    section = TEXT.partition("## Settings")[2].partition("\n## ")[0]
    table = "\n".join(line for line in section.splitlines() if line.startswith("|"))
    fields = {field.name for field in dataclasses.fields(CpuBackend)}
    variables = {
        name
        for path in [*FOLDER.glob("*.py"), *FOLDER.glob("cuda/*.py")]
        for name in re.findall(r'VARIABLE = "(\w+)"', path.read_text(encoding="utf-8"))
    }
    assert set(re.findall(r"`([a-z_]+)`", table)) == fields | {"forward", "reverse", "metal", "cuda", "cpu", "ziglang"}
    assert set(re.findall(r"`(METAL_\w+)`", table)) == variables


def test_words_of_the_readme_exist() -> None:
    assert all(f"`{order}`" in TEXT for order in ORDERS)
    assert {field.name for field in dataclasses.fields(Report)} >= {"divergent_simd"}
    for name in re.findall(r"`(\w+\.py|\w+/)`", TEXT):
        assert (FOLDER / name).exists(), name
