"""Known failures: which instances and versions an entry is about, what becomes of results, and broken files."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from harness.errors import CaseFileError
from harness.known import Entry, apply_known, known_path, load_known, matches
from harness.outcome import Finding, Outcome, Result

IDS = ["ring/a[window=4]", "ring/a[window=40]", "ring/b", "ring/b-longer"]
ENTRY = Entry(instances="ring/a[*]", reason="wraps too early", link="https://example.com/1")


def load(folder: Path, text: str, version: str | None = "1.5", ids: list[str] | None = IDS) -> list[Entry]:
    path = folder / "mine.yaml"
    path.write_text(text)
    return load_known(path, version, ids)


def entry(instances: str, more: str = "") -> str:
    return f"assay-known: 1\nfailures:\n  - instances: '{instances}'\n    reason: it does\n{more}"


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [
        ("ring/a[window=4]", ["ring/a[window=4]"]),
        ("ring/a[window=*]", ["ring/a[window=4]", "ring/a[window=40]"]),
        ("ring/a[window=4?]", ["ring/a[window=40]"]),
        ("ring/a*", ["ring/a[window=4]", "ring/a[window=40]"]),
        ("ring/b", ["ring/b"]),
        ("ring/b*", ["ring/b", "ring/b-longer"]),
        ("*", IDS),
        ("ring/[ab]", []),
        ("ring/[!a]", []),
        ("RING/B", []),
        ("ring/", []),
        ("ring.b", []),
        ("ring/b|ring/a*", []),
    ],
)
def test_only_stars_and_question_marks_are_special(pattern: str, matched: list[str]) -> None:
    assert [instance_id for instance_id in IDS if matches(pattern, instance_id)] == matched


def test_an_id_that_holds_special_signs_matches_itself() -> None:
    assert matches("ring/a[tokens=2*window]", "ring/a[tokens=2*window]")
    assert matches("ring/a[tokens=2*window]", "ring/a[tokens=2+window]"), "as a pattern"


def test_many_stars_are_quick() -> None:
    begun = time.process_time()
    assert not matches("*a" * 30 + "b", "a" * 200)
    assert time.process_time() - begun < 1


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.ERRORED])
def test_a_listed_failure_is_known_and_keeps_its_evidence(outcome: Outcome) -> None:
    result = Result(outcome, "", (Finding("visible", "row 0", "1", "2"),), 3, 0.5)
    known = apply_known([ENTRY], IDS[0], result)
    assert known.outcome is Outcome.KNOWN
    assert not known.outcome.is_bad
    assert known.reason == "wraps too early (https://example.com/1)"
    assert (known.findings, known.comparisons, known.seconds) == (result.findings, 3, 0.5)


def test_a_listed_instance_that_passes_is_fixed_and_fails_the_run() -> None:
    fixed = apply_known([ENTRY], IDS[0], Result(Outcome.PASSED, comparisons=3))
    assert fixed.outcome is Outcome.FIXED
    assert fixed.outcome.is_bad
    assert "remove the entry 'ring/a[*]' (https://example.com/1)" in fixed.reason


def test_what_is_unsupported_or_not_listed_stays_as_it_is() -> None:
    unsupported = Result(Outcome.UNSUPPORTED, "no sinks")
    assert apply_known([ENTRY], IDS[0], unsupported) is unsupported
    failed = Result(Outcome.FAILED)
    assert apply_known([ENTRY], "ring/b", failed) is failed
    assert apply_known([], IDS[0], failed) is failed


def test_the_first_entry_that_matches_gives_the_reason() -> None:
    other = Entry(instances="*", reason="the rest")
    assert apply_known([ENTRY, other], IDS[0], Result(Outcome.FAILED)).reason.startswith("wraps")
    assert apply_known([ENTRY, other], "ring/b", Result(Outcome.FAILED)).reason == "the rest"


@pytest.mark.parametrize(
    ("versions", "version", "applies"),
    [
        (">=1.4,<1.6", "1.5", True),
        (">=1.4,<1.6", "1.6", False),
        (">=1.4,<1.6", "1.3.9", False),
        ("<1.10", "1.9", True),
        (">=1.5", "1.5.0.dev3", False),
        (">=1.4", "1.5.0.dev3", True),
        ("==1.5.*", "1.5.0+local", True),
        ("", "1.5", True),
        (">=9", None, True),
        (">=9", "unknown", True),
    ],
)
def test_versions(tmp_path: Path, versions: str, version: str | None, *, applies: bool) -> None:
    assert bool(load(tmp_path, entry("ring/b", f"    versions: '{versions}'\n"), version)) is applies


@pytest.mark.parametrize("version", ["1.5", None])
def test_a_version_range_that_is_none_is_an_error_whatever_the_version(tmp_path: Path, version: str | None) -> None:
    with pytest.raises(CaseFileError, match=r"mine\.yaml:5:15: failures\[0\]\.versions: 'soon' is no version range"):
        load(tmp_path, entry("ring/b", "    versions: soon\n"), version)


def test_an_entry_that_matches_nothing_is_an_error_also_for_other_versions(tmp_path: Path) -> None:
    text = entry("ring/c*", "    versions: <1\n")
    with pytest.raises(
        CaseFileError, match=r"mine\.yaml:3:16: failures\[0\]\.instances: 'ring/c\*' matches no instance"
    ):
        load(tmp_path, text)
    # A run of a part of the cases can't judge.
    assert load(tmp_path, text, ids=None) == []


def test_entries_keep_their_order_and_only_those_that_apply_are_left(tmp_path: Path) -> None:
    text = """\
assay-known: 1
failures:
  - {instances: ring/b, reason: one}
  - {instances: "ring/a[*]", reason: two, versions: <1}
  - {instances: "*", reason: three, link: "https://example.com"}
"""
    assert [found.reason for found in load(tmp_path, text)] == ["one", "three"]
    assert load(tmp_path, "assay-known: 1\nfailures: []\n") == []


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("", [(1, 1, "", "is empty")]),
        ("- a\n", [(1, 1, "", "must be a mapping")]),
        ("assay-known: 2\nfailures: []\n", [(1, 14, "assay-known", "2 is not valid here; write 1")]),
        ("failures: []\n", [(1, 1, "", "the key 'assay-known' is missing")]),
        ("assay-known: 1\n", [(1, 1, "", "the key 'failures' is missing")]),
        ("assay-known: 1\nfailures:\n", [(2, 10, "failures", "must be a list, not nothing")]),
        ("assay-known: 1\nfailure: []\n", [(2, 1, "failure", "did you mean 'failures'?")]),
        (
            "assay-known: 1\nfailures:\n  - {instance: ring/b, reason: ''}\n  - {instances: ring/b}\n  - ring/b\n",
            [
                (3, 6, "failures[0].instance", "did you mean 'instances'?"),
                (3, 32, "failures[0].reason", "must not be empty"),
                (4, 5, "failures[1]", "the key 'reason' is missing"),
                (5, 5, "failures[2]", "must be a mapping with keys such as: instances, link, reason, versions"),
            ],
        ),
        ("assay-known: 1\nassay-known: 1\n", [(2, 1, "assay-known", "duplicate key")]),
        (
            "assay-known: 1\nfailures:\n  - {instances: ring/b, reason: r, versions: 1.5}\n",
            [(3, 46, "failures[0].versions", "must be text, not 1.5")],
        ),
    ],
)
def test_a_broken_file_is_told_as_a_broken_case_is(
    tmp_path: Path, text: str, problems: list[tuple[int, int, str, str]]
) -> None:
    with pytest.raises(CaseFileError) as caught:
        load(tmp_path, text)
    assert [(p.line, p.column, p.key) for p in caught.value.problems] == [problem[:3] for problem in problems]
    for found, (*_, words) in zip(caught.value.problems, problems, strict=True):
        assert words in found.message


def test_each_subject_has_a_file_beside_the_cases() -> None:
    assert known_path(Path("cases"), "mlx-lm") == Path("cases/known/mlx-lm.yaml")
