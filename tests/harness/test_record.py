"""Records: nothing is lost or changed between writing and reading, and damage is told by its line."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import pytest

from harness.case.load import load_file
from harness.errors import RecordError
from harness.outcome import Finding, KernelChecks, KernelFault, KernelPlace, Outcome, Result, Rounds
from harness.record import Record, RecordWriter, read_record

if TYPE_CHECKING:
    from pathlib import Path

    from harness.case.expand import Instance

HEADER = {"versions": {"mine": {"mine": "1.5"}}, "devices": {"mine": "cpu"}, "benchmark": False}
FULL = Result(
    outcome=Outcome.KNOWN,
    reason='it "does" ☃\n',
    findings=(Finding("visible", "row 0", "[1, 2]", "[2]", "one column"), Finding("stored", "here", "1", "2")),
    comparisons=17,
    seconds=0.123456,
    rounds=(Rounds("append", 3, (10, 2**60)), Rounds("decode", 1, ())),
    output="line one\nline two\tand \udc80 half a character",
    versions={"mine": "1.5"},
    checks=KernelChecks(
        ("sum",),
        3,
        ("forward", "1"),
        ("addresses: no room",),
        (KernelFault("sum", "race", "why", (KernelPlace("source", 4, 2, " a[i] = 1;"),), 7),),
    ),
)


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    path = tmp_path / "one.yaml"
    path.write_text(
        "assay: 1\nkind: ring\ntitle: t\nwhy: w\ngiven: {window: 4}\nsteps: [append: 3]\ncheck: [visible]\n"
    )
    return load_file(path)[0]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "er" / "run.jsonl"


def write(path: Path, instance: Instance, *results: Result, footer: dict[str, Any] | None = None) -> None:
    writer = RecordWriter.create(path, HEADER)
    for number, result in enumerate(results):
        writer.result("mine", replace(instance, id=f"id-{number}"), result)
    writer.close(footer)


def test_every_field_comes_back(path: Path, instance: Instance) -> None:
    assert {field.name for field in fields(Result)} == {
        "outcome", "reason", "findings", "comparisons", "seconds", "rounds", "output", "versions",
        "checks",
    }  # fmt: skip
    assert all(getattr(FULL, field.name) != field.default for field in fields(Result)), (
        "no field is left at its default"
    )
    plain = Result(Outcome.PASSED)
    write(path, instance, FULL, plain, footer={"counts": {"known": 1}})
    record = read_record(path)
    assert record.results == {("mine", "id-0"): FULL, ("mine", "id-1"): plain}
    assert record.digests == {("mine", "id-0"): instance.digest, ("mine", "id-1"): instance.digest}
    assert record.footer is not None
    assert record.footer["counts"] == {"known": 1}
    assert {key: record.header[key] for key in HEADER} == HEADER


@pytest.mark.parametrize("outcome", Outcome)
def test_every_outcome_comes_back(path: Path, instance: Instance, outcome: Outcome) -> None:
    write(path, instance, Result(outcome))
    (result,) = read_record(path).results.values()
    assert result.outcome is outcome


def test_each_line_is_json_and_written_at_once(path: Path, instance: Instance) -> None:
    writer = RecordWriter.create(path, HEADER)
    assert len(path.read_bytes().splitlines()) == 1
    writer.result("mine", instance, FULL)
    lines = path.read_bytes().splitlines()
    assert len(lines) == 2, "before the next line, and before the file is closed"
    assert json.loads(lines[1])["id"] == instance.id
    writer.close({})
    assert list(json.loads(path.read_bytes().splitlines()[-1])) == ["finished"]


def test_an_interrupted_record_has_no_footer(path: Path, instance: Instance) -> None:
    write(path, instance, FULL, footer=None)
    assert read_record(path).footer is None


def test_a_later_line_of_an_instance_replaces_the_earlier(path: Path, instance: Instance) -> None:
    writer = RecordWriter.create(path, HEADER)
    writer.result("mine", instance, Result(Outcome.FAILED))
    writer.result("mine", replace(instance, digest="other"), Result(Outcome.PASSED))
    writer.close(None)
    record = read_record(path)
    assert record.results["mine", instance.id].outcome is Outcome.PASSED
    assert not record.holds("mine", instance)
    assert record.holds("mine", replace(instance, digest="other"))
    assert not record.holds("yours", replace(instance, digest="other"))


@pytest.mark.parametrize(
    "torn",
    [b"{", b'{"id":"' + b"long" * 100, b'{"id":"id-1","subject":"mi', b'{"id":"\xe2\x98', b'{"finished":"2024"}'],
)
def test_a_torn_last_line_is_as_if_it_never_was(path: Path, instance: Instance, torn: bytes) -> None:
    write(path, instance, FULL)
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    record = read_record(path)
    assert list(record.results) == [("mine", "id-0")]
    assert record.footer is None
    writer = RecordWriter.resume(path)
    writer.result("mine", replace(instance, id="id-1"), FULL)
    writer.close({"counts": {}})
    assert path.read_bytes().startswith(whole + b'{"resumed":')
    record = read_record(path)
    assert list(record.results.values()) == [FULL, FULL]
    assert record.footer is not None


def test_resuming_takes_the_footer_back(path: Path, instance: Instance) -> None:
    write(path, instance, FULL, footer={"counts": {}})
    RecordWriter.resume(path).close(None)
    assert read_record(path).footer is None


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'{"id": "x", "subj', "is not JSON; the record is damaged"),
        (b"\xff\xfe", "is not JSON; the record is damaged"),
        (b"", "is not JSON; the record is damaged"),
        (b"[" * 100_000, "is not JSON; the record is damaged"),
        (b"[1]", "is not a JSON object; the record is damaged"),
        (b'{"something": 1}', "is neither a result nor a footer"),
        (b'{"id": "x"}', "is no result of ours: KeyError('subject')"),
        (b'{"id":["x"],"subject":"s","digest":"d","outcome":"passed","comparisons":1,"seconds":1}', "is no result"),
        (b'{"id":"x","subject":"s","digest":"d","outcome":"splendid","comparisons":1,"seconds":1}', "'splendid'"),
        (b'{"id":"x","subject":"s","digest":"d","outcome":"passed","comparisons":"many","seconds":1}', "'many'"),
        (b'{"id":"x","subject":"s","digest":"d","outcome":"passed","comparisons":1,"seconds":null}', "is no result"),
        (
            b'{"id":"x","subject":"s","digest":"d","outcome":"failed","comparisons":1,"seconds":1,"findings":[{"a":1}]}',
            "is no result",
        ),
        (b'{"id":"x","subject":"s","digest":"d","outcome":"passed","comparisons":1,"seconds":1,"rounds":1}', "is no"),
    ],
)
def test_a_damaged_line_in_the_middle_is_named(path: Path, instance: Instance, line: bytes, words: str) -> None:
    write(path, instance, FULL, FULL)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], line + b"\n", *lines[2:]]))
    with pytest.raises(RecordError) as caught:
        read_record(path)
    assert str(caught.value).startswith(f"{path}:3: ")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"hello\n",
        b"hello\nthere\n",
        b"{}\n",
        b'{"assay_record"',
        b'{"assay_record":1,"started":"x"}',
        b"\x89PNG\r\n",
    ],
)
def test_what_is_no_record_is_said_to_be_none(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other.jsonl"
    path.write_bytes(content)
    with pytest.raises(RecordError, match=r"other\.jsonl:1: is no record: the first line must be the header"):
        read_record(path)


def test_a_record_of_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "new.jsonl"
    path.write_bytes(b'{"assay_record":2}\n')
    with pytest.raises(RecordError, match=r"new\.jsonl:1: is a record of version 2; this release reads 1"):
        read_record(path)


def test_files_of_others_are_left_alone(tmp_path: Path, instance: Instance) -> None:
    path = tmp_path / "thesis.txt"
    path.write_text("years of work\n")
    with pytest.raises(RecordError, match="is no record of ours; it is left alone"):
        RecordWriter.create(path, HEADER)
    assert path.read_text() == "years of work\n"
    # An empty file, or a record of ours, may be written anew.
    path.write_bytes(b"")
    write(path, instance, FULL)
    write(path, instance)
    assert read_record(path).results == {}


def test_places_that_can_not_be_written_or_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path in (tmp_path, tmp_path / "file" / "run.jsonl"):
        with pytest.raises(RecordError, match="can't be written: "):
            RecordWriter.create(path, HEADER)
    for action in (read_record, RecordWriter.resume):
        with pytest.raises(RecordError, match=r"nowhere\.jsonl: can't be .*: No such file"):
            action(tmp_path / "nowhere.jsonl")


def test_an_empty_record_holds_nothing(instance: Instance) -> None:
    assert not Record({}).holds("mine", instance)
