"""The small parts that the JSON Schemas of the OpenAPI document are made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

Schema = dict[str, Any]

TEXT: Final[Schema] = {"type": "string"}
COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
SWITCH: Final[Schema] = {"type": "boolean"}
TEXTS: Final[Schema] = {"type": "array", "items": TEXT}
CODE: Final[Schema] = {"type": "string", "pattern": "^TL[0-9]{3}$"}


def told(schema: Schema, description: str) -> Schema:
    return {**schema, "description": description}


def list_of(item: Schema) -> Schema:
    return {"type": "array", "items": item}


def reference(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def exactly(properties: Mapping[str, Schema], *optional: str, **more: Any) -> Schema:
    """An object that has exactly these members, all but the optional ones for certain."""
    required = [name for name in properties if name not in optional]
    return {
        "type": "object",
        "properties": dict(properties),
        "required": required,
        "additionalProperties": False,
        **more,
    }
