"""What `choose` finds: never a variant that does not apply, what was measured where it does, and else `balanced`."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING

import pytest

from impl.trellis import choices
from impl.trellis.choices import Choice, Measured, choose, merged, usual_splits
from impl.trellis.errors import TrellisVariantError
from impl.trellis.layout import TrellisFormat
from impl.trellis.variants import VARIANTS, ProductShape, find_variant

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def entry(variant: str, bits: int = 3, size: int = 1024, batch: int = 1, splits: int = 8) -> Measured:
    return Measured("cpu", "a device", bits, size, size, batch, variant, splits)


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Put another table in the place of the measured one."""
    path = tmp_path / "choices.json"
    monkeypatch.setattr(choices, "FILE", path)
    choices.measured.cache_clear()
    yield path
    choices.measured.cache_clear()


def plant(path: Path, *entries: Measured) -> None:
    path.write_text(choices.written(list(entries)), encoding="utf-8")
    choices.measured.cache_clear()


def test_what_was_measured_is_chosen(table: Path) -> None:
    plant(table, entry("folded"), entry("gather", bits=2))
    assert choose(TrellisFormat(1024, 1024, 3, 12), 1, "cpu") == Choice("folded", 8)
    assert choose(TrellisFormat(1024, 2048, 3, 12), 2, "cpu") == Choice("folded", 8)
    assert choose(TrellisFormat(1024, 1024, 2, 12), 1, "cpu") == Choice("gather", 8)


def test_the_nearest_measurement_counts(table: Path) -> None:
    plant(table, entry("folded", size=1024), entry("gather", size=2048))
    assert choose(TrellisFormat(1024, 1280, 3, 12), 1, "cpu").variant == "folded"
    assert choose(TrellisFormat(2048, 1792, 3, 12), 1, "cpu").variant == "gather"


@pytest.mark.parametrize(
    ("layout", "batch", "backend"),
    [
        (TrellisFormat(8192, 8192, 3, 12), 1, "cpu"),
        (TrellisFormat(1024, 1024, 4, 12), 1, "cpu"),
        (TrellisFormat(1024, 1024, 3, 12), 4, "cpu"),
        (TrellisFormat(1024, 1024, 3, 12), 1, "cuda"),
    ],
)
def test_a_measurement_does_not_speak_for_what_is_far(
    table: Path, layout: TrellisFormat, batch: int, backend: str
) -> None:
    plant(table, entry("folded"))
    assert choose(layout, batch, backend) == Choice("balanced", usual_splits(layout, batch, backend))


def test_a_variant_that_does_not_apply_is_never_chosen(table: Path) -> None:
    formats = [
        TrellisFormat(rows, columns, bits, state_bits, codebook=codebook)
        for rows, columns, bits, state_bits, codebook in itertools.product(
            (1, 7, 300), (256, 512, 768), (1, 3, 5, 8), (8, 14), ("1mad", "mcg", "random")
        )
    ]
    for variant in VARIANTS:
        plant(table, *(entry(variant.name, bits, size) for bits in (1, 3, 5, 8) for size in (64, 256, 700)))
        for layout, batch in itertools.product(formats, (1, 2)):
            found = choose(layout, batch, "cpu")
            shape = ProductShape(layout, batch, found.splits)
            assert find_variant(found.variant).reason(shape) is None
            assert 1 <= found.splits <= layout.rows


def test_a_variant_that_is_no_more_is_passed_over(table: Path) -> None:
    plant(table, entry("a kernel that was removed"))
    assert choose(TrellisFormat(1024, 1024, 3, 12), 1, "cpu").variant == "balanced"


def test_without_a_table_balanced_is_chosen(table: Path) -> None:
    assert not table.exists()
    assert choose(TrellisFormat(1024, 1024, 3, 12), 1, "cpu").variant == "balanced"
    assert choose(TrellisFormat(1024, 1024, 3, 12, codebook="random"), 1, "cpu").variant == "lookup"
    assert choose(TrellisFormat(1024, 1024, 6, 12), 1, "cpu").variant == "operations"


def test_splits_for_a_named_variant_come_from_its_own_measurements(table: Path) -> None:
    plant(table, entry("folded", splits=16))
    layout = TrellisFormat(1024, 1024, 3, 12)
    assert choose(layout, 1, "cpu", "folded").splits == 16
    assert choose(layout, 1, "cpu", "gather").splits == usual_splits(layout, 1, "cpu")


def test_splits_fill_the_device_and_keep_rows(table: Path) -> None:
    del table
    assert usual_splits(TrellisFormat(16384, 16384, 3, 12), 1, "cuda") == 32
    assert usual_splits(TrellisFormat(64, 256, 3, 12), 1, "cuda") == 2
    assert usual_splits(TrellisFormat(1, 256, 3, 12), 16, "cpu") == 1


def test_a_damaged_table_says_how_to_write_it_anew(table: Path) -> None:
    table.write_text(json.dumps([{"backend": "cpu"}]))
    choices.measured.cache_clear()
    with pytest.raises(TrellisVariantError, match=r"python -m impl\.trellis\.tune"):
        choose(TrellisFormat(1024, 1024, 3, 12), 1, "cpu")


def test_new_measurements_replace_those_of_the_same_shape(table: Path) -> None:
    del table
    old = (entry("gather"), entry("folded", bits=2))
    assert merged(old, [entry("lookup")]) == [entry("folded", bits=2), entry("lookup")]


def test_precision_is_not_given_up_unasked(table: Path) -> None:
    plant(table, entry("folded-offset"))
    assert choose(TrellisFormat(1024, 1024, 3, 12), 1, "cpu").variant == "balanced"
    assert choose(TrellisFormat(1024, 1024, 3, 12), 1, "cpu", "folded-offset").variant == "folded-offset"
