"""The steps that a case of kind `recurrent` may take: those of a ring that make sense for a state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from harness.case.model import Count  # noqa: TC001 - pydantic reads it
from harness.case.problem import nearest
from harness.kinds.ring.arguments import Arguments
from harness.kinds.ring.steps import (
    AppendStep,
    BeginStep,
    ChunkStep,
    CommitStep,
    CopyStep,
    DecodeStep,
    FilterStep,
    FinalizeStep,
    PrefillStep,
    PrepareStep,
    RollbackStep,
    SaveLoadStep,
    Step,
    TrimStep,
)

if TYPE_CHECKING:
    from pydantic import GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import CoreSchema

__all__ = ["AnyStep", "ExtendStep", "ExtractStep", "MergeStep", "Step"]


class RowArguments(Arguments):
    """One row."""

    row: Count


class ExtractStep(Step):
    """Go on with one row alone."""

    operation = "extract"
    extract: RowArguments


def _operation(value: Any) -> str | None:
    if isinstance(value, Step):
        return value.operation
    return next((key for key in value if key in OPERATIONS), None) if isinstance(value, dict) else None


def _normal(value: Any) -> Any:
    """Write `finalize` as `finalize:`, and say what is wrong with an item that is no step."""
    if isinstance(value, Step):
        return value
    if isinstance(value, str) and value in BARE:
        return {value: None}
    if isinstance(value, dict):
        found = [key for key in value if key in OPERATIONS]
        if len(found) == 1:
            return value
        if len(found) > 1:
            raise _problem(f"'{found[0]}' and '{found[1]}' stand in one item; make them two items")
    word = next(iter(value), "") if isinstance(value, dict) else value
    if isinstance(word, str) and word in OPERATIONS:
        raise _problem(f"'{word}' needs its argument, such as `- append: 3`")
    hint = nearest(word, OPERATIONS) if isinstance(word, str) else "; write for example `- append: 3`"
    raise _problem(f"{word!r} is no step{hint}")


def _problem(why: str) -> PydanticCustomError:
    return PydanticCustomError("step", "{why}", {"why": why})


SoloStep = Annotated[
    Annotated[AppendStep, Tag("append")] | Annotated[DecodeStep, Tag("decode")],
    Discriminator(
        _operation,
        custom_error_type="step",
        custom_error_message="is no step for a row that is built; write append or decode",
    ),
    BeforeValidator(_normal),
]


class RowsArguments(Arguments):
    """Rows, each made as a cache of its own by its own steps; an empty list is an empty cache."""

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


class _ShortForms:
    """Lets an editor accept what `_normal` and the matrix do: a bare word, or the name of steps."""

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        written = handler(core)
        words = {"enum": list(BARE), "description": "a step without argument"}
        names = {"type": "string", "description": "a matrix key that holds steps"}
        return {"anyOf": [*written["oneOf"], words, names]}


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
    | Annotated[CopyStep, Tag("copy")]
    | Annotated[SaveLoadStep, Tag("save-load")],
    Discriminator(_operation),
    BeforeValidator(_normal),
    _ShortForms(),
]
OPERATIONS = (
    "append", "decode", "prefill", "prepare", "chunk", "finalize", "begin", "commit", "rollback", "trim", "merge",
    "extend", "filter", "extract", "copy", "save-load",
)  # fmt: skip
BARE = ("finalize", "commit", "save-load")
