"""Running one instance in this process: drive the subject, compare, time; every way it can end becomes a Result."""

from __future__ import annotations

import time
import traceback
from typing import TYPE_CHECKING

from harness.kinds import get_kind
from harness.kinds.base import Notes, StopInstance
from harness.outcome import Finding, Outcome, Result
from harness.subjects.call import SubjectError
from harness.subjects.protocol import Refused, Unsupported

if TYPE_CHECKING:
    from harness.case.expand import Instance
    from harness.outcome import Rounds
    from harness.subjects.protocol import Subject


def execute(instance: Instance, subject: Subject, *, benchmark: bool = False) -> Result:
    """Run `instance` on `subject`; with `benchmark`, also time what its case lists, if it passed before and after."""
    start = time.perf_counter()
    outcome, reason, findings, comparisons, output = _check(instance, subject)
    rounds: tuple[Rounds, ...] = ()
    if benchmark and outcome is Outcome.PASSED and getattr(instance.case, "time", None):
        try:
            rounds = _time(instance, subject)
        except Unsupported as why:
            reason = f"not timed: {why}"
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this instance's outcome
            outcome, reason, output = Outcome.ERRORED, f"while timed: {error}", traceback.format_exc()
        else:
            outcome, reason, findings, more, output = _check(instance, subject)
            comparisons += more
            if outcome is not Outcome.PASSED:
                # The time of a wrong answer is worth nothing.
                rounds, reason = (), f"was right before timing, not after. {reason}"
    seconds = time.perf_counter() - start
    return Result(outcome, reason, findings, comparisons, seconds, rounds, output)


def _check(instance: Instance, subject: Subject) -> tuple[Outcome, str, tuple[Finding, ...], int, str]:
    notes = Notes()
    output = ""
    outcome, reason = Outcome.PASSED, ""
    try:
        get_kind(instance.kind).run(instance.case, subject, notes)
    except StopInstance:
        pass
    except Unsupported as why:
        outcome, reason = Outcome.UNSUPPORTED, str(why)
    except Refused as why:
        outcome, reason = Outcome.UNSUPPORTED, f"refuses: {why}"
    except SubjectError as error:
        outcome, reason, output = Outcome.ERRORED, str(error), error.details
    except MemoryError:
        outcome, reason = Outcome.ERRORED, "ran out of memory"
    except Exception as error:  # noqa: BLE001 - one instance must not end the run
        outcome = Outcome.ERRORED
        reason = f"the harness itself failed: {type(error).__name__}: {error} (please report this)"
        output = traceback.format_exc()
    if notes.findings:
        first = notes.findings[0]
        outcome, reason = Outcome.FAILED, f"{first.check}: {first.where}"
    elif outcome is Outcome.PASSED and notes.comparisons == 0:
        outcome, reason = Outcome.ERRORED, "nothing was compared: the case proves nothing on this subject"
    return outcome, reason, tuple(notes.findings), notes.comparisons, output


def _time(instance: Instance, subject: Subject) -> tuple[Rounds, ...]:
    from harness.timing import time_rounds

    calls = get_kind(instance.kind).timed(instance.case, subject)
    return tuple(time_rounds(operation, call) for operation, call in calls.items())
