"""Runs the shipped cases on broken copies of the reference, one mistake at a time, until one case notices.

Each mistake is made in a copy of `impl/`, which a forked process finds first on its path.
"""

from __future__ import annotations

import multiprocessing
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING

from harness.case.load import load_cases
from harness.execute import execute
from harness.kinds.donor.schema import DonorCase
from harness.kinds.recurrent.schema import RecurrentCase
from harness.kinds.recurrent.script import most_tokens
from harness.kinds.ring.schema import RingCase
from harness.kinds.ring.script import most_rows, tokens_written
from harness.kinds.trellis.schema import TrellisCase
from harness.outcome import Outcome
from tests.mutations.mutation import Mutation, MutationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from multiprocessing.connection import Connection

    from harness.case.expand import Instance
    from harness.case.model import CaseModel

ROOT = Path(__file__).parents[2]
IMPL = ROOT / "impl"
# The whole suite takes about a minute; a mistake that makes it take longer hangs somewhere.
LIMIT_SECONDS = 300
KINDS = ("donor", "recurrent", "ring", "trellis")
# A replacement that raises these was typed wrongly; that a case fails on it proves nothing.
TYPOS = ("NameError", "UnboundLocalError", "ImportError", "SyntaxError", "AttributeError")
NOTHING = Mutation("none", "nothing", ())


@dataclass(frozen=True)
class Verdict:
    """What became of one mutation: the instance that noticed (None: none did), how, and how many ran until then."""

    mutation: Mutation
    instance: str | None
    how: str
    tried: int
    seconds: float


def shipped_instances() -> list[Instance]:
    """Load the cases of `KINDS`: the smallest instance of every case, then the second smallest of each, and so on.

    Timed cases are left out: they are large, and their behavior is that of smaller ones.
    """
    cases: defaultdict[str, list[tuple[int, str, Instance]]] = defaultdict(list)
    for instance in load_cases([ROOT / "cases" / kind for kind in KINDS]):
        case = instance.case
        if not getattr(case, "time", None):
            cases[instance.case_name].append((_size(case), instance.id, instance))
    ranked = [
        (rank, size, name, instance)
        for sized in cases.values()
        for rank, (size, name, instance) in enumerate(sorted(sized, key=lambda item: item[:2]))
    ]
    return [instance for *_, instance in sorted(ranked, key=lambda item: item[:3])]


def _size(case: CaseModel) -> int:
    if isinstance(case, RecurrentCase):
        return most_tokens(case)
    if isinstance(case, TrellisCase):
        return case.given.rows * case.given.columns * (100 if "encode" in case.check or "optimum" in case.check else 1)
    assert isinstance(case, RingCase | DonorCase)
    spec = case.given.spec()
    heads = spec.kv_heads * (spec.head_dim + spec.value_dim)
    return tokens_written(case.steps) * most_rows(case) * heads * (4 if "attention" in case.check else 1)


def check_edits(mutations: Sequence[Mutation]) -> None:
    """Raise MutationError for the first mutation that can't be made."""
    for mutation in mutations:
        mutation.changed(IMPL)


def _copy(mutation: Mutation, tree: Path) -> None:
    shutil.copytree(IMPL, tree / "impl", ignore=shutil.ignore_patterns("__pycache__"))
    for file, text in mutation.changed(IMPL).items():
        (tree / "impl" / file).write_text(text)


def run(mutations: Sequence[Mutation], instances: Sequence[Instance], jobs: int) -> Iterator[Verdict]:
    """Yield a verdict a mutation as they come; raises MutationError for a mutation that can't be tried.

    In the end the instances that noticed something run on the reference as it is, where they must pass.
    """
    noticed: set[str] = set()
    waiting = list(mutations)
    running: list[_Trial] = []
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                running.append(_Trial(waiting.pop(0), instances))
            for trial in [trial for trial in running if trial.answered()]:
                running.remove(trial)
                verdict = trial.finish()
                noticed |= {verdict.instance} if verdict.instance else set()
                yield verdict
    finally:
        for trial in running:
            trial.stop()
    control = _Trial(NOTHING, [instance for instance in instances if instance.id in noticed]).finish()
    if control.instance is not None:
        raise MutationError(f"{control.instance} fails without any mutation ({control.how}): it proves nothing")


class _Trial:
    """A forked process that runs instances on a copy of `impl` until one notices."""

    def __init__(self, mutation: Mutation, instances: Sequence[Instance]) -> None:
        if {"impl", "mlx.core"} & sys.modules.keys():
            raise MutationError("impl was imported before the fork; run this in a process of its own")
        self.mutation, self._begun = mutation, time.monotonic()
        self._folder = tempfile.TemporaryDirectory()
        _copy(mutation, Path(self._folder.name))
        # A fork shares the loaded cases; nothing here has threads.
        context = multiprocessing.get_context("fork")
        files = [edit.file for edit in mutation.edits]
        self._answer, there = context.Pipe(duplex=False)
        self._process = context.Process(target=_work, args=(there, self._folder.name, instances, files))
        self._process.start()
        there.close()

    def answered(self) -> bool:
        """Wait a moment, and say whether the process has answered or is gone; raises MutationError if it hangs."""
        if time.monotonic() - self._begun > LIMIT_SECONDS:
            raise MutationError(f"mutation {self.mutation.name}: no answer within {LIMIT_SECONDS} s")
        return bool(wait([self._answer], timeout=0.05))

    def finish(self) -> Verdict:
        """Take the answer; raises MutationError when there is none, or one that says nothing."""
        try:
            instance, how, tried = self._answer.recv()
        except EOFError:
            self._process.join()
            code = self._process.exitcode
            raise MutationError(f"mutation {self.mutation.name}: its process ended with {code}") from None
        finally:
            self.stop()
        if any(f"{word}:" in how for word in TYPOS):
            raise MutationError(f"mutation {self.mutation.name} is a typing error, no mistake: {how}")
        return Verdict(self.mutation, instance, how, tried, time.monotonic() - self._begun)

    def stop(self) -> None:
        """End the process, and remove the copy."""
        self._process.terminate()
        self._process.join()
        self._folder.cleanup()


def _nearest_first(instances: Sequence[Instance], files: Sequence[str]) -> list[Instance]:
    # Only a matter of time: every instance is tried before a mutation goes unnoticed.
    near = {"rings": "ring", "rings/donor.py": "donor", "attention.py": "donor"}
    near |= {kind: kind for kind in ("recurrent", "trellis")}
    kinds = {near.get(file) or near.get(file.split("/")[0]) for file in files}
    # A kernel of products is run by the cases that name it.
    kernels = [Path(file).stem for file in files if file.startswith("trellis/kernels/")]

    def distance(instance: Instance) -> tuple[bool, bool, bool]:
        name = instance.id.replace("-", "_")
        named = any(kernel in name for kernel in kernels)
        return instance.kind not in kinds, not (kernels and "variant" in name), not named

    return sorted(instances, key=distance)


def _work(answer: Connection, tree: str, instances: Sequence[Instance], files: Sequence[str]) -> None:
    sys.dont_write_bytecode = True
    sys.path.insert(0, tree)
    import impl

    assert impl.__file__ is not None
    assert Path(impl.__file__).is_relative_to(tree), impl.__file__
    from harness.subjects.registry import load_subject

    reference = load_subject("reference")
    tried = 0
    for instance in _nearest_first(instances, files):
        if not reference.capabilities.issuperset(instance.case.requires):
            continue
        tried += 1
        result = execute(instance, reference)
        # Of the reference no case expects a refusal that it does not name: `unsupported` tells, too.
        if result.outcome is not Outcome.PASSED:
            check = result.findings[0].check if result.findings else str(result.outcome)
            answer.send((instance.id, f"{check}: {result.reason.removeprefix(f'{check}: ')}", tried))
            return
    answer.send((None, "", tried))
