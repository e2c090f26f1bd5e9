"""Layers: what they multiply, what a rotation does to outliers, how many bits they take, and their files."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
import pytest

from impl.metal.errors import ToolchainError
from impl.trellis import codebooks, linear
from impl.trellis.codebooks import codeword_table, register_table
from impl.trellis.errors import (
    OddBlocksError,
    TrellisFileError,
    TrellisFormatError,
    TrellisMatrixError,
    TrellisShapeError,
    TrellisVersionError,
)
from impl.trellis.linear import Rotation, TrellisLinear, linear_encoder, output_columns, quantize_linear, with_layout
from impl.trellis.products import CodedMatrix, product
from impl.trellis.rotation import random_signs, rotate, rotate_back, rotation_block
from impl.trellis.saving import load_linear, save_linear

if TYPE_CHECKING:
    from pathlib import Path

INPUTS, OUTPUTS = 96, 300


def weight(seed: int = 0) -> mx.array:
    return mx.array(np.random.default_rng(seed).standard_normal((INPUTS, OUTPUTS)).astype(np.float32))


def relative_error(layer: TrellisLinear, wanted: mx.array) -> float:
    found, truth = np.array(layer.matrix(), np.float64), np.array(wanted, np.float64)
    return float(((found - truth) ** 2).mean() / (truth**2).mean())


@pytest.fixture(scope="module")
def layer() -> TrellisLinear:
    return quantize_linear(weight(), 3, 8, seed=5)


@pytest.mark.parametrize("rotated", [False, True])
@pytest.mark.parametrize("interleave", [False, True])
def test_a_product_is_that_with_the_decoded_matrix(rotated: bool, interleave: bool) -> None:
    layer = quantize_linear(weight(), 2, 8, rotate_both_sides=rotated, interleave=interleave)
    assert layer.layout.columns == 512
    x = mx.array(np.random.default_rng(1).standard_normal((2, 3, INPUTS)).astype(np.float32))
    wanted = np.array(x, np.float64) @ np.array(layer.matrix(), np.float64)
    assert layer(x).shape == (2, 3, OUTPUTS)
    np.testing.assert_allclose(np.array(layer(x)), wanted, atol=2e-5 * float(np.abs(wanted).max()))
    # .0873 is the error of normal numbers.
    assert relative_error(layer, weight()) < 0.091


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16])
def test_the_result_has_the_dtype_of_the_vector(layer: TrellisLinear, dtype: mx.Dtype) -> None:
    x = weight(3)[:, :1].T.astype(dtype)
    assert layer(x).dtype == dtype
    assert mx.array_equal(layer(x), layer(x.astype(mx.float32)).astype(dtype))


def test_few_vectors_take_a_kernel_and_many_the_decoded_matrix(layer: TrellisLinear, monkeypatch: Any) -> None:
    used: list[int] = []

    def counted(matrix: CodedMatrix, x: mx.array) -> mx.array:
        used.append(x.shape[0])
        return product(matrix, x)

    monkeypatch.setattr(linear, "product", counted)
    for count in (1, linear.KERNEL_VECTORS, linear.KERNEL_VECTORS + 1):
        x = mx.array(np.random.default_rng(count).standard_normal((count, INPUTS)).astype(np.float32))
        wanted = np.array(x, np.float64) @ np.array(layer.matrix(), np.float64)
        np.testing.assert_allclose(np.array(layer(x)), wanted, atol=2e-5 * float(np.abs(wanted).max()))
    assert used == [1, linear.KERNEL_VECTORS]
    assert layer(mx.zeros((0, INPUTS))).shape == (0, OUTPUTS)


def test_where_no_kernel_can_run_the_product_is_the_same(layer: TrellisLinear, monkeypatch: Any) -> None:
    x = weight(7)[:, :2].T
    wanted = np.array(layer(x))
    traced = mx.compile(layer.__call__)(x)
    np.testing.assert_allclose(np.array(traced), wanted, atol=2e-5 * float(np.abs(wanted).max()))

    def no_compiler(*_: Any) -> None:
        raise ToolchainError("there is none")

    monkeypatch.setattr(linear, "product", no_compiler)
    np.testing.assert_allclose(np.array(layer(x)), wanted, atol=2e-5 * float(np.abs(wanted).max()))


def test_gradients_are_those_of_the_decoded_matrix(layer: TrellisLinear) -> None:
    x, turn = weight(8)[:, :3].T, mx.array(np.random.default_rng(9).standard_normal((3, OUTPUTS)).astype(np.float32))
    found = mx.grad(lambda vectors: (layer(vectors) * turn).sum())(x)
    wanted = np.array(turn, np.float64) @ np.array(layer.matrix(), np.float64).T
    np.testing.assert_allclose(np.array(found), wanted, atol=2e-5 * float(np.abs(wanted).max()))


def test_padding_is_spread_where_blocks_are_rotated() -> None:
    # 576 columns of 768: a last block with 64 of them would be half as wide as the others, and share their scale.
    wanted = mx.array(np.random.default_rng(4).standard_normal((128, 576)).astype(np.float32))
    for rotated in (False, True):
        layer = quantize_linear(wanted, 3, 8, rotate_both_sides=rotated)
        assert layer.layout.columns == 768
        assert relative_error(layer, wanted) < 0.0263 * 1.03
    places = np.array(output_columns(576, 768, rotated=True))
    assert len(np.unique(places)) == 576
    assert np.bincount(places // 256).tolist() == [192, 192, 192]


def test_a_rotation_takes_care_of_outliers() -> None:
    rng = np.random.default_rng(2)
    spiky = mx.array(
        (rng.standard_normal((128, 256)) * np.where(rng.random((128, 256)) < 0.02, 12, 1)).astype(np.float32)
    )
    plain, rotated = (quantize_linear(spiky, 3, 8, rotate_both_sides=both) for both in (False, True))
    # With 8 bits of state .0263 is what normal numbers have.
    assert relative_error(rotated, spiky) < 0.03
    assert relative_error(plain, spiky) > 1.5 * relative_error(rotated, spiky)


def test_signs_are_those_of_the_seed() -> None:
    assert mx.array_equal(random_signs(64, 1), random_signs(64, 1))
    assert not mx.array_equal(random_signs(64, 1), random_signs(64, 2))
    assert np.unique(np.array(random_signs(64, 1))).tolist() == [-1, 1]
    one, other = (linear_encoder(weight(), 2, 8, seed=seed).rotation for seed in (1, 2))
    assert one is not None
    assert other is not None
    assert not mx.array_equal(one.row_signs, other.row_signs)
    assert not mx.array_equal(one.row_signs, one.column_signs[:INPUTS])


@pytest.mark.parametrize(("size", "block"), [(32, 32), (96, 32), (512, 512), (384, 128), (896, 128), (16384, 8192)])
def test_rotations_keep_lengths_and_come_back(size: int, block: int) -> None:
    x = mx.array(np.random.default_rng(size).standard_normal((3, size)).astype(np.float32))
    signs = random_signs(size, 7)
    turned = rotate(x, signs)
    assert rotation_block(size) == block
    np.testing.assert_allclose(np.array(rotate_back(turned, signs)), np.array(x), atol=1e-5)
    spike = rotate(mx.array(np.arange(size)[None] == 0).astype(mx.float32), mx.ones(size, mx.int8))
    np.testing.assert_allclose(np.abs(np.array(spike))[0, :block], block**-0.5, rtol=1e-6)
    assert not np.array(spike)[0, block:].any()


def test_sizes_without_a_block_are_refused() -> None:
    with pytest.raises(TrellisFormatError, match="rotate_both_sides=False"):
        rotation_block(100)
    with pytest.raises(TrellisFormatError, match="100 entries"):
        quantize_linear(weight()[:90, :100].T, 2, 8)
    assert quantize_linear(weight()[:90], 2, 8, rotate_both_sides=False).inputs == 90


def test_bits_a_weight_count_scales_signs_and_padding(layer: TrellisLinear) -> None:
    stored = INPUTS * 512 * 3 + 32 * INPUTS + INPUTS + 512
    assert layer.bits_per_weight() == stored / (INPUTS * OUTPUTS)
    assert replace(layer, rotation=None).bits_per_weight() == (stored - INPUTS - 512) / (INPUTS * OUTPUTS)


def test_a_layer_can_be_made_in_parts() -> None:
    making = linear_encoder(weight(), 2, 8, seed=1)
    making.rows.run(rows=10)
    with pytest.raises(TrellisMatrixError, match="10 of 96"):
        making.linear()
    seen: list[int] = []
    making.rows.run(lambda done, _rows: seen.append(done))
    assert seen[-1] == INPUTS
    assert mx.array_equal(making.linear().codes, quantize_linear(weight(), 2, 8, seed=1).codes)


def test_the_other_layout_is_the_same_matrix() -> None:
    layer = quantize_linear(mx.tile(weight(), (1, 3)), 3, 8)
    other = with_layout(layer, interleave=True)
    assert not mx.array_equal(other.codes, layer.codes)
    assert mx.array_equal(other.matrix(), layer.matrix())
    assert mx.array_equal(with_layout(other, interleave=False).codes, layer.codes)
    with pytest.raises(OddBlocksError):
        with_layout(quantize_linear(weight()[:, :256], 2, 8), interleave=True)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"codes": mx.zeros(3, mx.uint32)}, "codes are"),
        ({"scales": mx.ones(INPUTS + 1)}, r"float32 \[96\]"),
        ({"outputs": 513}, "1 to 512"),
        ({"rotation": Rotation(mx.ones(INPUTS), mx.ones(512))}, "int8"),
    ],
)
def test_parts_that_do_not_belong_together_are_refused(
    layer: TrellisLinear, change: dict[str, Any], words: str
) -> None:
    with pytest.raises(TrellisShapeError, match=words):
        replace(layer, **change)


def test_vectors_of_another_length_are_refused(layer: TrellisLinear) -> None:
    for x in (mx.zeros((2, 95)), mx.zeros((2, INPUTS), mx.int32), mx.array(1.0)):
        with pytest.raises(TrellisShapeError, match="96"):
            layer(x)
    with pytest.raises(TrellisMatrixError, match="float matrix"):
        quantize_linear(mx.zeros((3, 4, 5)), 2)


@pytest.mark.parametrize("rotated", [False, True])
def test_a_file_gives_back_the_layer(tmp_path: Path, layer: TrellisLinear, rotated: bool) -> None:
    path, saved = tmp_path / "layer.safetensors", layer if rotated else replace(layer, rotation=None)
    save_linear(path, saved)
    loaded = load_linear(path)
    assert (loaded.layout, loaded.outputs, loaded.rotation is None) == (saved.layout, saved.outputs, not rotated)
    assert mx.array_equal(loaded.matrix(), saved.matrix())


def test_a_table_of_its_own_travels_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codebooks, "_TABLES", {})
    codeword_table.cache_clear()
    register_table("own", mx.array(np.random.default_rng(9).standard_normal(256).astype(np.float32)))
    made = quantize_linear(weight(), 2, 8, codebook="own")
    assert relative_error(made, weight()) < 0.1
    path = tmp_path / "layer.safetensors"
    save_linear(path, made)
    matrix = made.matrix()
    mx.eval(matrix)
    codebooks._TABLES.clear()
    codeword_table.cache_clear()
    assert mx.array_equal(load_linear(path).matrix(), matrix)
    codebooks._TABLES["own"] = mx.zeros(256)
    with pytest.raises(TrellisFileError, match="exists with other values"):
        load_linear(path)
    codeword_table.cache_clear()


def _cut(data: bytes) -> bytes:
    return data[:-5]


def _edited(old: bytes, new: bytes) -> Any:
    def edit(data: bytes) -> bytes:
        (length,) = struct.unpack("<Q", data[:8])
        header, rest = data[8 : 8 + length].rstrip(), data[8 + length :]
        assert old in header
        header = header.replace(old, new)
        return struct.pack("<Q", len(header)) + header + rest

    return edit


@pytest.mark.parametrize(
    ("damage", "error", "words"),
    [
        (_cut, TrellisFileError, "its tensors need"),
        (lambda data: data[:4], TrellisFileError, "length of its header"),
        (lambda _data: b"not a file of this sort", TrellisFileError, "safetensors"),
        (_edited(b'"version":"1"', b'"version":"2"'), TrellisVersionError, "version 2 of the format"),
        (_edited(b'"impl-trellis"', b'"impl-cache"'), TrellisFileError, "no trellis layer of save_linear"),
        (_edited(b'\\"bits\\":3', b'\\"bits\\":2'), TrellisFileError, r"tensor codes is \[4608\]"),
        (_edited(b'\\"bits\\":3', b'\\"bits\\":33'), TrellisFileError, "bits=33"),
        (_edited(b'\\"rows\\":96', b'\\"rows\\":95'), TrellisFileError, "tensor codes"),
        (_edited(b'\\"outputs\\":300', b'\\"outputs\\":513'), TrellisFileError, "outputs must be"),
        (_edited(b'\\"1mad\\"', b'\\"9mad\\"'), TrellisFileError, "9mad"),
        (_edited(b'\\"rotated\\":true', b'\\"rotated\\":false'), TrellisFileError, "belong to nothing"),
        (_edited(b'\\"rotated\\":true', b'\\"rotation\\":true'), TrellisFileError, "rotated is missing"),
    ],
)
def test_damaged_files_are_named(
    tmp_path: Path, layer: TrellisLinear, damage: Any, error: type[Exception], words: str
) -> None:
    path = tmp_path / "layer.safetensors"
    save_linear(path, layer)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(error, match=words) as caught:
        load_linear(path)
    assert str(path) in str(caught.value)


def test_signs_and_scales_that_can_not_be_are_refused(tmp_path: Path, layer: TrellisLinear) -> None:
    assert layer.rotation is not None
    path = tmp_path / "layer.safetensors"
    save_linear(path, replace(layer, scales=layer.scales / 0))
    with pytest.raises(TrellisFileError, match="scales are not all finite"):
        load_linear(path)
    save_linear(path, replace(layer, rotation=replace(layer.rotation, row_signs=layer.rotation.row_signs * 2)))
    with pytest.raises(TrellisFileError, match="not all 1 or -1"):
        load_linear(path)


def test_a_missing_file_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load_linear(tmp_path / "nothing.safetensors")
