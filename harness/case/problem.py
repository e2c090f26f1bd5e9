"""One thing wrong with a case file, and the words to say it."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, order=True)
class Problem:
    """A place in a case file (1-based line and column), the key there, and what to write instead."""

    path: str
    line: int
    column: int
    key: str
    message: str

    def __str__(self) -> str:
        """Read like a compiler's message, so that editors can jump to it."""
        key = f"{self.key}: " if self.key else ""
        return f"{self.path}:{self.line}:{self.column}: {key}{self.message}"


def closest(word: str, words: Iterable[str]) -> str | None:
    """Return the one of `words` that `word` was probably meant to be."""
    close = difflib.get_close_matches(str(word).lower(), sorted(set(words)), n=1, cutoff=0.6)
    return close[0] if close else None


def nearest(word: str, words: Iterable[str]) -> str:
    """Return `; did you mean 'x'?` for the nearest of `words`, or what can be written when none is near."""
    known = sorted(set(words), key=lambda text: (int(text), "") if text.isdecimal() else (0, text))
    close = closest(word, known)
    if close is not None:
        return f"; did you mean '{close}'?"
    if len(known) == 1:
        return f"; write {known[0]}"
    return f"; write one of: {', '.join(known)}" if known else ""
