"""The promises about verdicts, kept on simulated machines of stated noise (`tests/bench/verdict_simulation.py`)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pytest
from click.testing import CliRunner

from harness.regress_session import Context, with_confirmation
from harness.timing.plan import TURNS
from harness.verdict import Call, Reason
from tests.bench.verdict_simulation import (
    OTHERS,
    QUIET,
    ROUGH,
    SHARED,
    TWO_PACED,
    Simulated,
    alarms,
    main,
    misses,
    shares,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from harness.timing.record import Key
    from harness.timing.samples import Timing

FALSE = (Call.SLOWER, Call.FASTER)


def test_nothing_changed_is_hardly_ever_called_a_change() -> None:
    for machine in (SHARED, ROUGH):
        found = shares(machine, 0.0, trials=300, looks=3)
        assert sum(found[call] for call in FALSE) <= 0.01, machine.name
        assert machine is ROUGH or found[Call.SAME] > 0.8, "more rounds settle it"


def test_a_change_of_five_percent_is_found() -> None:
    assert shares(SHARED, 0.05, trials=300, looks=1)[Call.SLOWER] >= 0.85
    assert shares(SHARED, 0.05, trials=200, looks=3)[Call.SLOWER] >= 0.9
    assert shares(SHARED, -0.05, trials=200, looks=3)[Call.FASTER] >= 0.9


def test_a_change_of_ten_percent_is_found() -> None:
    assert shares(SHARED, 0.10, trials=150, looks=3, confirm=True)[Call.SLOWER] >= 0.99


def test_a_quiet_machine_needs_few_sets() -> None:
    assert shares(QUIET, 0.05, trials=100, looks=1, sets=4)[Call.SLOWER] >= 0.9
    assert shares(QUIET, 0.0, trials=100, looks=1)[Call.SAME] >= 0.95


def test_turns_bear_a_machine_of_two_paces() -> None:
    assert shares(TWO_PACED, 0.05, trials=60, looks=1)[Call.SLOWER] < 0.2
    assert shares(TWO_PACED, 0.05, trials=60, looks=1, turns=TURNS)[Call.SLOWER] >= 0.85
    found = shares(TWO_PACED, 0.0, trials=100, looks=1, turns=TURNS)
    assert sum(found[call] for call in FALSE) <= 0.02, "1 %, within what 100 trials can show"


def test_a_machine_too_rough_to_tell_says_so() -> None:
    found = shares(ROUGH, 0.05, trials=100, looks=1)
    assert found[Call.AMBIGUOUS] > 0.8
    assert found[Call.SAME] < 0.05


def test_rules_that_measure_one_arm_after_the_other_cry_wolf() -> None:
    assert all(alarms(rule, SHARED, 0.0, trials=300) > 0.05 for rule in OTHERS.values())


def test_few_sets_make_a_bootstrap_too_narrow_and_leave_ours_as_it_should_be() -> None:
    assert misses(4, 300, resampled=True) > 0.05
    for sets in (4, 16):
        assert misses(sets, 2000, resampled=False) <= 0.0175, "1 %, within what 2000 trials can show"


def test_a_whole_report_of_nothing_has_no_regression() -> None:
    rng = np.random.default_rng(7)
    for _ in range(4):
        done = with_confirmation(Simulated(SHARED, rng, [0.0] * 20), Context())
        assert not any(verdict.is_regression for verdict in done.verdicts)


def test_a_report_names_what_got_slower_and_nothing_else() -> None:
    changes = [0.0] * 9 + [0.1] + [0.0] * 5
    done = with_confirmation(Simulated(SHARED, np.random.default_rng(3), changes), Context())
    assert [v.evidence.instance for v in done.verdicts if v.is_regression] == ["work[n=9]"]
    assert all(v.call in (Call.SAME, Call.AMBIGUOUS) for v in done.verdicts if not v.is_regression)


def test_what_only_one_session_saw_does_not_count() -> None:
    rng = np.random.default_rng(1)

    def once(wanted: Sequence[Key] | None, *, rounds: int, session: int, part: int) -> Iterator[Timing]:
        slow = 0.2 if session == 0 else 0.0
        yield from Simulated(QUIET, rng, [0.0, slow, 0.0])(wanted, rounds=rounds, session=session, part=part)

    done = with_confirmation(once, Context())
    accused = done.verdicts[1]
    assert (accused.call, accused.reason, accused.confirmed) == (Call.AMBIGUOUS, Reason.UNCONFIRMED, False)
    assert not any(verdict.is_regression for verdict in done.verdicts)


@pytest.mark.slow
@pytest.mark.exhaustive
def test_the_tables_are_printed() -> None:
    done = CliRunner().invoke(main, ["--trials", "20"])
    assert done.exit_code == 0, done.output
    assert re.search(r"\| shared +\| up to 48, confirmed +\|", done.output)
