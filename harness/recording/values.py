"""Values that cross the border to a subject, as JSON: arrays become tensors, objects with methods become numbers.

What is not plain JSON is an object whose `$` says what it is: `array`, `object`, `dict`, `float`, `dtype`,
`anything` (of which nothing was recorded), or a dataclass of `harness.subjects.protocol`.
"""

from __future__ import annotations

import hashlib
import math
import pkgutil
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.dtypes import numpy_dtype
from harness.errors import RecordingError
from harness.subjects import protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray


@cache
def protocol_classes() -> dict[str, type]:
    """Return every class of the protocol by name."""
    found: dict[str, type] = {}
    for info in pkgutil.iter_modules(protocol.__path__, f"{protocol.__name__}."):
        module = import_module(info.name)
        found |= {
            name: value
            for name, value in vars(module).items()
            if isinstance(value, type) and value.__module__ == info.name and not issubclass(value, Exception)
        }
    return found


def role(value: object) -> type | None:
    """Return the protocol's class that an object with methods (a ring, a donor) is derived from, None for data."""
    names = [cls for cls in type(value).__mro__ if protocol_classes().get(cls.__name__) is cls]
    return names[0] if names and not is_dataclass(names[0]) else None


class ValueWriter:
    """Turns values into JSON and collects their tensors; equal tensors are kept once.

    `leaves` lists the JSON of every array with the array itself, for what is learned about it later.
    """

    def __init__(self, number: Callable[[Any], int]) -> None:
        """Begin without tensors; `number` tells the number of an object with methods."""
        self.tensors: dict[str, NDArray[Any]] = {}
        self.leaves: list[tuple[NDArray[Any], dict[str, Any]]] = []
        self._number = number
        self._kept: dict[tuple[Any, ...], str] = {}

    def write(self, value: Any, name: str) -> Any:
        """Return the JSON of a value; its tensors get names that begin with `name`."""
        if isinstance(value, np.ndarray):
            leaf = {"$": "array", "tensor": self.keep(value, name), **_strides(value)}
            self.leaves.append((value, leaf))
            return leaf
        if isinstance(value, list | tuple | range):
            return [self.write(item, f"{name}.{index}") for index, item in enumerate(value)]
        if isinstance(value, dict):
            return {"$": "dict", **{str(key): self.write(item, f"{name}.{key}") for key, item in value.items()}}
        if is_dataclass(value) and protocol_classes().get(type(value).__name__) is type(value):
            named = {f.name: self.write(getattr(value, f.name), f"{name}.{f.name}") for f in fields(value)}
            return {"$": type(value).__name__, **named}
        if role(value) is not None:
            return {"$": "object", "number": self._number(value)}
        return _scalar(value)

    def keep(self, array: NDArray[Any], name: str) -> str:
        """Keep a copy of an array; returns the name under which it, or one like it, is kept."""
        data = np.ascontiguousarray(array)
        key = (data.dtype, array.shape, hashlib.sha256(data.tobytes()).digest())
        if key not in self._kept:
            self._kept[key] = name
            self.tensors[name] = array.copy()
        return self._kept[key]


def _scalar(value: Any) -> Any:
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        # JSON has no word for infinity.
        return float(value) if math.isfinite(value) else {"$": "float", "value": str(float(value))}
    if isinstance(value, np.dtype):
        return {"$": "dtype", "name": value.name}
    raise TypeError(f"a {type(value).__name__} can't be recorded; the protocol has no such value")


def read_value(value: Any, tensors: Mapping[str, NDArray[Any]], objects: Mapping[int, Any], at: str) -> Any:
    """Return the value that JSON stands for; arrays are copies. Raises RecordingError naming the place `at`."""
    if isinstance(value, list):
        return [read_value(item, tensors, objects, f"{at}.{index}") for index, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    name = value.get("$")
    if name == "array":
        found: Any = _laid_out(tensor(value, tensors, at), value.get("strides"), at)
    elif name == "object" and value.get("number") in objects:
        found = objects[value["number"]]
    elif name == "anything":
        found = None
    elif name == "dtype":
        found = numpy_dtype(str(value.get("name")))
    elif name == "float":
        found = float(value["value"])
    elif name == "dict" or is_dataclass(protocol_classes().get(str(name))):
        inner = {key: read_value(item, tensors, objects, f"{at}.{key}") for key, item in value.items() if key != "$"}
        found = inner if name == "dict" else _made(str(name), inner, at)
    else:
        what = f"object {value.get('number')} was never made" if name == "object" else f"no release knows a '{name}'"
        raise RecordingError(f"{at}: {what}; record the instance again")
    return found


def _strides(array: NDArray[Any]) -> dict[str, list[int]]:
    """Say how an array lies in memory where that is no matter of course: some subjects read views by their strides."""
    if array.flags.c_contiguous or any(stride < 0 or stride % array.itemsize for stride in array.strides):
        return {}
    return {"strides": [stride // array.itemsize for stride in array.strides]}


def _laid_out(array: NDArray[Any], strides: list[int] | None, at: str) -> NDArray[Any]:
    if strides is None:
        return array.copy()
    reach = [(length - 1) * stride for length, stride in zip(array.shape, strides, strict=False)]
    # A view of a few numbers must not ask for all memory.
    if len(strides) != array.ndim or min(strides, default=0) < 0 or sum(reach) > 64 * array.size + 4096:
        raise RecordingError(f"{at}: strides {strides} do not fit {list(array.shape)}")
    memory = np.zeros(sum(reach) + 1, array.dtype)
    view = np.lib.stride_tricks.as_strided(memory, array.shape, [stride * array.itemsize for stride in strides])
    view[...] = array
    return view


def _made(name: str, named: dict[str, Any], at: str) -> Any:
    cls: Any = protocol_classes()[name]
    try:
        # Fields of the protocol's dataclasses are tuples where they hold several.
        return cls(**{key: tuple(item) if isinstance(item, list) else item for key, item in named.items()})
    except TypeError as error:
        raise RecordingError(f"{at}: is no {name} of this release: {error}; record the instance again") from None


def tensor(leaf: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]], at: str) -> NDArray[Any]:
    """Return the tensor of an array's JSON; raises RecordingError when it is missing."""
    name = leaf.get("tensor")
    if not isinstance(name, str) or name not in tensors:
        raise RecordingError(f"{at}: tensor {name} is missing")
    return tensors[name]
