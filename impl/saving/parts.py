"""The description of a cache and its tensors, taken apart piece by piece: every number and shape is checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from impl.saving.errors import SavedShapeError, SavedStateError, SavedTensorsError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import mlx.core as mx

# Positions are int32 where models use them.
MOST_TOKENS: Final = 2**31 - 1


class Part:
    """One object of the description, with the tensors of the whole file.

    ``name`` is its place (``rows.1.ring``), which is also the beginning of the names of its tensors.
    """

    def __init__(self, values: Any, tensors: dict[str, mx.array], name: str = "") -> None:
        """Take hold of a JSON object; tensors are taken out of ``tensors``."""
        if not isinstance(values, dict):
            raise SavedStateError(f"{name or 'the description'} must be an object, not {values!r:.80}")
        self._values, self._tensors, self._name = dict(values), tensors, name

    def integer(self, key: str, low: int = 0, high: int = MOST_TOKENS) -> int:
        """Take an integer between ``low`` and ``high``."""
        return self._integer(key, self._take(key), low, high)

    def integers(self, key: str, count: int, low: int = 0) -> tuple[int, ...]:
        """Take ``count`` integers of at least ``low``."""
        value = self._take(key)
        if not isinstance(value, list) or len(value) != count:
            raise SavedStateError(f"{self._at(key)} must be {count} numbers, one per row, not {value!r:.80}")
        return tuple(self._integer(key, item, low, MOST_TOKENS) for item in value)

    def length(self, key: str) -> int:
        """Return how many items a list has, which is not taken yet."""
        value = self._values.get(key)
        if not isinstance(value, list):
            raise SavedStateError(f"{self._at(key)} must be a list, not {value!r:.80}")
        return len(value)

    def flag(self, key: str) -> bool:
        """Take a truth value."""
        value = self._take(key)
        if not isinstance(value, bool):
            raise SavedStateError(f"{self._at(key)} must be true or false, not {value!r:.80}")
        return value

    def is_null(self, key: str) -> bool:
        """Take a null; returns whether it was one."""
        if key in self._values and self._values[key] is None:
            del self._values[key]
            return True
        return False

    def text(self, key: str) -> str:
        """Take a text."""
        value = self._take(key)
        if not isinstance(value, str):
            raise SavedStateError(f"{self._at(key)} must be a text, not {value!r:.80}")
        return value

    def part(self, key: str) -> Part:
        """Take an object."""
        return Part(self._take(key), self._tensors, self._at(key))

    def parts(self, key: str) -> list[Part]:
        """Take a list of objects."""
        self.length(key)
        return [Part(item, self._tensors, f"{self._at(key)}.{index}") for index, item in enumerate(self._take(key))]

    def tensor(self, key: str, dtypes: Sequence[mx.Dtype], shape: Sequence[int | None]) -> mx.array:
        """Take a tensor of one of ``dtypes``; a dimension that is None may have any size."""
        name = self._at(key)
        if name not in self._tensors:
            raise SavedTensorsError(f"tensor {name} is missing")
        array = self._tensors.pop(name)
        if array.dtype not in dtypes:
            raise SavedShapeError(f"tensor {name} is {array.dtype}, and must be {' or '.join(map(str, dtypes))}")
        fits = len(shape) == array.ndim and all(
            want in (None, size) for want, size in zip(shape, array.shape, strict=True)
        )
        if not fits:
            wanted = ", ".join("any" if size is None else str(size) for size in shape)
            raise SavedShapeError(f"tensor {name} is {list(array.shape)}, and must be [{wanted}]")
        return array

    def wrong(self, what: object) -> SavedStateError:
        """Return the error of a part whose numbers don't belong together."""
        return SavedStateError(f"{self._name or 'the cache'}: {what}")

    def close(self) -> None:
        """Raise SavedStateError for keys that nobody took."""
        if self._values:
            raise SavedStateError(f"{self._name or 'the description'} has unknown keys {sorted(self._values)}")

    def _integer(self, key: str, value: Any, low: int, high: int) -> int:
        if type(value) is not int or not low <= value <= high:
            raise SavedStateError(f"{self._at(key)} must be an integer from {low} to {high}, not {value!r:.80}")
        return value

    def _take(self, key: str) -> Any:
        if key not in self._values:
            raise SavedStateError(f"{self._at(key)} is missing")
        return self._values.pop(key)

    def _at(self, key: str) -> str:
        return f"{self._name}.{key}" if self._name else key


class Draft:
    """Tensors of the file that is being written; ``name`` as in Part."""

    def __init__(self, tensors: dict[str, mx.array], name: str = "") -> None:
        """Begin with a dict that the tensors go into."""
        self.tensors, self._name = tensors, name

    def part(self, key: str) -> Draft:
        """Return the draft of a part."""
        return Draft(self.tensors, f"{self._name}.{key}" if self._name else key)

    def put(self, key: str, array: mx.array) -> None:
        """Add a tensor."""
        self.tensors[f"{self._name}.{key}" if self._name else key] = array
