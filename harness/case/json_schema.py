"""The JSON Schema of case files, for completion and checks in editors; `case.schema.json` beside this is its text.

It is a little more generous than the loader: where a matrix key may stand for a value, any text is accepted.
"""

from __future__ import annotations

import json
from typing import Any

from pydantic.json_schema import models_json_schema

from harness.kinds import KIND_NAMES, get_kind
from harness.kinds.ring.arguments import TokensArgument
from harness.kinds.ring.steps import BARE, AppendStep, ChunkStep, DecodeStep, TrimStep


def schema() -> dict[str, Any]:
    """Return the schema: one alternative a kind."""
    models = [get_kind(name).model for name in KIND_NAMES]
    references, whole = models_json_schema([(model, "validation") for model in models], by_alias=True)
    definitions: dict[str, Any] = whole["$defs"]
    for model in models:
        case = definitions[model.__name__]
        given = model.model_fields["given"].annotation
        # What the matrix gives need not stand in `given`.
        definitions[given.__name__].pop("required", None)  # type: ignore[union-attr]  # a model class
        case["required"] = [key for key in case.get("required", []) if key != "given"]
    _open_to_names(definitions)
    _open_to_short_forms(definitions)
    words = {"enum": list(BARE), "description": "a step without argument"}
    names = {"type": "string", "description": "a matrix key that holds steps"}
    for name in ("RingCase", "DonorCase"):
        steps = definitions[name]["properties"]["steps"]["items"]
        steps["anyOf"] = [*steps.pop("oneOf"), words, names]
        steps.pop("discriminator", None)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "metal-assay case",
        "type": "object",
        "oneOf": [references[model, "validation"] for model in models],
        "$defs": definitions,
    }


def _open_to_names(definitions: dict[str, Any]) -> None:
    """Let a matrix key's name stand for any list or mapping that is not a case's own frame, also within lists."""
    for name, definition in definitions.items():
        if not name.endswith("Case"):
            for prop in definition.get("properties", {}).values():
                _open(prop)


def _open(value: dict[str, Any]) -> None:
    if value.get("type") not in ("array", "object"):
        return
    if isinstance(value.get("items"), dict):
        _open(value["items"])
    closed = {key: value.pop(key) for key in ("type", "items", "minItems") if key in value}
    value["anyOf"] = [closed, {"type": "string"}]


def _open_to_short_forms(definitions: dict[str, Any]) -> None:
    """Let a step's count stand as `{tokens: n}`, and one number for all rows."""
    definitions["TokensArgument"] = TokensArgument.model_json_schema()
    for step in (AppendStep, DecodeStep, ChunkStep, TrimStep):
        definitions[step.__name__]["properties"][step.operation]["anyOf"].append({"$ref": "#/$defs/TokensArgument"})
    definitions["RollbackArguments"]["properties"]["keep"]["anyOf"].append({"type": "integer", "minimum": 0})


def schema_text() -> str:
    """Return the schema as the committed file has it."""
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"
