"""Doing recorded calls again on a subject here, and comparing every answer with the recorded one."""

from __future__ import annotations

import hashlib
import inspect
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from harness.errors import RecordingError
from harness.kinds.base import Notes, StopInstance
from harness.recording.observe import FORMAT, VERSION, invoke, protocol_method
from harness.recording.policies import check, limit_of, policy_of
from harness.recording.shifted import output_shift
from harness.recording.tensors import unpack
from harness.recording.values import ValueWriter, read_value, tensor
from harness.subjects.protocol import Unsupported

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from harness.subjects.protocol import Subject

Tensors = dict[str, Any]
# A result of which nothing was recorded: what a foreign program can't know of a subject here.
ANYTHING = {"$": "anything"}


@dataclass(frozen=True)
class Recorded:
    """One instance in a recording: its file, the hash that the index gives, and what is wrong before it is opened."""

    file: Path
    sha256: str
    problem: str = ""


@dataclass(frozen=True)
class Observation:
    """Calls and tensors of one file."""

    file: Path
    calls: list[dict[str, Any]]
    tensors: dict[str, NDArray[Any]]


def read_observation(recorded: Recorded, instance_id: str) -> Observation:
    """Read one file; raises RecordingError when it is damaged, cut off, of another version or of another instance."""
    file = recorded.file
    if recorded.problem:
        raise RecordingError(recorded.problem)
    try:
        data = file.read_bytes()
    except OSError as error:
        raise RecordingError(f"{file}: can't be read: {error.strerror}; record the instance again") from None
    # A file that ends too early is told from its own lengths, which says more than a hash.
    tensors, metadata = unpack(data, file)
    if hashlib.sha256(data).hexdigest() != recorded.sha256:
        raise RecordingError(f"{file}: is damaged: it is not the file that the index was made of; copy it again")
    if metadata.get("format") != FORMAT or metadata.get("version") != str(VERSION):
        was = f"{metadata.get('format')} {metadata.get('version')}"
        raise RecordingError(f"{file}: is '{was}', and this release reads '{FORMAT} {VERSION}'; record it again")
    if metadata.get("instance") != instance_id:
        raise RecordingError(f"{file}: is of instance {metadata.get('instance')}, not {instance_id}")
    try:
        calls = json.loads(metadata["calls"])
    except (KeyError, ValueError, RecursionError):
        raise RecordingError(f"{file}: its list of calls is not JSON; record it again") from None
    if not isinstance(calls, list) or not all(_is_call(call) for call in calls):
        raise RecordingError(f"{file}: its list of calls is none; record it again")
    return Observation(file, calls, tensors)


def _is_call(call: object) -> bool:
    return isinstance(call, dict) and isinstance(call.get("call"), str) and isinstance(call.get("given"), dict)


def replay(observation: Observation, subject: Subject, notes: Notes) -> None:
    """Do the calls in their order, until an answer differs; raises RecordingError for a file that can't be followed."""
    _check_tensors(observation)
    player = _Player(observation, notes, {0: subject})
    for number, call in enumerate(observation.calls):
        try:
            player.play(number, call)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            # What the subject raises is an answer, and was taken as one.
            at = f"{observation.file}: call {number} ({call['call']})"
            raise RecordingError(f"{at}: can't be read ({error!r}); record the instance again") from error
        if notes.findings:
            raise StopInstance


def _check_tensors(observation: Observation) -> None:
    """Raise for a tensor that a call speaks of and the file has not, before anything is done."""

    def look(value: Any, at: str) -> None:
        if isinstance(value, list):
            for index, item in enumerate(value):
                look(item, f"{at}.{index}")
        elif isinstance(value, dict):
            if value.get("$") == "array":
                tensor(value, observation.tensors, at)
                limit_of(value, observation.tensors, at)
            for key, item in value.items():
                look(item, f"{at}.{key}")

    for number, call in enumerate(observation.calls):
        at = f"{observation.file}: call {number} ({call['call']})"
        look(call.get("given"), f"{at}, given")
        look(call.get("result"), f"{at}, result")


@dataclass
class _Player:
    observation: Observation
    notes: Notes
    objects: dict[int, Any]
    # Codes of this instance that differ as they may: what is computed from them inside the subject may, too.
    codes_differ: bool = False
    _shift: dict[str, NDArray[Any]] = field(default_factory=dict)

    def play(self, number: int, call: dict[str, Any]) -> None:
        at = f"{self.observation.file}: call {number} ({call['call']})"
        if call.get("on") not in self.objects:
            raise RecordingError(f"{at}: object {call.get('on')} was never made")
        target = self.objects[call["on"]]
        base = protocol_method(target, call["call"])
        if base is None:
            raise RecordingError(f"{at}: is no call that this release knows; record it again")
        tensors = self.observation.tensors
        given = {name: read_value(item, tensors, self.objects, f"{at}, {name}") for name, item in call["given"].items()}
        wanted = list(inspect.signature(base).parameters)[1:]
        if not set(given) <= set(wanted):
            raise RecordingError(f"{at}: takes {', '.join(wanted)}, and was given {', '.join(given)}; record it again")
        where = f"{call.get('during') or f'call {number}'}: {call['call']}"
        try:
            result = invoke(getattr(target, call["call"]), base, given)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the subject's answer
            self._raised(call, error, where)
            return
        if "raised" in call:
            self.notes.compared()
            self.notes.found(call["call"], where, f"recorded: raises {call['raised']}", "here: returns")
            return
        writer = ValueWriter(lambda value: self._number(value, call))
        self._shift = output_shift(call, given, result, tensors, at)
        here = writer.write(result, "here")
        self._compare(call["call"], call.get("result"), here, writer.tensors, where)

    def _raised(self, call: dict[str, Any], error: Exception, where: str) -> None:
        if isinstance(error, Unsupported) and "raised" not in call:
            # Another device may offer less, which is no wrong answer.
            raise Unsupported(f"{where}: {error}") from None
        self.notes.compared()
        name = type(error).__name__
        if call.get("raised") != name:
            was = f"raises {call['raised']}" if "raised" in call else "returns"
            self.notes.found(call["call"], where, f"recorded: {was}", f"here: raises {name}: {error}")

    def _number(self, value: Any, call: dict[str, Any]) -> int:
        """Give an object the number that the recording has for it; any object where the recording has none."""
        recorded = call.get("result")
        number = recorded["number"] if isinstance(recorded, dict) and recorded.get("$") == "object" else -1
        self.objects[number] = value
        return int(number)

    def _compare(
        self,
        what: str,
        recorded: Any,
        here: Any,
        tensors: Tensors,
        where: str,
        place: tuple[str, str] = ("", ""),
        bits: int | None = None,
    ) -> None:
        """Compare two values as JSON, arrays by their policies; notes the first difference."""
        if self.notes.findings or recorded == ANYTHING:
            return
        if isinstance(recorded, dict) and isinstance(here, dict) and recorded.get("$") == here.get("$"):
            if recorded["$"] == "array":
                self._compare_arrays(what, recorded, tensors[here["tensor"]], where, place, bits)
                return
            keys = [key for key in recorded if key != "$"]
            if keys == [key for key in here if key != "$"]:
                for key in keys:
                    bits = recorded.get("bits") if key == "packed" else None
                    place = (recorded["$"], key)
                    self._compare(what, recorded[key], here[key], tensors, f"{where}, {key}", place, bits)
                return
        if isinstance(recorded, list) and isinstance(here, list) and len(recorded) == len(here):
            for index, (then, now) in enumerate(zip(recorded, here, strict=True)):
                self._compare(what, then, now, tensors, f"{where}[{index}]")
            return
        self.notes.compared()
        # True is 1 to Python, and not the same answer.
        if recorded != here or type(recorded) is not type(here):
            self.notes.found(what, where, f"recorded: {_text(recorded)}", f"here: {_text(here)}")

    def _compare_arrays(
        self, what: str, leaf: dict[str, Any], shown: NDArray[Any], where: str, place: tuple[str, str], bits: int | None
    ) -> None:
        at = f"{self.observation.file}: tensor {leaf['tensor']}"
        recorded = tensor(leaf, self.observation.tensors, at)
        limit = limit_of(leaf, self.observation.tensors, at)
        if limit is not None:
            shift = self._shift.get(leaf["tensor"])
            if shift is None and self.codes_differ:
                return
            # Both are within the bound of the exact answer, which moves where the codes do.
            limit = 2 * limit + (0.0 if shift is None else shift)
        policy = policy_of(leaf, recorded, limit, place)
        if policy is None:
            return
        self.notes.compared()
        wrong = check(policy, recorded, shown, bits)
        if wrong is not None:
            note = wrong.note + (" (codes)" if bits is not None else "")
            self.notes.found(
                what, f"{where} {wrong.where}", f"recorded: {wrong.expected}", f"here: {wrong.actual}", note
            )
        elif bits is not None and recorded.tobytes() != shown.tobytes():
            self.codes_differ = True


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return str(value.get("$"))
    return f"{value!r:.200}"
