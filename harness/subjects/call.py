"""Calls into a subject: telling a deliberate refusal from an accident, and an accident from a fault of the harness."""

from __future__ import annotations

import dis
import traceback
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from harness.subjects.protocol import Refused, Unsupported

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

# An explicit `raise` of one of these is how Python code says no; anything else that surfaces is an accident.
_DELIBERATE = (NotImplementedError, ValueError, TypeError, RuntimeError, IndexError, KeyError)


_STEP: ContextVar[str] = ContextVar("_STEP", default="")


class SubjectError(Exception):
    """A subject raised by accident during a step; `details` is its traceback."""

    def __init__(self, step: str, error: BaseException) -> None:
        """Keep the text of the error and of its traceback: the error itself may not survive a process border."""
        text = str(error).strip()
        super().__init__(f"{step} raised {type(error).__name__}" + (f": {text}" if text else ""))
        self.details = "".join(traceback.format_exception(error))


@contextmanager
def subject_call(step: str, *, refusable: bool = False) -> Iterator[None]:
    """Run subject code in a `with` block.

    Raises Unsupported as it comes, Refused when `refusable` and the code said no by an explicit `raise` statement,
    and SubjectError for everything else.
    """
    outer = _STEP.set(step)
    try:
        yield
    except Unsupported as error:
        raise Unsupported(f"{step}: {error}") from None
    except Refused as error:
        if refusable:
            raise
        raise SubjectError(step, error) from error
    except Exception as error:
        if refusable and is_deliberate(error):
            raise Refused(f"{type(error).__name__}: {error}") from None
        raise SubjectError(step, error) from error
    finally:
        _STEP.reset(outer)


def current_step() -> str:
    """Return the words of the innermost `subject_call` that is under way, empty outside of one."""
    return _STEP.get()


def is_deliberate(error: Exception) -> bool:
    """Whether `error` comes from an explicit `raise` statement in Python, rather than out of a call that failed."""
    if not isinstance(error, _DELIBERATE):
        return False
    last: TracebackType | None = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is None:
        return False
    code = last.tb_frame.f_code.co_code
    return dis.opname[code[last.tb_lasti]] == "RAISE_VARARGS"
