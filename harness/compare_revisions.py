"""Two revisions of a project, measured side by side."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from harness.compare_session import context, drawn_seed, measuring, note, recorded, timed_instances
from harness.errors import NothingRanError, SubjectMissingError
from harness.fingerprint import fingerprint
from harness.regress_session import Judged, with_confirmation
from harness.report.timing import TimingReport
from harness.subjects.registry import check_name
from harness.timing.plan import ArmSpec, Plan
from harness.timing.samples import Arm, Role

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from harness.case.expand import Instance
    from harness.compare_session import Wanted
    from harness.revisions import Environment, Revision

BASE, NEW = "base", "new"
_EVERY = "every case"
CHECK_SECONDS = 3600


def between_revisions(
    wanted: Wanted, names: tuple[str, str], baselines: Path, *, check: bool, install: bool
) -> TimingReport:
    """Measure two revisions, interleaved, and confirm what got slower; `check` runs the new one through the cases."""
    from harness.revisions import environments, repository, resolve, subject_in, uncommitted

    root = repository(Path.cwd())
    base, new = (resolve(root, name) for name in names)
    instances = timed_instances(wanted)
    seed = drawn_seed(wanted)
    notes = []
    if base.commit == new.commit:
        notes.append("both sides are one revision: what differs is noise")
    if base.commit and new.commit and uncommitted(root):
        notes.append("what is not committed is left out; `--rev .` is the working tree")
    check_name(wanted.subject)
    judged = Judged([], [])
    with environments(root, (base, new), install=install, note=note) as (old_place, new_place):
        broken = _broken(wanted, new_place, subject_in(new_place, root, wanted.subject)) if check else []
        # The time of a wrong answer is worth nothing, so there is no need to take it.
        sound = tuple(one for one in instances if one.id not in dict(broken)) if _EVERY not in dict(broken) else ()
        arms = (
            _arm(BASE, Role.BASELINE, base, old_place, subject_in(old_place, root, wanted.subject)),
            _arm(NEW, Role.CANDIDATE, new, new_place, subject_in(new_place, root, wanted.subject)),
        )
        plan = Plan(sound, arms, wanted.rounds, wanted.sets, seed)
        header = {"revisions": {BASE: base.commit or "working tree", NEW: new.commit or "working tree"}}
        if sound:
            try:
                with recorded(wanted, plan, header) as kept:
                    judging = context(wanted, instances, baselines, kept)
                    judged = with_confirmation(measuring(plan, quiet=wanted.quiet), judging)
            except SubjectMissingError as error:
                if not str(error).startswith(f"{NEW}:"):
                    raise NothingRanError(f"{base.label} can't be measured: {error}") from None
                broken.append((_EVERY, f"{new.label} does not load: {error}"))
    seen = {timing.instance for timing in judged.timings} | dict(broken).keys()
    return TimingReport(
        base.label,
        new.label,
        tuple(judged.verdicts),
        fingerprint(),
        broken=tuple(broken),
        left_out=tuple(_not_timed(sound, seen)),
        notes=tuple(notes),
    )


def _arm(name: str, role: Role, revision: Revision, place: Environment, subject: str) -> ArmSpec:
    python = None if place.python == sys.executable else place.python
    return ArmSpec(Arm(name, role, revision.label), subject, python, place.path)


def _not_timed(instances: Sequence[Instance], seen: set[str]) -> Iterator[tuple[str, str]]:
    yield from ((one.id, "gave no timing: unsupported by the subject") for one in instances if one.id not in seen)


def _broken(wanted: Wanted, place: Environment, subject: str) -> list[tuple[str, str]]:
    """Run the chosen cases, timed or not, on the new revision; return what it gets wrong, with the reason."""
    from harness.record import read_record

    note(f"running the cases on {place.folder.name}" if wanted.quiet else "running the cases on the new revision")
    with TemporaryDirectory(prefix="assay-compare-") as folder:
        record = Path(folder) / "run.jsonl"
        chosen = [f"--select={pattern}" for pattern in wanted.patterns] + [f"--kind={kind}" for kind in wanted.kinds]
        command = [place.python, "-P", "-m", "metal_assay.command", "run", "--quiet", "--subject", subject]
        done = subprocess.run(  # noqa: S603 - our own command
            [*command, "--record", str(record), *chosen, *wanted.paths],
            env=place.variables(),
            capture_output=True,
            text=True,
            check=False,
            timeout=CHECK_SECONDS,
        )
        if done.returncode not in (0, 1):
            said = (done.stderr.strip() or done.stdout.strip()).splitlines()[-4:]
            return [(_EVERY, f"could not be run on the new revision: {' '.join(said)}")]
        results = read_record(record).results
    return [(instance, result.reason) for (_, instance), result in results.items() if result.outcome.is_bad]
