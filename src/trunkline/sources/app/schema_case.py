"""Schemas of programs that write every name with a capital: `{"Type": "object", "Properties": {…}}`.

Only such a schema is touched. The names that the app itself chose, below `properties`, stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

_KEYWORDS: Final = {
    keyword.casefold(): keyword
    for keyword in (
        *("type", "title", "description", "default", "enum", "const", "format", "pattern", "examples"),
        *("properties", "required", "additionalProperties", "items", "prefixItems", "uniqueItems"),
        *("anyOf", "oneOf", "allOf", "not", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
        *("minLength", "maxLength", "minItems", "maxItems", "multipleOf", "nullable"),
    )
}
_BY_NAME: Final = frozenset({"properties"})
_DATA: Final = frozenset({"default", "enum", "const", "examples", "required"})
_MAY_BE_NULL: Final = frozenset({"default", "const"})


def is_capitalised(schema: Mapping[str, object]) -> bool:
    return "type" not in schema and ("Type" in schema or "Properties" in schema)


def with_small_keywords(schema: Any) -> Any:
    """The same schema with the keywords of JSON Schema in their own spelling, at every depth.

    Those that are null are left out: such programs write what they do not have.
    """
    if isinstance(schema, list):
        return [with_small_keywords(item) for item in cast(list[Any], schema)]
    if not isinstance(schema, dict):
        return schema
    spelled: dict[str, Any] = {}
    for name, value in cast(dict[str, Any], schema).items():
        keyword = _KEYWORDS.get(name.casefold(), name)
        if value is not None or keyword in _MAY_BE_NULL:
            spelled[keyword] = _value(keyword, value)
    return spelled


def _value(keyword: str, value: Any) -> Any:
    if keyword in _DATA:
        return value
    if keyword in _BY_NAME and isinstance(value, dict):
        return {name: with_small_keywords(inner) for name, inner in cast(dict[str, Any], value).items()}
    return with_small_keywords(value)
