"""Arguments of the steps of kind `ring`, where there is more than one, and numbers that may be given a row."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from harness.case.model import Count, Positive, Strict, Whole

_COUNTS_SCHEMA = {
    "anyOf": [{"type": "array", "items": {"type": ["integer", "string"]}}, {"type": "string"}],
    "description": "one number a row; a shorter list is repeated",
}
Counts = Annotated[list[Count], Field(min_length=1), WithJsonSchema(_COUNTS_SCHEMA)]


def _one_or_list(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


# What a `pin` step may state; a string is a name of the matrix or arithmetic, or a word.
PinnedValue = bool | Whole | float | list[Whole] | str
PerRow = Annotated[Counts, BeforeValidator(_one_or_list)]


class TokensArgument(Strict):
    """`{tokens: n}`, the long way to write `n`."""

    tokens: Positive


def _tokens(value: Any) -> Any:
    return value["tokens"] if isinstance(value, dict) and set(value) == {"tokens"} else value


Tokens = Annotated[Positive, BeforeValidator(_tokens)]


class Arguments(Strict):
    """Arguments of a step that has more than one."""

    def arguments(self) -> dict[str, Any]:
        """Return those that are set."""
        return {key: value for key, value in self.model_dump().items() if value is not None}


class PrefillArguments(Arguments):
    """A padded prefill: real tokens and left padding of each row, and how the width is cut into chunks."""

    lengths: Counts
    left: Counts | None = None
    chunks: Counts | None = None


class PrepareArguments(Arguments):
    """Real tokens and left padding of each row."""

    lengths: Counts
    left: Counts | None = None


class RollbackArguments(Arguments):
    """How many of the round's tokens each row keeps."""

    keep: PerRow


class FilterArguments(Arguments):
    """Rows to keep, in their new order."""

    rows: Counts


class ExtractArguments(Arguments):
    """One row, and how many of its newest tokens come along at most."""

    row: Count
    limit: Positive | None = None


class QuantizeArguments(Arguments):
    """Affine storage, for all rows or for those that are named."""

    bits: Positive
    group: Positive
    rows: Counts | None = None


class DonorArguments(Arguments):
    """The window of the layer that borrows, and whether it takes plain arrays only."""

    window: Positive | None = None
    decoded: bool = False
