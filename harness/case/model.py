"""What every case file says, whatever its kind. pydantic checks it; errors are re-worded in the file's own terms."""

from __future__ import annotations

from functools import cache
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, Union, get_args, get_origin

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from harness.case.expression import ExpressionError, evaluate_int
from harness.case.problem import closest, nearest

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import LiteralString

    from pydantic_core import ErrorDetails

    from harness.case.problem import Problem
    from harness.case.source import Location, Source

SCHEMA_VERSION = 1
_MISSING = "this key is missing"


def _resolve(value: Any, info: ValidationInfo) -> Any:
    if isinstance(value, str):
        names = (info.context or {}).get("names", {})
        try:
            return evaluate_int(value, names)
        except ExpressionError as error:
            raise PydanticCustomError("expression", "{why}", {"why": str(error)}) from None
    return value


def _number_schema(**bounds: int) -> WithJsonSchema:
    text = {"type": "string", "description": "arithmetic over matrix and given keys, such as `window + 1`"}
    return WithJsonSchema({"anyOf": [{"type": "integer", **bounds}, text]})


Whole = Annotated[int, Field(strict=True), BeforeValidator(_resolve), _number_schema()]
Count = Annotated[int, Field(strict=True, ge=0), BeforeValidator(_resolve), _number_schema(minimum=0)]
Positive = Annotated[int, Field(strict=True, ge=1), BeforeValidator(_resolve), _number_schema(minimum=1)]

# Whether its keys are used is for the loader to see (`harness.case.matrix`).
_MATRIX_SCHEMA = {
    "type": "object",
    "minProperties": 1,
    "additionalProperties": {
        "anyOf": [
            {"type": "array", "minItems": 1},
            {"type": "object", "minProperties": 1, "description": "names, which the ids show, and their values"},
        ]
    },
}

Dtype = Literal["float32", "float16", "bfloat16"]


class Strict(BaseModel):
    """A frozen model that names unknown keys together with the nearest valid one, beside all other errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    @model_validator(mode="wrap")
    @classmethod
    def _every_error(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if isinstance(data, cls):
            return data
        known = _keys(cls)
        if not isinstance(data, dict):
            words = ", ".join(sorted(known))
            raise PydanticCustomError("mapping", "must be a mapping with keys such as: {words}", {"words": words})
        unknown = [key for key in data if key not in known]
        details = [
            _detail("unknown_key", f"unknown key{nearest(str(key), known)}", (key,), data[key]) for key in unknown
        ]
        # A misspelled key is one mistake, not also a missing key.
        meant = {closest(str(key), known) for key in unknown}
        try:
            model = handler({key: value for key, value in data.items() if key in known} if unknown else data)
        except ValidationError as error:
            found = [item for item in error.errors(include_url=False) if not _is_missing(item, meant)]
            details += [
                _detail(
                    "unknown_key" if group[0]["type"] == "unknown_key" else "value",
                    _together(group),
                    group[0]["loc"][:1] if len(group) > 1 else group[0]["loc"],
                    group[0]["input"],
                )
                for group in cls._alternatives(found)
            ]
            raise ValidationError.from_exception_data(cls.__name__, details) from None
        if details:
            raise ValidationError.from_exception_data(cls.__name__, details)
        return model

    @classmethod
    def _alternatives(cls, errors: list[ErrorDetails]) -> list[list[ErrorDetails]]:
        """Put together what the members of a union (`window: number | none`) say of one value."""
        unions = {field.alias or name for name, field in cls.model_fields.items() if _is_union(field.annotation)}
        groups: dict[Any, list[ErrorDetails]] = {}
        for index, item in enumerate(errors):
            field = item["loc"][0] if item["loc"] else None
            groups.setdefault(field if field in unions and len(item["loc"]) == 2 else (index,), []).append(item)
        return [_one_of(group) for group in groups.values()]


@cache
def _keys(model: type[BaseModel]) -> frozenset[str]:
    return frozenset(field.alias or name for name, field in model.model_fields.items())


def _detail(kind: LiteralString, why: str, loc: tuple[str | int, ...], value: Any) -> InitErrorDetails:
    return InitErrorDetails(type=PydanticCustomError(kind, "{why}", {"why": why}), loc=loc, input=value)


def _is_missing(item: ErrorDetails, keys: set[str | None]) -> bool:
    return item["type"] == "missing" and len(item["loc"]) == 1 and item["loc"][0] in keys


def _is_union(annotation: Any) -> bool:
    return get_origin(annotation) in (Union, UnionType) and len(set(get_args(annotation)) - {type(None)}) > 1


def _one_of(group: list[ErrorDetails]) -> list[ErrorDetails]:
    """Keep the alternative that a word was meant to be, when there is one."""
    words = [item for item in group if item["type"] == "literal_error" and "did you mean" in in_words(item)]
    return words[:1] or sorted(group, key=lambda item: item["type"] == "literal_error")


def _together(group: list[ErrorDetails]) -> str:
    first, *rest = [in_words(item) for item in group]
    # Of `[4] is not valid here; write none` the first half was said already.
    return first + "".join(f"; or {words.rpartition('; ')[2]}" for words in rest)


def file_problem(source: Source, item: ErrorDetails, place: Callable[[Location], Location] = tuple) -> Problem:
    """Say where in its file one pydantic error is; `place` turns a location in the model into one in the file."""
    location, message = item["loc"], in_words(item)
    if message != _MISSING:
        return source.problem(place(location), message, at_key=item["type"] == "unknown_key")
    # `given` may be left out altogether: then its keys are missing from the file, not from `given`.
    key = location[-1] if len(location) == 1 or location[0] in source.value else ".".join(map(str, location))
    return source.problem(place(location[:-1]), f"the key '{key}' is missing")


def in_words(item: ErrorDetails) -> str:
    """Say one pydantic error in the words of a case file."""
    kind, value, context = item["type"], item["input"], item.get("ctx", {})
    shown = _shown(value)
    if kind == "missing":
        return _MISSING
    if kind == "literal_error":
        expected = [word.strip("'") for word in str(context["expected"]).replace(" or ", ", ").split(", ")]
        # "7" is near "1" for a spelling checker only.
        return f"{shown} is not valid here{nearest(value if isinstance(value, str) else '', expected)}"
    plain = {
        "int_type": f"must be a whole number or arithmetic such as `window + 1`, not {shown}",
        "int_from_float": f"must be a whole number, not {shown}",
        "string_type": f"must be text, not {shown}",
        "bool_type": f"must be true or false, not {shown}",
        "list_type": f"must be a list, not {shown}",
        "tuple_type": f"must be a list, not {shown}",
        "dict_type": f"must be a mapping, not {shown}",
        "float_type": f"must be a number, not {shown}",
        "finite_number": f"must be a number, not {shown}",
        "none_required": f"takes no value; leave {shown} out",
        "too_short": "must not be empty",
        "string_too_short": "must not be empty",
    }
    bounds = {
        "greater_than": "must be more than {gt:g}, not {shown}",
        "greater_than_equal": "must be {ge} or more, not {shown}",
        "less_than_equal": "must be {le} or less, not {shown}",
        "string_too_long": "must have at most {max_length} characters",
    }
    if kind in plain:
        return plain[kind]
    if kind in bounds:
        return bounds[kind].format(shown=shown, **context)
    message: str = item["msg"]
    return message.removeprefix("Value error, ")


def _shown(value: Any) -> str:
    """Write a value as YAML does where Python's spelling would puzzle, and not at any length."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


class Limits(Strict):
    """How much one instance may use before it counts as errored, and how much slower it may get unnoticed."""

    seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    memory_mib: Positive | None = None
    slowdown: Annotated[float, Field(gt=0, le=10, allow_inf_nan=False)] | None = Field(
        default=None, description="a time that grew by less than this share is no regression: 0.1 is 10 %"
    )


class CaseModel(Strict):
    """The keys that every case file may have; each kind adds `given`, `steps` and what it can check and time."""

    matrix_keys: ClassVar[frozenset[str]] = frozenset()

    assay: Literal[1] = Field(description="version of the case format")
    kind: str
    title: Annotated[str, Field(min_length=1, max_length=120)] = Field(description="the behavior, as one sentence")
    why: Annotated[str, Field(min_length=1)] = Field(description="why somebody would get this wrong")
    source: str | None = Field(default=None, description="where the behavior was reported or is defined")
    matrix: Annotated[dict[str, Any] | None, WithJsonSchema(_MATRIX_SCHEMA)] = Field(
        default=None, description="every combination of these values is an instance"
    )
    where: str | list[str] | None = Field(default=None, description="keeps the combinations for which this is true")
    requires: list[str] = Field(default_factory=list, description="only for subjects with these capabilities")
    timing: Literal["per-call", "amortized", "both"] = Field(
        default="per-call",
        description="how what `time` lists is timed; per-call: each call waits for the device; amortized: many are "
        "queued, and the last is waited for",
    )
    limits: Limits = Field(default_factory=Limits)
