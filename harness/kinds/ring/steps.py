"""The steps that a case of kind `ring` may take: one small model each, chosen by the step's word."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, WithJsonSchema
from pydantic_core import PydanticCustomError

from harness.case.model import Count, Positive, Strict
from harness.case.problem import nearest

Check = Literal["visible", "stored", "attention", "positions", "untouched"]

_COUNTS_SCHEMA = {
    "anyOf": [{"type": "array", "items": {"type": ["integer", "string"]}}, {"type": "string"}],
    "description": "one number a row; a shorter list is repeated",
}
Counts = Annotated[list[Count], Field(min_length=1), WithJsonSchema(_COUNTS_SCHEMA)]


def _one_or_list(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


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


class Step(Strict):
    """One thing that happens. `expect: refused` says that a ring of this size can't do it exactly."""

    operation: ClassVar[str]
    expect: Literal["refused"] | None = None

    def text(self) -> str:
        """Write the step as the case file does, on one line."""
        value = getattr(self, self.operation.replace("-", "_"))
        shown = "" if value is None else str(value.arguments() if isinstance(value, Arguments) else value)
        return f"{self.operation} {shown}".strip().replace("'", "")


class AppendStep(Step):
    """One block of new tokens for every row."""

    operation = "append"
    append: Tokens


class DecodeStep(Step):
    """Blocks of one token."""

    operation = "decode"
    decode: Tokens


class PrefillArguments(Arguments):
    """A padded prefill: real tokens and left padding of each row, and how the width is cut into chunks."""

    lengths: Counts
    left: Counts | None = None
    chunks: Counts | None = None


class PrefillStep(Step):
    """Prepare, all chunks, finalize."""

    operation = "prefill"
    prefill: PrefillArguments


class PrepareArguments(Arguments):
    """Real tokens and left padding of each row."""

    lengths: Counts
    left: Counts | None = None


class PrepareStep(Step):
    """Announce a padded prefill."""

    operation = "prepare"
    prepare: PrepareArguments


class ChunkStep(Step):
    """The next columns of the open padded prefill."""

    operation = "chunk"
    chunk: Tokens


class FinalizeStep(Step):
    """Close the padded prefill."""

    operation = "finalize"
    finalize: None = None


class BeginStep(Step):
    """Open a speculative round."""

    operation = "begin"
    begin: Literal["round"]


class CommitStep(Step):
    """Accept the whole round."""

    operation = "commit"
    commit: None = None


class RollbackArguments(Arguments):
    """How many of the round's tokens each row keeps."""

    keep: PerRow


class RollbackStep(Step):
    """Keep the first tokens of the round in each row, drop the rest."""

    operation = "rollback"
    rollback: RollbackArguments


class TrimStep(Step):
    """Forget the newest tokens of every row."""

    operation = "trim"
    trim: Tokens


class FilterArguments(Arguments):
    """Rows to keep, in their new order."""

    rows: Counts


class FilterStep(Step):
    """Keep these rows in this order."""

    operation = "filter"
    filter: FilterArguments


class ExtractArguments(Arguments):
    """One row, and how many of its newest tokens come along at most."""

    row: Count
    limit: Positive | None = None


class ExtractStep(Step):
    """Go on with one row alone."""

    operation = "extract"
    extract: ExtractArguments


class QuantizeArguments(Arguments):
    """Affine storage."""

    bits: Positive
    group: Positive


class QuantizeStep(Step):
    """Turn plain storage into affine storage."""

    operation = "quantize"
    quantize: QuantizeArguments


class CopyStep(Step):
    """Go on with a copy; the original must stay as it was."""

    operation = "copy"
    copy_: Literal["deep"] = Field(alias="copy")

    def text(self) -> str:
        """Write the step as the case file does."""
        return f"copy {self.copy_}"


class SaveLoadStep(Step):
    """To a file and back, by the subject's own means."""

    operation = "save-load"
    save_load: None = Field(default=None, alias="save-load")


class DonorArguments(Arguments):
    """The window of the layer that borrows."""

    window: Positive | None = None


class DonorStep(Step):
    """Look at what the ring lends."""

    operation = "donor"
    donor: DonorArguments


class CheckStep(Step):
    """Look here; a case with such steps is not checked anywhere else."""

    operation = "check"
    check: list[Check] | None = None


def _operation(value: Any) -> str | None:
    if isinstance(value, Step):
        return value.operation
    return next((key for key in value if key in OPERATIONS), None) if isinstance(value, dict) else None


def _normal(value: Any) -> Any:
    """Write `finalize` as `finalize:`, and say what is wrong with an item that is no step."""
    if isinstance(value, str):
        if value in BARE:
            return {value: None}
        more = " needs its argument, such as `- append: 3`" if value in OPERATIONS else f" is no step{_hint(value)}"
        raise PydanticCustomError("step", "{why}", {"why": f"'{value}'{more}"})
    if isinstance(value, dict):
        found = [key for key in value if key in OPERATIONS]
        others = [str(key) for key in value if key not in OPERATIONS and key != "expect"]
        if not found:
            word = others[0] if others else "expect"
            raise PydanticCustomError("step", "{why}", {"why": f"'{word}' is no step{_hint(word)}"})
        if len(found) > 1:
            both = f"'{found[0]}' and '{found[1]}' stand in one item; a step does one thing: make them two items"
            raise PydanticCustomError("step", "{why}", {"why": both})
        return value
    if isinstance(value, Step):
        return value
    raise PydanticCustomError("step", "{why}", {"why": f"{value!r} is no step; write for example `- append: 3`"})


def _hint(word: str) -> str:
    return nearest(word, OPERATIONS)


SoloStep = Annotated[
    Annotated[AppendStep, Tag("append")]
    | Annotated[DecodeStep, Tag("decode")]
    | Annotated[TrimStep, Tag("trim")]
    | Annotated[QuantizeStep, Tag("quantize")],
    Discriminator(
        _operation,
        custom_error_type="step",
        custom_error_message="is no step for a solo cache; write append, decode, trim or quantize",
    ),
    BeforeValidator(_normal),
]


class RowsArguments(Arguments):
    """Rows, each made as a solo cache by its own steps; an empty list is an empty cache."""

    rows: Annotated[list[list[SoloStep]], Field(min_length=1)]

    def arguments(self) -> dict[str, Any]:
        """Return the rows with each step on one line."""
        return {"rows": [[step.text() for step in row] for row in self.rows]}


class MergeStep(Step):
    """Build one batch from solo caches; after other steps, the cache at hand (of one row) is the first of them."""

    operation = "merge"
    merge: RowsArguments


class ExtendStep(Step):
    """Join another batch, built the same way."""

    operation = "extend"
    extend: RowsArguments


AnyStep = Annotated[
    Annotated[AppendStep, Tag("append")]
    | Annotated[DecodeStep, Tag("decode")]
    | Annotated[PrefillStep, Tag("prefill")]
    | Annotated[PrepareStep, Tag("prepare")]
    | Annotated[ChunkStep, Tag("chunk")]
    | Annotated[FinalizeStep, Tag("finalize")]
    | Annotated[BeginStep, Tag("begin")]
    | Annotated[CommitStep, Tag("commit")]
    | Annotated[RollbackStep, Tag("rollback")]
    | Annotated[TrimStep, Tag("trim")]
    | Annotated[MergeStep, Tag("merge")]
    | Annotated[ExtendStep, Tag("extend")]
    | Annotated[FilterStep, Tag("filter")]
    | Annotated[ExtractStep, Tag("extract")]
    | Annotated[QuantizeStep, Tag("quantize")]
    | Annotated[CopyStep, Tag("copy")]
    | Annotated[SaveLoadStep, Tag("save-load")]
    | Annotated[DonorStep, Tag("donor")]
    | Annotated[CheckStep, Tag("check")],
    Discriminator(_operation),
    BeforeValidator(_normal),
]
OPERATIONS = (
    "append", "decode", "prefill", "prepare", "chunk", "finalize", "begin", "commit", "rollback", "trim", "merge",
    "extend", "filter", "extract", "quantize", "copy", "save-load", "donor", "check",
)  # fmt: skip
BARE = ("finalize", "commit", "save-load", "check")
