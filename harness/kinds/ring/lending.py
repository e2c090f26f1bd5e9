"""What a cache lends to layers that have only queries: taking a loan, and looking at it, at once and later."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from harness.compare import Bound, Exact
from harness.kinds.ring.checks import check_attention, check_stored, check_visible
from harness.kinds.ring.observe import decoded, pieces, read_answer
from harness.subjects.call import subject_call
from harness.subjects.protocol import PlainArrays

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from harness.kinds.base import Notes
    from harness.kinds.ring.observe import View
    from harness.kinds.ring.stored import Alone
    from harness.kinds.ring.track import Track
    from harness.subjects.protocol import AffineStorage, Answer, Arrays, Donor

# Products with decoded planes: each value is rounded when it is decoded and when it is stored.
DECODE_ROUNDINGS = 3


@dataclass
class Loan:
    """What was lent at one moment: the books as they were then, and what each window showed of it at first."""

    track: Track
    donor: Donor
    decoded: bool
    where: str
    first: dict[int | None, Answer] = field(default_factory=dict)

    @property
    def storages(self) -> list[AffineStorage | None]:
        """How the rows that are shown are stored."""
        return [None] * self.track.rows if self.decoded else self.track.storages


def take(track: Track, where: str, *, decoded: bool) -> Loan:
    """Ask the cache for a loan."""
    with subject_call(f"lending after {where}"):
        donor = track.ring.donor(decoded=decoded)
    return Loan(track.snapshot(), donor, decoded, where)


def has_something(track: Track) -> bool:
    """Whether any row has a token; nobody has to lend nothing."""
    return any(track.histories.lengths())


def look(
    loan: Loan,
    window: int | None,
    queries: int,
    group: int | None,
    checks: Sequence[str],
    notes: Notes,
    *,
    turn: int = 0,
) -> None:
    """Compare what a layer of this window sees of a loan; every `turn` has other queries.

    All queries of a row see the same tokens, whatever their draft position: a layer that borrows stores nothing.
    """
    track, tokens = loan.track, loan.track.bench.tokens
    where = f"{loan.where}: lent{' decoded' if loan.decoded else ''}, window {'none' if window is None else window}"
    ids = query_ids(track, queries, turn)
    asked = tokens.block(ids)[2] if "attention" in checks else None
    with subject_call(where):
        answer = loan.donor.look(window, asked)
    loan.first.setdefault(window, answer)
    view = read_answer(answer, track.spec, loan.storages, group, queries if asked is not None else 1, where, notes)
    right = [track.histories.lent(row, window) for row in range(track.rows)]
    shown = [_seen(view, row) for row in range(track.rows)]
    chosen = [seen if seen in answers else answers[0] for seen, answers in zip(shown, right, strict=True)]
    expected: list[list[list[int] | None]] = [[row] * view.sees.shape[1] for row in chosen]
    good = check_visible(view, expected, ids, where, notes) if "visible" in checks else True
    if good and "stored" in checks:
        good = (
            _check_decoded(answer, view, track.alones(), track.spec.dtype, where, notes)
            if loan.decoded
            else check_stored(view, track.alones(), where, notes)
        )
    if good and "attention" in checks:
        # Over no token at all there is no right answer, only a finite one.
        expected = [[row or None] * queries for row in chosen]
        check_attention(view, expected, ids, tokens, track.alones(), track.spec, where, notes)


def look_at_offsets(loan: Loan, notes: Notes) -> None:
    """Compare the positions that a drafter goes on from; a row whose left padding is still coming has none yet."""
    with subject_call(f"offsets of what was lent after {loan.where}"):
        told = loan.donor.offsets()
    if told is None:
        return
    notes.compared()
    wanted = loan.track.histories.lengths()
    if loan.track.prefill is not None:
        wanted = [length or offset for length, offset in zip(wanted, told, strict=True)]
    if list(told) != wanted:
        notes.found("positions", f"{loan.where}: lent", f"offsets {wanted}", f"offsets {list(told)}")


def look_again(loan: Loan, when: str, notes: Notes) -> None:
    """Compare a loan with what it showed at first: the cache has gone on since."""
    for window, first in loan.first.items():
        where = f"{loan.where}: lent, window {'none' if window is None else window}, looked at again {when}"
        with subject_call(where):
            now = loan.donor.look(window, None)
        group = None
        old = read_answer(first, loan.track.spec, loan.storages, group, _queries(first), where, notes)
        new = read_answer(now, loan.track.spec, loan.storages, group, 1, where, notes)
        for name, then_rows, now_rows in (("keys", old.keys, new.keys), ("values", old.values, new.values)):
            for row, (then, again) in enumerate(zip(then_rows, now_rows, strict=True)):
                notes.compared()
                wrong = Exact().check(decoded(then), decoded(again))
                if wrong is not None:
                    place = f"{where}: {name} of row {row}, element {wrong.where}"
                    notes.found("untouched", place, wrong.expected, wrong.actual, wrong.note)
                    return
        if (old.sees[:, :1] != new.sees).any():
            notes.found("untouched", where, "the same columns seen", "others")
            return


def _queries(answer: Answer) -> int:
    return 1 if answer.output is None else answer.output.shape[2]


def query_ids(track: Track, queries: int, turn: int = 0) -> NDArray[np.int64]:
    """Return the ids [rows, queries] of the tokens that ask."""
    # Any token can ask; those of other rows and times tell more than a repetition.
    last = track.bench.tokens.last_id
    return (np.arange(track.rows)[:, None] * 31 + np.arange(queries)[None, :] * 7 + 13 * turn) % last + 1


def _seen(view: View, row: int) -> list[int]:
    return sorted(view.key_ids[row, np.flatnonzero(view.sees[row, 0])].tolist())


def _check_decoded(answer: Answer, view: View, alones: Sequence[Alone], dtype: str, where: str, notes: Notes) -> bool:
    """Compare decoded columns with what each token's planes say.

    Bound: scale * code, the sum with the bias, and storing the result round once each: 3u (|scale * code| + |bias|).
    """
    from harness.compare import UNIT_ROUNDOFF

    before = len(notes.findings)
    unit = DECODE_ROUNDINGS * UNIT_ROUNDOFF[dtype]
    limits = [_judged(arrays, notes) for arrays in (answer.keys, answer.values)]
    for row, alone in enumerate(alones):
        columns = np.flatnonzero(view.sees[row].any(axis=0) & (view.key_ids[row] > 0))
        ids = view.key_ids[row, columns]
        alone.need(ids.tolist())
        sides = (("keys", view.keys[row], alone.keys), ("values", view.values[row], alone.values))
        for (name, arrays, plane), limit in zip(sides, limits, strict=True):
            notes.compared()
            got = np.moveaxis(decoded(arrays)[0][:, columns], 0, 1)
            values, magnitudes = plane.decoded(ids)
            limit[row][:, columns] = np.moveaxis(unit * magnitudes, 0, 1)
            wrong = Bound(unit * magnitudes).check(values, got)
            if wrong is not None:
                notes.found(
                    "stored", f"{where}: row {row}, {name} {wrong.where}", wrong.expected, wrong.actual, wrong.note
                )
    return len(notes.findings) == before


def _judged(arrays: Arrays, notes: Notes) -> list[NDArray[np.float64]]:
    """Judge plain arrays by limits that are infinite so far; returns those of each row, to be filled in."""
    rows: list[NDArray[np.float64]] = []
    for piece in pieces(arrays):
        if isinstance(piece, PlainArrays):
            limits = np.full(piece.data.shape, np.inf)
            notes.judged_by(piece.data, Bound(limits))
            rows.extend(limits)
    return rows
