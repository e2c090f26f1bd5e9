"""Encoding of matrices: scales, gains, zeros, interruptions, and files to go on from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
import pytest

from impl.trellis.codebooks import codebook_rms
from impl.trellis.decode import decode
from impl.trellis.encoder import MatrixEncoder, encode_matrix
from impl.trellis.errors import TrellisFileError, TrellisFormatError, TrellisMatrixError
from impl.trellis.gains import best_gain, error_by_gain
from impl.trellis.layout import TrellisFormat
from impl.trellis.saving import load_progress, save_progress

if TYPE_CHECKING:
    from pathlib import Path

FORM = TrellisFormat(rows=6, columns=512, bits=3, state_bits=8, interleave=True)


def matrix(form: TrellisFormat = FORM, seed: int = 0) -> mx.array:
    rng = np.random.default_rng(seed)
    widths = np.geomspace(0.01, 50, form.rows)[:, None]
    return mx.array((rng.standard_normal((form.rows, form.columns)) * widths).astype(np.float32))


def errors(codes: mx.array, scales: mx.array, wanted: mx.array, form: TrellisFormat = FORM) -> np.ndarray[Any, Any]:
    away = np.array(decode(codes, scales, form), np.float64) - np.array(wanted, np.float64)
    return np.asarray((away**2).sum(axis=1))


def test_a_row_is_as_wide_as_its_gain_says() -> None:
    wanted = matrix()
    _, scales = encode_matrix(wanted, FORM, (1.1,), refit=False)
    rms = np.sqrt(np.mean(np.array(wanted, np.float64) ** 2, axis=1))
    np.testing.assert_allclose(np.array(scales), 1.1 * rms / codebook_rms("1mad", 8), rtol=1e-6)


def test_a_refitted_scale_is_the_best_for_its_path() -> None:
    wanted = matrix()
    codes, scales = encode_matrix(wanted, FORM)
    found = errors(codes, scales, wanted)
    for factor in (0.99, 1.01):
        assert (errors(codes, scales * factor, wanted) > found).all()
    plain = encode_matrix(wanted, FORM, refit=False)
    assert (found < errors(*plain, wanted)).all()


def test_every_row_keeps_the_gain_that_comes_nearest() -> None:
    wanted = matrix()
    alone = [errors(*encode_matrix(wanted, FORM, (gain,)), wanted) for gain in (0.9, 1.0, 1.1)]
    both = errors(*encode_matrix(wanted, FORM, (0.9, 1.0, 1.1)), wanted)
    np.testing.assert_allclose(both, np.min(alone, axis=0), rtol=1e-4)
    # Or else the rows agree on one, and the test says nothing.
    assert len(set(np.argmin(alone, axis=0))) > 1


def test_row_errors_are_those_of_the_decoded_rows() -> None:
    wanted = matrix()
    for refit in (False, True):
        encoder = MatrixEncoder(wanted, FORM, (1.0, 1.05), refit=refit)
        assert encoder.run()
        np.testing.assert_allclose(np.array(encoder.row_errors()), errors(*encoder.result(), wanted), rtol=1e-3)


def test_given_scales_are_kept_and_decoded_matrices_come_back() -> None:
    codes, scales = encode_matrix(matrix(), FORM)
    scales = scales * mx.array([1, -1] * 3)
    decoded = decode(codes, scales, FORM)
    again, kept = encode_matrix(decoded, FORM, scales=scales)
    assert mx.array_equal(kept, scales)
    assert mx.array_equal(decode(again, kept, FORM), decoded)


@pytest.mark.parametrize("scales", [None, mx.array([0.0, 1, 1, 1, 1, 1])])
def test_rows_of_zeros_are_zeros(scales: mx.array | None) -> None:
    wanted = mx.concatenate([mx.zeros((1, 512)), matrix()[1:]])
    codes, found = encode_matrix(wanted, FORM, (1.0, 1.1), scales=scales)
    assert found[0].item() == 0
    assert mx.array_equal(decode(codes, found, FORM)[0], mx.zeros(512))
    assert mx.isfinite(found).all()


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16])
def test_any_float_type_is_encoded_as_float32(dtype: mx.Dtype) -> None:
    narrow = matrix().astype(dtype)
    here, there = encode_matrix(narrow, FORM), encode_matrix(narrow.astype(mx.float32), FORM)
    assert all(mx.array_equal(one, other) for one, other in zip(here, there, strict=True))


def test_interrupted_work_is_kept_and_goes_on() -> None:
    whole = encode_matrix(matrix(), FORM)
    encoder = MatrixEncoder(matrix(), FORM)
    encoder.chunk_rows = 2

    def interrupt(done: int, rows: int) -> None:
        assert rows == 6
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        encoder.run(interrupt)
    assert encoder.rows_done == 4
    with pytest.raises(TrellisMatrixError, match="4 of 6 rows"):
        encoder.result()
    seen: list[int] = []
    assert encoder.run(lambda done, _rows: seen.append(done))
    assert seen == [6]
    assert all(mx.array_equal(one, other) for one, other in zip(encoder.result(), whole, strict=True))


def test_a_part_that_is_interrupted_itself_is_lost_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = MatrixEncoder(matrix(), FORM)
    encoder.chunk_rows = 2
    encoder.run(rows=2)
    with monkeypatch.context() as patched:
        patched.setattr(encoder, "_refit", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            encoder.run()
    assert encoder.rows_done == 2
    assert encoder.run()
    assert all(
        mx.array_equal(one, other) for one, other in zip(encoder.result(), encode_matrix(matrix(), FORM), strict=True)
    )


@pytest.mark.parametrize("rows", [0, 3])
def test_progress_goes_on_in_another_process(tmp_path: Path, rows: int) -> None:
    path, first = tmp_path / "progress.safetensors", MatrixEncoder(matrix(), FORM, (1.0, 1.1))
    assert not first.run(rows=rows)
    save_progress(path, first)
    second = MatrixEncoder(matrix(), FORM, (1.0, 1.1))
    assert load_progress(path, second) == rows == second.rows_done
    second.run()
    whole = encode_matrix(matrix(), FORM, (1.0, 1.1))
    assert all(mx.array_equal(one, other) for one, other in zip(second.result(), whole, strict=True))


@pytest.mark.parametrize(
    "other",
    [
        lambda: MatrixEncoder(matrix(seed=1), FORM),
        lambda: MatrixEncoder(matrix(), FORM, (1.1,)),
        lambda: MatrixEncoder(matrix(), FORM, refit=False),
        lambda: MatrixEncoder(matrix(), FORM, passes="exact"),
        lambda: MatrixEncoder(matrix(), FORM, scales=mx.ones(6)),
        lambda: MatrixEncoder(matrix(), TrellisFormat(6, 512, 3, 9, interleave=True)),
    ],
)
def test_progress_of_something_else_is_refused(tmp_path: Path, other: Any) -> None:
    path, first = tmp_path / "progress.safetensors", MatrixEncoder(matrix(), FORM)
    first.run(rows=2)
    save_progress(path, first)
    encoder = other()
    with pytest.raises(TrellisFileError, match=r"progress.safetensors: is of another matrix, format or other settings"):
        load_progress(path, encoder)
    assert encoder.rows_done == 0


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: matrix()[:5], TrellisMatrixError, r"floats \[6, 512\]"),
        (lambda: matrix().astype(mx.int32), TrellisMatrixError, "int32"),
        (lambda: mx.where(matrix() > 60, mx.nan, matrix()), TrellisMatrixError, "not finite"),
        (lambda: matrix() / 0, TrellisMatrixError, "not finite"),
    ],
)
def test_matrices_that_can_not_be_encoded_are_refused(make: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        MatrixEncoder(make(), FORM)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"gains": ()}, TrellisFormatError, "not all positive"),
        ({"gains": (1.0, 0.0)}, TrellisFormatError, "not all positive"),
        ({"gains": (float("nan"),)}, TrellisFormatError, "not all positive"),
        ({"passes": "free"}, TrellisFormatError, "two or exact"),
        ({"scales": mx.ones(5)}, TrellisMatrixError, r"finite float32 \[6\]"),
        ({"scales": mx.ones(6) / 0}, TrellisMatrixError, "finite"),
    ],
)
def test_options_that_can_not_be_are_refused(options: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        MatrixEncoder(matrix(), FORM, **options)


def test_formats_that_can_be_decoded_only_are_refused() -> None:
    form = TrellisFormat(6, 512, 5, 9)
    with pytest.raises(TrellisFormatError, match="use 10 to 16"):
        MatrixEncoder(matrix(), form)


def test_the_best_gain_is_above_1_and_better_than_its_neighbors() -> None:
    numbers = mx.array(np.random.default_rng(3).standard_normal((48, 256)).astype(np.float32))
    gain = best_gain(numbers, "1mad", 4, 8)
    assert 1.0 < gain < 1.3
    below, best, above = error_by_gain(numbers, "1mad", 4, 8, (gain - 0.1, gain, gain + 0.1))
    assert best < min(below, above)
    assert best_gain(numbers, "1mad", 4, 8, (0.5, 0.6)) == 0.6
