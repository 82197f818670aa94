"""A tool's arguments as people type them: one JSON object, or `key=value` pairs made fit by the tool's schema."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, TextIO, cast

from trunkline.wire.jsonrpc import BadMessage, encode, members_of, single_line

_NOT_TEXT: Final = frozenset({"integer", "number", "boolean", "array", "object", "null"})


class BadArguments(ValueError):
    """What was typed makes no arguments, and why."""


def read_arguments(typed: Sequence[str], schema: Mapping[str, Any], stdin: TextIO) -> bytes:
    """The arguments as JSON text. JSON that was typed is passed on as it is, to the last digit."""
    if len(typed) == 1 and (typed[0] == "-" or typed[0].lstrip().startswith("{")):
        return _whole(stdin.read() if typed[0] == "-" else typed[0])
    found: dict[str, Any] = {}
    for pair in typed:
        name, value = _pair(pair, schema)
        if name in found:
            raise BadArguments(f"`{name}` is given twice")
        found[name] = value
    return encode(found)


def _whole(text: str) -> bytes:
    try:
        json.loads(text)
        members_of(text.strip().encode(), "the arguments")
        return bytes(single_line(text.strip().encode()))
    except (ValueError, BadMessage, RecursionError) as error:
        raise BadArguments(f"the arguments are not a JSON object: {error}") from None


def _pair(pair: str, schema: Mapping[str, Any]) -> tuple[str, Any]:
    name, equals, value = pair.partition("=")
    if not equals or not name:
        raise BadArguments(f"`{pair}` is not `key=value`, and not a JSON object")
    if name.endswith(":"):
        return name[:-1], _json(name[:-1], value)
    kinds = _kinds(schema, name)
    is_text = "string" in kinds or not kinds & _NOT_TEXT
    return name, value if is_text else _json(name, value)


def _kinds(schema: Mapping[str, Any], name: str) -> set[str]:
    """The JSON types the schema allows for a property; empty where it does not say."""
    properties: Any = schema.get("properties")
    described: Any = cast(dict[str, Any], properties).get(name) if isinstance(properties, dict) else None
    return _types(cast(dict[str, Any], described)) if isinstance(described, dict) else set()


def _types(described: Mapping[str, Any]) -> set[str]:
    kinds: Any = described.get("type")
    found = {kinds} if isinstance(kinds, str) else {str(kind) for kind in cast(list[Any], kinds or [])}
    for choice in cast(list[Any], described.get("anyOf") or described.get("oneOf") or []):
        if isinstance(choice, dict):
            found |= _types(cast(dict[str, Any], choice))
    return found


def _json(name: str, value: str) -> Any:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise BadArguments(f"`{name}` must be JSON (a number, true, a list …), not `{value}`") from None
