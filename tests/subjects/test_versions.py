"""How the table of releases is made from results; nothing is installed and nothing downloaded here."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from harness.case.load import load_cases
from harness.outcome import Outcome, Result
from tests.subjects import versions
from tests.subjects.faults import FAULTS, VERSIONS, Fault
from tests.subjects.versions import FOLDERS, ROOT, MeasureError

if TYPE_CHECKING:
    from pathlib import Path

FAULT = Fault("two cases", ("ring/a", "ring/b"), ("1.0",))
PASSED, FAILED, ERRORED = Result(Outcome.PASSED), Result(Outcome.FAILED), Result(Outcome.ERRORED)
KNOWN, FIXED, UNSUPPORTED = Result(Outcome.KNOWN), Result(Outcome.FIXED), Result(Outcome.UNSUPPORTED)


def test_what_a_fault_names_exists() -> None:
    there = {instance.case_name for instance in load_cases(FOLDERS)}
    for fault in FAULTS:
        assert fault.cases
        assert set(fault.cases) <= there, fault.what
        assert fault.releases
        assert set(fault.releases) <= set(VERSIONS), fault.what
    assert len({fault.what for fault in FAULTS}) == len(FAULTS)


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ((PASSED, PASSED), "not reported"),
        ((PASSED, UNSUPPORTED), "not reported"),
        ((UNSUPPORTED, UNSUPPORTED), "not applicable"),
        ((PASSED, FAILED), "reported (1 of 2)"),
        ((UNSUPPORTED, ERRORED), "reported (1 of 2)"),
        # Listed as known: that it fails is what counts; and the other way round.
        ((KNOWN, KNOWN), "reported (2 of 2)"),
        ((FIXED, PASSED), "not reported"),
    ],
)
def test_a_fault_is_reported_when_a_case_of_it_fails(outcomes: tuple[Result, Result], expected: str) -> None:
    results = {"ring/a[x=1]": outcomes[0], "ring/b": outcomes[1], "ring/ab[x=1]": FAILED}
    assert versions.verdict(FAULT, results) == expected


def test_a_renamed_case_is_no_silent_pass() -> None:
    with pytest.raises(MeasureError, match=r"no instance of ring/b ran: was it renamed\?"):
        versions.verdict(FAULT, {"ring/a": PASSED})


def test_surprises_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "FAULTS", (FAULT,))
    monkeypatch.setattr(versions, "VERSIONS", ("1.0", "2.0"))
    as_listed = {"1.0": {"ring/a": FAILED, "ring/b": PASSED}, "2.0": {"ring/a": PASSED, "ring/b": PASSED}}
    assert list(versions.unexpected(as_listed)) == []
    other = {"1.0": as_listed["2.0"], "2.0": {**as_listed["1.0"], "ring/c[x=1]": ERRORED, "ring/c[x=2]": FAILED}}
    assert list(versions.unexpected(other)) == [
        "mlx-lm 1.0: 'two cases' is not reported, which was not expected",
        "mlx-lm 2.0: 'two cases' is reported (1 of 2), which was not expected",
    ]
    # Nothing is listed for a release that nobody has looked at.
    assert list(versions.unexpected({"9.9": as_listed["1.0"]})) == []
    lines = versions.table(as_listed).splitlines()
    assert lines[0].split() == ["fault", "1.0", "2.0"]
    assert [cell.strip() for cell in lines[2].split("  ") if cell] == ["two cases", "reported (1 of 2)", "not reported"]
    assert versions.others(other["2.0"]) == ["ring/c"]
    assert versions.table(other).splitlines()[-1].split()[-2:] == ["0", "1"]


def test_an_environment_is_used_again_only_with_the_right_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []
    monkeypatch.setattr(versions, "call", lambda command: called.append(" ".join(command)))
    folder = tmp_path / "mlx-lm-1.0"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").write_text("#!/bin/sh\necho 1.0\n")
    (folder / "bin" / "python").chmod(0o755)
    assert versions.environment(folder, "1.0") == folder / "bin" / "python"
    assert called == []
    versions.environment(folder, "2.0")
    assert called == [
        f"{sys.executable} -m venv --clear {folder}",
        f"{folder}/bin/python -m pip install -q --disable-pip-version-check -e {ROOT}[cpu] mlx-lm==2.0",
    ]


def test_what_fails_is_told_with_its_last_words() -> None:
    with pytest.raises(MeasureError, match=r"ended with 3\n  one\n  two$"):
        versions.call([sys.executable, "-c", "import sys; print('one\\ntwo', file=sys.stderr); sys.exit(3)"])
    assert MeasureError.exit_code == 4


def test_help_says_what_is_downloaded() -> None:
    done = CliRunner().invoke(versions.main, ["--help"])
    assert done.exit_code == 0
    assert "360 MB" in done.output
    assert "--keep" in done.output
