"""The mutations of the reference can be made, and a few of each sort are caught; all: `python -m tests.mutations`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutations.engine import IMPL, check_edits
from tests.mutations.mutation import Edit, MutationError, load_mutations

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
# One of updates, rounds, refusals, prefills, rows, sharing and trellis codes.
CHOSEN = ("1", "5", "8", "12", "10", "copy-shares-arrays", "trellis-next-block")


def test_every_mutation_can_still_be_made() -> None:
    mutations = load_mutations()
    check_edits(mutations)
    names = [mutation.name for mutation in mutations]
    assert len(set(names)) == len(names)


def test_mutations_are_different_from_the_source_and_from_each_other() -> None:
    changed = [tuple(sorted(mutation.changed(IMPL).items())) for mutation in load_mutations()]
    assert len(set(changed)) == len(changed)
    assert all(text != (IMPL / file).read_text() for files in changed for file, text in files)


def test_a_few_mutations_are_caught_by_the_cases_alone() -> None:
    words = [word for name in CHOSEN for word in ("--only", name)]
    command = [sys.executable, "-m", "tests.mutations", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"caught {len(CHOSEN)}/{len(CHOSEN)}" in done.stdout


@pytest.mark.parametrize("text", ["nothing of it", "x = 1; x = 1", "y = 0"])
def test_a_text_that_is_not_there_once_is_an_error(text: str) -> None:
    with pytest.raises(MutationError, match="times, not once"):
        Edit("some.py", "x = 1", "x = 2").apply(text)


def test_whole_lines_match_at_any_indentation() -> None:
    edit = Edit("some.py", "if a:\n    b()", "if not a:\n    b()\n\n    c()")
    before = "def f():\n        if a:\n            b()\n"
    assert edit.apply(before) == "def f():\n        if not a:\n            b()\n\n            c()\n"
    with pytest.raises(MutationError):
        edit.apply("def f():\n    if a:\n        b()\n    else:\n        if a:\n            b()\n")
