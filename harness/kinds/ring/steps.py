"""The steps that a case of kind `ring` may take: one small model each, chosen by the step's word."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from harness.case.model import Strict
from harness.case.problem import nearest
from harness.kinds.ring.arguments import (
    Arguments,
    DonorArguments,
    ExtractArguments,
    FilterArguments,
    PinnedValue,
    PrefillArguments,
    PrepareArguments,
    QuantizeArguments,
    RollbackArguments,
    Tokens,
)

Check = Literal["visible", "stored", "attention", "positions", "untouched"]


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


class PrefillStep(Step):
    """Prepare, all chunks, finalize."""

    operation = "prefill"
    prefill: PrefillArguments


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


class RollbackStep(Step):
    """Keep the first tokens of the round in each row, drop the rest."""

    operation = "rollback"
    rollback: RollbackArguments


class TrimStep(Step):
    """Forget the newest tokens of every row."""

    operation = "trim"
    trim: Tokens


class FilterStep(Step):
    """Keep these rows in this order."""

    operation = "filter"
    filter: FilterArguments


class ExtractStep(Step):
    """Go on with one row alone."""

    operation = "extract"
    extract: ExtractArguments


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


class DonorStep(Step):
    """Look at what the ring lends to a layer that has only queries."""

    operation = "donor"
    donor: DonorArguments


class PinStep(Step):
    """State layout and policy of the reference at this point, which are neither right nor wrong for others."""

    operation = "pin"
    pin: Annotated[dict[str, PinnedValue], Field(min_length=1)]

    def text(self) -> str:
        """Write the step as the case file does."""
        return f"pin {', '.join(self.pin)}"


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
    | Annotated[PinStep, Tag("pin")]
    | Annotated[CheckStep, Tag("check")],
    Discriminator(_operation),
    BeforeValidator(_normal),
]
OPERATIONS = (
    "append", "decode", "prefill", "prepare", "chunk", "finalize", "begin", "commit", "rollback", "trim", "merge",
    "extend", "filter", "extract", "quantize", "copy", "save-load", "donor", "pin", "check",
)  # fmt: skip
BARE = ("finalize", "commit", "save-load", "check")
