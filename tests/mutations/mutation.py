"""What a mutation is, and how it is made: exact changes of the reference's source, listed in the YAML files here."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Mapping

FILES = ("updates", "rounds", "prefills", "rows", "layouts", "lending", "recurrent", "trellis", "trellis-kernels")


class MutationError(Exception):
    """A mutation that can't be made, or a run of one that says nothing."""


@dataclass(frozen=True)
class Edit:
    """One replacement in `file`, a path below `impl/`.

    A text of one line may be part of a line; a longer one is whole lines, at any indentation. It stands there once:
    where it does not, the source has moved on, and the mutation would prove nothing.
    """

    file: str
    old: str
    new: str

    def apply(self, text: str) -> str:
        """Return the changed text; raises MutationError when `old` is not there exactly once."""
        lines = "\n" in self.old + self.new
        found = self._indented(text) if lines else [(self.old, self.new)] * text.count(self.old)
        if len(found) != 1:
            raise MutationError(f"impl/{self.file} has this {len(found)} times, not once:\n{self.old}")
        return text.replace(*found[0])

    def _indented(self, text: str) -> list[tuple[str, str]]:
        found = []
        for depth in range(0, 24, 4):
            old, new = (textwrap.indent(part, " " * depth) + "\n" for part in (self.old, self.new))
            found += [("\n" + old, "\n" + new)] * text.count("\n" + old)
        return found


@dataclass(frozen=True)
class Mutation:
    """One mistake: its name, what is wrong in words, and how it is made."""

    name: str
    wrong: str
    edits: tuple[Edit, ...]

    def changed(self, impl: Path) -> dict[str, str]:
        """Return the changed files of `impl` by their paths below it; raises MutationError."""
        texts: dict[str, str] = {}
        for edit in self.edits:
            before = texts.get(edit.file) or (impl / edit.file).read_text()
            try:
                texts[edit.file] = edit.apply(before)
            except MutationError as error:
                raise MutationError(f"mutation {self.name}: {error}") from None
        return texts


def load_mutations() -> list[Mutation]:
    """Load all mutations in the order of the files."""
    folder = Path(__file__).parent
    return [_mutation(item) for name in FILES for item in yaml.safe_load((folder / f"{name}.yaml").read_text())]


def _mutation(item: Mapping[str, Any]) -> Mutation:
    edits = item.get("edits") or [{key: item[key] for key in ("file", "old", "new")}]
    return Mutation(item["name"], item["wrong"], tuple(Edit(**edit) for edit in edits))
