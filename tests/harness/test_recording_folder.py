"""The folder of a recording, and the commands that make one and compare with it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from harness.baseline import affine as naive_affine
from harness.case.load import load_cases
from harness.errors import RecordingError
from harness.execute import execute
from harness.outcome import Outcome, Result
from harness.recording.folder import INDEX, Recording, RecordingWriter, read_recording
from harness.recording.foreign import import_ring
from harness.recording.tensors import pack, unpack
from harness.subjects.reference import Reference
from tests.fakes.mixed import NaiveMixed

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.case.expand import Instance

ROOT = Path(__file__).parents[2]
ASSAY = [sys.executable, "-m", "metal_assay.command"]
HEADER = {"subject": "reference", "versions": {"mlx": "1"}, "device": "gpu", "fingerprint": {}}
HEAD = '{"assay_recording": 1}\n'
CASE = """
assay: 1
kind: ring
title: A title
why: A reason
matrix:
  window: [2, 4]
given: {head_dim: 64, kv_heads: 1, dtype: float32, storage: affine8x32, seed: 5}
steps:
  - append: 3
  - decode: 3
check: [visible, stored, attention, positions]
"""


@pytest.fixture
def instances(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Instance]:
    """Two instances of a case in `cases/ring` of the current folder."""
    monkeypatch.chdir(tmp_path)
    return written_case(tmp_path)


def written_case(folder: Path, text: str = CASE) -> list[Instance]:
    path = folder / "cases" / "ring" / "turns.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return load_cases([str(path)])


def write(folder: Path, instances: list[Instance], *, finished: bool = True) -> None:
    writer = RecordingWriter.create(folder, HEADER, instances)
    for instance in instances:
        writer.add(instance, execute(instance, NaiveMixed(), observe=True))
    writer.close(finished=finished)


def outcomes(recording: Recording, paths: tuple[str, ...] = ()) -> dict[str, Result]:
    instances = recording.instances(paths)
    compared = recording.compared(instances)
    return {one.id: execute(one, NaiveMixed(), against=compared[one.id]) for one in instances}


def test_what_was_written_is_read(tmp_path: Path, instances: list[Instance]) -> None:
    write(tmp_path / "rec", instances)
    recording = read_recording(tmp_path / "rec")
    assert (recording.subject, recording.header["instances"]) == ("reference", 2)
    assert recording.footer is not None
    assert {result.outcome for result in outcomes(recording).values()} == {Outcome.PASSED}
    assert (tmp_path / "rec" / "cases" / "ring" / "turns.yaml").read_text() == CASE
    line = recording.lines[instances[0].id]
    data = (tmp_path / "rec" / line["file"]).read_bytes()
    assert (line["bytes"], line["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())
    assert not list((tmp_path / "rec").rglob("*.tmp"))


def test_a_recording_is_complete_without_the_cases(tmp_path: Path, instances: list[Instance]) -> None:
    write(tmp_path / "rec", instances)
    shutil.rmtree(tmp_path / "cases")
    results = outcomes(read_recording(tmp_path / "rec"))
    assert [result.outcome for result in results.values()] == [Outcome.PASSED] * 2
    (tmp_path / "rec" / "cases" / "ring" / "turns.yaml").unlink()
    with pytest.raises(RecordingError, match=r"turns\.yaml: is missing, and there is no such case here"):
        outcomes(read_recording(tmp_path / "rec"))


def test_a_case_that_changed_is_said_so(tmp_path: Path, instances: list[Instance]) -> None:
    write(tmp_path / "rec", instances)
    written_case(tmp_path, CASE.replace("A title", "Another title"))
    assert {r.outcome for r in outcomes(read_recording(tmp_path / "rec")).values()} == {Outcome.PASSED}
    written_case(tmp_path, CASE.replace("decode: 3", "decode: 4"))
    for result in outcomes(read_recording(tmp_path / "rec")).values():
        assert result.outcome is Outcome.ERRORED
        assert "turns.yaml: the case changed since it was recorded" in result.reason
    written_case(tmp_path, CASE.replace("[2, 4]", "[3, 4]"))
    with pytest.raises(RecordingError, match=r"the case changed: it has no instance ring/turns\[window=2\] any more"):
        outcomes(read_recording(tmp_path / "rec"))


def test_only_the_cases_that_are_asked_for(tmp_path: Path, instances: list[Instance]) -> None:
    write(tmp_path / "rec", instances)
    (tmp_path / "cases" / "ring" / "other.yaml").write_text(CASE)
    assert outcomes(read_recording(tmp_path / "rec"), ("cases/ring/other.yaml",)) == {}
    assert len(outcomes(read_recording(tmp_path / "rec"), ("cases/ring/turns.yaml",))) == 2


def test_an_interrupted_recording_goes_on(tmp_path: Path, instances: list[Instance]) -> None:
    folder = tmp_path / "rec"
    write(folder, instances[:1], finished=False)
    with (folder / INDEX).open("a") as file:
        file.write('{"id": "half a li')
    had = read_recording(folder)
    assert had.footer is None
    assert [had.holds(instance) for instance in instances] == [True, False]
    writer = RecordingWriter.resume(folder, HEADER, instances)
    writer.add(instances[1], execute(instances[1], NaiveMixed(), observe=True))
    writer.close(finished=True)
    recording = read_recording(folder)
    assert recording.footer is not None
    assert list(recording.lines) == [instance.id for instance in instances]
    assert writer.bytes == sum(line["bytes"] for line in recording.lines.values())
    assert {result.outcome for result in outcomes(recording).values()} == {Outcome.PASSED}


def test_a_recording_is_not_mixed_with_another(tmp_path: Path, instances: list[Instance]) -> None:
    folder = tmp_path / "rec"
    write(folder, instances)
    with pytest.raises(RecordingError, match=r"rec: holds a recording already; give a new folder, or go on"):
        RecordingWriter.create(folder, HEADER, instances)
    with pytest.raises(RecordingError, match=r"cases: is not empty; give a new folder"):
        RecordingWriter.create(tmp_path / "cases", HEADER, instances)
    with pytest.raises(RecordingError, match=r"was made with versions \{'mlx': '1'\}, and this is \{'mlx': '2'\}"):
        RecordingWriter.resume(folder, {**HEADER, "versions": {"mlx": "2"}}, instances)
    changed = written_case(tmp_path, CASE.replace("decode: 3", "decode: 4"))
    assert not read_recording(folder).holds(changed[0])


def test_what_is_too_large_or_not_supported_is_only_written_down(tmp_path: Path, instances: list[Instance]) -> None:
    writer = RecordingWriter.create(tmp_path / "rec", HEADER, instances)
    writer.largest_bytes = 1000
    writer.add(instances[0], execute(instances[0], NaiveMixed(), observe=True))
    writer.add(instances[1], Result(Outcome.UNSUPPORTED, "no such thing"))
    writer.close(finished=True)
    recording = read_recording(tmp_path / "rec")
    assert writer.left_out == 1
    assert [line.get("file") for line in recording.lines.values()] == [None, None]
    assert "1000 is the most without --all" in recording.lines[instances[0].id]["left_out"]
    assert recording.instances() == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ":1: is no recording"),
        ('{"assay_record": 1}\n', ":1: is no recording: its first line must be the header of one"),
        ('{"assay_recording": 2}\n', ":1: is a recording of version 2, and this release reads 1"),
        ('{"assay_recording": 1}\n{\n', ":2: is not JSON; the index is damaged"),
        ('{"assay_recording": 1}\n[]\n', ":2: is not a JSON object"),
        ('{"assay_recording": 1}\n{"a": 1}\n', ":2: is neither an instance nor a footer"),
        ('{"assay_recording": 1}\n{"id": "x", "case": "x"}\n', ":2: x: 'digest' is missing"),
        (
            '{"assay_recording": 1}\n{"id": "x", "case": "x", "digest": "", "outcome": "", "file": "y"}\n',
            ":2: x: 'sha256' is missing",
        ),
        (
            HEAD + '{"id": "x", "case": "x", "digest": "", "outcome": "", "sha256": "", "file": "../y"}\n',
            ":2: x: names a file outside the recording",
        ),
        ('{"assay_recording": 1}\n{"id": "x", "case": "/x", "digest": "", "outcome": ""}\n', "outside the recording"),
    ],
)
def test_an_index_that_is_wrong(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / INDEX).write_text(text)
    with pytest.raises(RecordingError) as caught:
        read_recording(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / INDEX}:")
    assert words in str(caught.value)


def foreign_ring(path: Path, change: Callable[[dict[str, Any]], object] = lambda _: None, **about: str) -> Path:
    """Write what another program's ring of 4 tokens, 8 bits in groups of 32, held: made by the baseline alone."""
    rng = np.random.default_rng(3)
    tensors: dict[str, Any] = {}
    held = {side: np.zeros((1, 2, 0, 64), np.float32) for side in ("keys", "values")}
    for step, tokens in enumerate((3, 1, 1, 2)):
        for side, before in held.items():
            block = rng.standard_normal((1, 2, tokens, 64)).astype(np.float32)
            tensors[f"{step}.{side}"] = block
            held[side] = np.concatenate([before, block], axis=2)
            if step != 1:
                planes = naive_affine.encode(held[side][:, :, -4:], 32, 8)
                names = ("packed", "scales", "biases")
                tensors |= {f"{step}.{side}.{name}": plane for name, plane in zip(names, planes, strict=True)}
    change(tensors)
    path.write_bytes(pack(tensors, {"window": "4", "bits": "8", "group_size": "32", "by": "another ring", **about}))
    return path


def test_a_foreign_recording_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    import_ring(foreign_ring(tmp_path / "swift.safetensors"), tmp_path / "rec")
    recording = read_recording(tmp_path / "rec")
    [instance] = recording.instances()
    assert (instance.id, instance.case.title) == (
        "foreign/swift",
        "A quantized ring holds what that of another ring held",
    )
    result = execute(instance, Reference(), against=recording.compared([instance])[instance.id])
    assert result.outcome is Outcome.PASSED, result
    assert result.comparisons > 20

    def wrong(tensors: dict[str, Any]) -> None:
        tensors["2.values.packed"].view(np.uint8)[0, 1, 2, 7] ^= 4

    import_ring(foreign_ring(tmp_path / "wrong.safetensors", wrong), tmp_path / "rec2")
    recording = read_recording(tmp_path / "rec2")
    [instance] = recording.instances()
    result = execute(instance, Reference(), against=recording.compared([instance])[instance.id])
    assert result.outcome is Outcome.FAILED
    assert result.findings[0].where == "after step 2: look, values, packed [0, 1, 2, 7]"


def test_a_foreign_file_that_lacks_something(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match=r"'0\.keys': its metadata must say window, bits and group_size"):
        import_ring(foreign_ring(tmp_path / "x.safetensors", lambda t: t.pop("0.keys")), tmp_path / "rec")
    with pytest.raises(RecordingError, match="invalid literal for int"):
        import_ring(foreign_ring(tmp_path / "x.safetensors", bits="eight"), tmp_path / "rec")
    assert not (tmp_path / "rec").exists()
    (tmp_path / "rec").mkdir()
    with pytest.raises(RecordingError, match="rec: is there already"):
        import_ring(foreign_ring(tmp_path / "x.safetensors"), tmp_path / "rec")


def assay(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([*ASSAY, *arguments], cwd=folder, capture_output=True, text=True, check=False, timeout=120)
    assert "Traceback" not in done.stderr + done.stdout
    return done


@pytest.mark.slow
def test_record_here_and_run_against_it_here(tmp_path: Path) -> None:
    written_case(tmp_path)
    done = assay(tmp_path, "record", "rec", "-j", "1", "-q")
    assert done.returncode == 0, done.stderr
    assert "recording: rec, 0." in done.stdout
    assert "assay run --against rec" in done.stdout
    done = assay(tmp_path, "run", "--against", "rec", "-j", "1", "-q")
    assert done.returncode == 0, done.stdout
    assert "2 instances" in done.stdout
    assert "2 passed" in done.stdout
    assert done.stderr.startswith("against rec: reference (metal-assay ")


@pytest.mark.slow
def test_kernels_are_recorded(tmp_path: Path) -> None:
    case = min((ROOT / "cases" / "kernel").glob("*.yaml"))
    # Right or wrong, it must do here what it did here.
    assert assay(tmp_path, "record", "rec", str(case), "-j", "1", "-q").returncode in (0, 1)
    done = assay(tmp_path, "run", str(case), "--against", "rec", "-j", "1", "-q")
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


def damaged(folder: Path, change: Callable[[Path, dict[str, Any]], None], name: str) -> None:
    """Copy the recording and change the first observation and its line."""
    shutil.copytree(folder / "rec", folder / name)
    index = folder / name / INDEX
    lines = [json.loads(line) for line in index.read_text().splitlines()]
    line = next(line for line in lines if "file" in line)
    change(folder / name / line["file"], line)
    index.write_text("".join(json.dumps(line) + "\n" for line in lines))


def rewritten(change: Callable[[dict[str, Any]], object]) -> Callable[[Path, dict[str, Any]], None]:
    """Change tensors and give the index the new hash: a whole file that says something else."""

    def act(path: Path, line: dict[str, Any]) -> None:
        tensors, metadata = unpack(path.read_bytes(), path)
        change(tensors)
        path.write_bytes(pack(tensors, metadata))
        line["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()

    return act


def flipped_scale(tensors: dict[str, Any]) -> None:
    tensors["1.result.keys.scales"].view(np.uint32)[0, 0, 1, 0] ^= 1


def code_off_by_two(tensors: dict[str, Any]) -> None:
    codes = tensors["1.result.keys.packed"].view(np.uint8)
    codes[0, 0, 1, 5] += 2 if codes[0, 0, 1, 5] < 250 else -2


def cut_off(path: Path, _: dict[str, Any]) -> None:
    os.truncate(path, path.stat().st_size - 7)


def one_bit(path: Path, _: dict[str, Any]) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


DAMAGES: dict[str, tuple[Callable[[Path, dict[str, Any]], None], int, tuple[str, ...]]] = {
    "scale": (
        rewritten(flipped_scale),
        1,
        ("append, step 1 (append 3): append, keys, scales [0, 0, 1, 0]", "expected  recorded: ", "actual    here: "),
    ),
    "code": (
        rewritten(code_off_by_two),
        1,
        ("keys, packed [0, 0, 1, 5]", "1 of 192 codes are off by more than one", "assay run --against code --subject"),
    ),
    "missing": (
        rewritten(lambda tensors: tensors.pop("1.result.keys.scales")),
        1,
        ("call 1 (append), result.keys.scales: tensor 1.result.keys.scales is missing",),
    ),
    "cut": (cut_off, 1, (".safetensors: is cut off: it has ", " bytes, and its tensors need ")),
    "bit": (one_bit, 1, (".safetensors: is damaged: it is not the file that the index was made of",)),
}


@pytest.mark.slow
def test_damage_is_told_in_the_right_words(tmp_path: Path) -> None:
    written_case(tmp_path)
    assert assay(tmp_path, "record", "rec", "-q").returncode == 0
    for name, (change, code, words) in DAMAGES.items():
        damaged(tmp_path, change, name)
        done = assay(tmp_path, "run", "--against", name, "-j", "1", "-q")
        assert done.returncode == code, (name, done.stdout, done.stderr)
        for word in words:
            assert word in done.stdout, (name, done.stdout)
        assert "1 passed" in done.stdout


@pytest.mark.slow
def test_an_interrupted_recording_is_incomplete_until_it_is_resumed(tmp_path: Path) -> None:
    written_case(tmp_path, CASE.replace("[2, 4]", "[2, 4, 5, 6, 7, 8, 9]").replace("decode: 3", "decode: 30"))
    command = [*ASSAY, "record", "rec", "--all", "-j", "1", "-q"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    index, patience = tmp_path / "rec" / INDEX, time.monotonic() + 60
    while not (index.is_file() and index.read_bytes().count(b"\n") > 2) and time.monotonic() < patience:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "go on with the same command and --resume" in said
    before = len(read_recording(tmp_path / "rec").lines)
    assert 0 < before < 7
    done = assay(tmp_path, "run", "--against", "rec", "-q")
    assert done.returncode == 4
    assert f"rec: is incomplete: recording was interrupted after {before} of 7 instances" in done.stderr
    assert assay(tmp_path, "record", "rec", "--all", "-q").returncode == 2
    done = assay(tmp_path, "record", "rec", "--all", "--resume", "-q")
    assert done.returncode == 0, done.stderr
    assert f"{7 - before} instances" in done.stdout
    done = assay(tmp_path, "run", "--against", "rec", "-q")
    assert done.returncode == 0
    assert "7 passed" in done.stdout
    # Nothing is left to record, and that is no mistake.
    assert assay(tmp_path, "record", "rec", "--all", "--resume", "-q").returncode == 0


@pytest.mark.slow
def test_commands_that_can_not_be(tmp_path: Path) -> None:
    written_case(tmp_path)
    (tmp_path / "empty").mkdir()
    for arguments, words in (
        (("run", "--against", "empty"), "recording.jsonl: can't be read: No such file or directory"),
        (("run", "--against", "gone"), "Directory 'gone' does not exist"),
        (("run", "--against", "empty", "--benchmark"), "--against compares answers"),
        (("record", "cases", "-q"), "cases: is not empty; give a new folder"),
        (("record", "rec", "--resume", "-q"), "recording.jsonl: can't be read"),
    ):
        done = assay(tmp_path, *arguments)
        assert done.returncode == 2, (arguments, done.stdout, done.stderr)
        assert words in done.stderr
    script = [sys.executable, "-m", "harness.recording.foreign"]
    done = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "usage: python -m harness.recording.foreign RING.safetensors DIR" in done.stderr
