"""Arguments against the top level of a tool's schema: what is missing, unknown or of the wrong type, said in words.

It is no validator: what stands deeper in the schema is for the handler to check.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int, float),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}

Schema = Mapping[str, Any]


def fault_in(arguments: Mapping[str, Any], schema: Schema) -> str:
    """What is wrong with the arguments, for whoever wrote them; empty when nothing is."""
    properties = _table(schema.get("properties"))
    required = schema.get("required")
    for name in cast(list[Any], required) if isinstance(required, list) else ():
        if name not in arguments:
            return f"The argument `{name}` is missing"
    if schema.get("additionalProperties") is False and not schema.get("patternProperties"):
        for name in arguments:
            if name not in properties:
                return f"Unknown argument `{name}`; this tool takes {_listed(properties)}"
    faults = (_fault_of(name, value, _table(properties.get(name))) for name, value in arguments.items())
    return next(filter(None, faults), "")


def _fault_of(name: str, value: Any, schema: Schema) -> str:
    wanted = schema.get("type")
    types = [wanted] if isinstance(wanted, str) else cast(list[Any], wanted) if isinstance(wanted, list) else []
    if types and not any(_is_a(value, kind) for kind in types):
        return f"`{name}` must be of the type {' or '.join(map(str, types))}"
    allowed = schema.get("enum")
    if isinstance(allowed, list) and value not in cast(list[Any], allowed):
        return f"`{name}` must be one of {_listed(cast(list[Any], allowed))}"
    return ""


def _is_a(value: Any, kind: Any) -> bool:
    python_types = _TYPES.get(kind) if isinstance(kind, str) else None
    if python_types is None:
        return True
    if isinstance(value, bool) and bool not in python_types:
        return False
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()  # to JSON Schema 3.0 is an integer too
    return isinstance(value, python_types)


def _table(value: Any) -> Schema:
    return cast(Schema, value) if isinstance(value, dict) else {}


def _listed(names: Iterable[Any]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "no arguments"
