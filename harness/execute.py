"""Running one instance in this process: drive the subject, compare, time; every way it can end becomes a Result."""

from __future__ import annotations

import time
import traceback
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from harness.errors import AnswerError, RecordingError
from harness.kinds import get_kind
from harness.kinds.base import Notes, StopInstance
from harness.outcome import Finding, Observed, Outcome, Result
from harness.subjects.call import SubjectError
from harness.subjects.protocol import Refused, Unsupported
from harness.timing.visit import WrongError

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.case.expand import Instance
    from harness.outcome import Rounds
    from harness.recording.replay import Recorded
    from harness.subjects.protocol import Subject

    _Checked = tuple[Outcome, str, tuple[Finding, ...], int, str]


def execute(
    instance: Instance,
    subject: Subject,
    *,
    benchmark: bool = False,
    observe: bool = False,
    against: Recorded | None = None,
) -> Result:
    """Run `instance` on `subject`; with `benchmark`, also time what its case lists, if it passed before and after.

    `observe`: the result brings what was observed, as a file. `against`: do what was recorded again, and compare with
    that instead of the baseline.
    """
    if observe:
        return _observe(instance, subject)
    start = time.perf_counter()
    if against is not None:
        recorded = against
        checked = _guarded(lambda notes: _replay(recorded, instance, subject, notes), Notes())
        return Result(*checked[:4], time.perf_counter() - start, output=checked[4])
    outcome, reason, findings, comparisons, output = _check(instance, subject)
    rounds: tuple[Rounds, ...] = ()
    if benchmark and outcome is Outcome.PASSED and getattr(instance.case, "time", None):
        try:
            rounds = _time(instance, subject)
        except Unsupported as why:
            reason = f"not timed: {why}"
        except WrongError as why:
            outcome, reason = Outcome.FAILED, f"while timed: {why}"
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


def _observe(instance: Instance, subject: Subject) -> Result:
    from harness.recording.observe import Observer

    observer, notes = Observer(subject), Notes(judged=[])
    result = Observed(
        *_guarded(lambda own: get_kind(instance.kind).run(instance.case, observer.subject, own), notes)[:4]
    )
    if result.outcome is Outcome.UNSUPPORTED:
        return result
    observer.judged(notes.judged or ())
    return replace(result, file=observer.file(instance))


def _replay(recorded: Recorded, instance: Instance, subject: Subject, notes: Notes) -> None:
    from harness.recording.replay import read_observation, replay

    replay(read_observation(recorded, instance.id), subject, notes)


def _check(instance: Instance, subject: Subject) -> _Checked:
    return _guarded(lambda notes: get_kind(instance.kind).run(instance.case, subject, notes), Notes())


def _guarded(run: Callable[[Notes], None], notes: Notes) -> _Checked:
    """Run, and make an outcome of every way in which that can end."""
    output = ""
    outcome, reason = Outcome.PASSED, ""
    try:
        run(notes)
    except StopInstance:
        pass
    except Unsupported as why:
        outcome, reason = Outcome.UNSUPPORTED, str(why)
    except Refused as why:
        outcome, reason = Outcome.UNSUPPORTED, f"refuses: {why}"
    except SubjectError as error:
        outcome, reason, output = Outcome.ERRORED, str(error), error.details
    except (AnswerError, RecordingError) as error:
        outcome, reason = Outcome.ERRORED, str(error)
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
    """Visit every operation in this process; raises WrongError where a timed call was wrong."""
    from harness.timing.visit import visit_in_rounds

    prepare, operations = get_kind(instance.kind).timed, getattr(instance.case, "time", ())
    return tuple(visit_in_rounds(one, partial(prepare, instance.case, subject, one, 1)) for one in operations)
