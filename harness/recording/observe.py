"""Recording a run: a stand-in for the subject that passes every call on and writes down what went in and came out."""

from __future__ import annotations

import inspect
import json
from typing import TYPE_CHECKING, Any

from harness.recording.policies import describe
from harness.recording.tensors import pack
from harness.recording.values import ValueWriter, role
from harness.subjects.call import current_step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from harness.case.expand import Instance
    from harness.compare import Policy
    from harness.subjects.protocol import Subject

FORMAT, VERSION = "assay-observation", 1
# Books of arrays that crossed already, words for a reader, and clocks: nothing that another device could repeat.
_NOT_OBSERVED = frozenset({"handed_out", "remarks", "timed", "versions", "kinds"})


class Observer:
    """Stands before one subject for the length of one instance; `subject` is what is driven instead of it."""

    def __init__(self, subject: Subject) -> None:
        """Begin with the subject itself as object 0."""
        self.calls: list[dict[str, Any]] = []
        self._objects: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._writer = ValueWriter(self._number)
        self.subject: Any = _StandIn(self, subject, self._number(subject))

    def judged(self, judged: Iterable[tuple[NDArray[Any], Policy]]) -> None:
        """Put beside each array the policy that it was judged by; arrays that never crossed are left out."""
        leaves: dict[int, list[dict[str, Any]]] = {}
        for array, leaf in self._writer.leaves:
            leaves.setdefault(id(array), []).append(leaf)
        for array, policy in judged:
            for leaf in leaves.get(id(array), ()):
                leaf["policy"] = describe(policy, array, leaf["tensor"], self._writer)

    def file(self, instance: Instance) -> bytes:
        """Return everything as one safetensors file."""
        return pack(self._writer.tensors, metadata(instance.id, instance.digest, self.calls))

    def call(self, target: Any, number: int, method: str, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Pass a call on; what it raises is written down and raised again."""
        base = protocol_method(target, method)
        assert base is not None  # noqa: S101 - the stand-in asked before
        bound = inspect.signature(base).bind(target, *given, **named)
        label = f"{len(self.calls)}"
        arguments = {name: _without_stand_ins(value) for name, value in list(bound.arguments.items())[1:]}
        call: dict[str, Any] = {
            "on": number,
            "call": method,
            "during": current_step(),
            "given": {name: self._writer.write(value, f"{label}.{name}") for name, value in arguments.items()},
        }
        self.calls.append(call)
        try:
            result = invoke(getattr(target, method), base, arguments)
        except Exception as error:
            call["raised"] = type(error).__name__
            raise
        call["result"] = self._writer.write(result, f"{label}.result")
        return result if role(result) is None else _StandIn(self, result, self._number(result))

    def _number(self, value: Any) -> int:
        if id(value) not in self._numbers:
            self._numbers[id(value)] = len(self._objects)
            # Held, so that no other object gets its id.
            self._objects.append(value)
        return self._numbers[id(value)]


class _StandIn:
    """Looks like the object behind it; its protocol methods are observed."""

    def __init__(self, observer: Observer, target: Any, number: int) -> None:
        self._observer, self.target, self._of = observer, target, number

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.target, name)
        if protocol_method(self.target, name) is None:
            return found
        return lambda *given, **named: self._observer.call(self.target, self._of, name, given, named)


def protocol_method(target: Any, name: str) -> Callable[..., Any] | None:
    """Return the method of the protocol that `name` is on this object, None for anything else."""
    base = role(target)
    method = getattr(base, name, None)
    return method if not name.startswith("_") and name not in _NOT_OBSERVED and inspect.isfunction(method) else None


def invoke(function: Callable[..., Any], base: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Call with arguments by name, given as the protocol says: a subject may call its parameters something else."""
    kinds = inspect.signature(base).parameters
    named = {name: value for name, value in arguments.items() if kinds[name].kind is inspect.Parameter.KEYWORD_ONLY}
    return function(*(value for name, value in arguments.items() if name not in named), **named)


def metadata(instance_id: str, digest: str, calls: list[dict[str, Any]]) -> dict[str, str]:
    """Return the metadata of an observation."""
    text = json.dumps(calls, separators=(",", ":"))
    return {"format": FORMAT, "version": str(VERSION), "instance": instance_id, "digest": digest, "calls": text}


def _without_stand_ins(value: Any) -> Any:
    if isinstance(value, _StandIn):
        return value.target
    if isinstance(value, list | tuple):
        return type(value)(_without_stand_ins(item) for item in value)
    return value
