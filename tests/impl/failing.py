"""Row storage that runs out of memory at one chosen call, wherever that call is made."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from impl.rings.storage import AffineStorage, PlainStorage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OPERATIONS = ("encode", "each", "concatenate", "write_column", "settle")


class Calls:
    """Names of the storage calls so far; call number ``fail_at`` fails."""

    def __init__(self, fail_at: int) -> None:
        self.fail_at = fail_at
        self.made: list[str] = []

    def wrapped(self, operation: Callable[..., Any]) -> Callable[..., Any]:
        """Count a call, and fail in its place when it is the one."""

        def call(*args: Any, **kwargs: Any) -> Any:
            self.made.append(operation.__name__)
            if len(self.made) == self.fail_at:
                raise MemoryError(operation.__name__)
            return operation(*args, **kwargs)

        return call


@contextmanager
def failing_storage(fail_at: int) -> Iterator[Calls]:
    """Let storage call number ``fail_at`` raise MemoryError, in rings that exist and in rings made meanwhile."""
    calls = Calls(fail_at)
    with pytest.MonkeyPatch.context() as patch:
        for kind in (PlainStorage, AffineStorage):
            for name in OPERATIONS:
                patch.setattr(kind, name, calls.wrapped(getattr(kind, name)))
        yield calls


def assert_nothing_changes_on_failure(
    setup: Callable[[], Any], operation: Callable[[Any], Any], snapshot: Callable[[Any], object]
) -> list[str]:
    """Let every storage call of an operation fail, one at a time; return their names.

    After each failure the subject is as before, and the operation done again gives what it gives undisturbed.
    """
    clean = setup()
    operation(clean)
    expected = snapshot(clean)
    fail_at = 0
    while True:
        fail_at += 1
        subject = setup()
        before = snapshot(subject)
        try:
            with failing_storage(fail_at) as calls:
                operation(subject)
        except MemoryError:
            assert snapshot(subject) == before
            operation(subject)
            assert snapshot(subject) == expected
        else:
            return calls.made
