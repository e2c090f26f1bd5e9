"""What a case of kind `donor` may say: a cache and steps, as in kind `ring`, and how what it lends is looked at."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from harness.case.model import Positive, Strict
from harness.kinds.ring.schema import StepsCase

DonorCheck = Literal["visible", "stored", "attention", "positions", "untouched"]
Timed = Literal["lend", "attend"]


class Lend(Strict):
    """How what is lent after a step is looked at."""

    windows: Annotated[list[Positive | Literal["none"]], Field(min_length=1)] = Field(
        default=["none"], description="windows of the layers that borrow; none: all that is lent"
    )
    queries: Positive = Field(default=1, description="draft positions that ask at once; all see the same tokens")
    decoded: bool = Field(default=False, description="lend affine rows as plain arrays")

    def window_tokens(self) -> list[int | None]:
        """Return the windows, None for all that is lent."""
        return [None if window == "none" else window for window in self.windows]


class DonorCase(StepsCase):
    """One behavior of a cache that lends."""

    kind: Literal["donor"]
    lend: Lend = Field(default_factory=Lend)
    check: Annotated[list[DonorCheck], Field(min_length=1)]
    time: list[Timed] = Field(default_factory=list)

    @property
    def checks(self) -> tuple[str, ...]:
        """What is compared of every loan."""
        return tuple(self.check)
