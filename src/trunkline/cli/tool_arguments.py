"""Reads a tool's arguments from the command line: one JSON object, or `key=value` pairs typed by the tool's schema.

Invalid arguments raise click.UsageError.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn, cast

import click

_TYPES: Final = {
    "integer": "a whole number",
    "number": "a number",
    "boolean": "`true` or `false`",
    "array": "a JSON list",
    "object": "a JSON object",
    "null": "`null`",
}
_BY_TYPE: Final[dict[type, str]] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
}
_JSON: Final = "JSON (a number, `true`, text in quotes, a list …)"
_MAX_DEPTH: Final = 20
_SHOWN: Final = 60
_LONGEST_NAME: Final = 1000


def is_whole(typed: Sequence[str]) -> bool:
    """Whether the arguments are one JSON object, which needs no schema."""
    return len(typed) == 1 and _is_object(typed[0])


def read_whole(text: str) -> bytes:
    """Check one JSON object and return it as it was written, so that numbers keep every digit."""
    import json

    from trunkline.protocol.jsonrpc import BadMessage, members_of, single_line

    check_text(text)
    try:
        json.loads(text, parse_int=str, parse_float=str)  # for its error messages, which give the position
        data = text.strip().encode()
        members_of(data, "the arguments")
        return bytes(single_line(data))
    except (ValueError, BadMessage, RecursionError) as error:
        raise click.UsageError(f"the arguments are not a JSON object: {error}") from None


def read_pairs(typed: Sequence[str], schema: Mapping[str, Any]) -> bytes:
    """`key=value` pairs as a JSON object. A value is text unless the schema says otherwise; `key:=value` is JSON."""
    import msgspec

    from trunkline.protocol.jsonrpc import encode_members

    found: dict[str, bytes] = {}
    for pair in typed:
        name, value, is_json = split_pair(pair)
        if name in found:
            raise click.UsageError(f"`{name}` is given twice")
        kinds = set[str]() if is_json else kinds_of(schema, name)
        is_text = not is_json and ("string" in kinds or not kinds & _TYPES.keys())
        found[name] = msgspec.json.encode(value) if is_text else _json(name, value, kinds)
    return encode_members(found)


def split_pair(pair: str) -> tuple[str, str, bool]:
    """The key, the value, and whether the value is JSON."""
    check_text(pair)
    if _is_object(pair):
        raise click.UsageError("a JSON object must be the only argument")
    name, equals, value = pair.partition("=")
    is_json = name.endswith(":")
    name = name.removesuffix(":")
    if not equals or not name:
        raise click.UsageError(f"`{_brief(pair)}` is neither `key=value` nor a JSON object")
    return name, value, is_json


def check_name(name: str) -> None:
    """Refuse a name that no tool can have."""
    check_text(name)
    if not 0 < len(name) <= _LONGEST_NAME:
        raise click.UsageError(f"a tool's name has 1 to {_LONGEST_NAME} characters")


def check_text(text: str) -> None:
    """Refuse what is not Unicode: shells pass on any bytes, JSON cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise click.UsageError(f"`{_brief(ascii(text)[1:-1])}` is not valid UTF-8") from None


def _is_object(text: str) -> bool:
    return text.lstrip().startswith("{")


def _json(name: str, value: str, kinds: set[str]) -> bytes:
    """Check that a value is JSON and return it as it was typed."""
    import json

    def refuse(constant: str) -> NoReturn:
        raise ValueError(constant)  # NaN and Infinity, which only Python takes for JSON

    try:
        json.loads(value, parse_int=str, parse_float=str, parse_constant=refuse)
        return value.strip().encode()
    except (ValueError, RecursionError):
        wanted = " or ".join(_TYPES[kind] for kind in _TYPES if kind in kinds) or _JSON
        raise click.UsageError(f"`{name}` must be {wanted}, not `{_brief(value)}`") from None


def _brief(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


# -- the schema -------------------------------------------------------------------------------------------------------


def kinds_of(schema: Mapping[str, Any], name: str) -> set[str]:
    """The JSON types that the schema allows for a property; empty if it does not say."""
    return _kinds(_object(_object(schema.get("properties")).get(name)), schema, _MAX_DEPTH)


def _kinds(described: Mapping[str, Any], schema: Mapping[str, Any], depth: int) -> set[str]:
    if not depth:
        return set()
    found = {kind for kind in _list(described.get("type")) if isinstance(kind, str)}
    values: list[object] = [*_list(described.get("enum", [])), *_list(described.get("const", []))]
    found |= {_BY_TYPE.get(type(value), "null") for value in values}
    for group in ("anyOf", "oneOf", "allOf"):
        for choice in _list(described.get(group)):
            found |= _kinds(_object(choice), schema, depth - 1)
    if "$ref" in described:
        found |= _kinds(_referred(str(described["$ref"]), schema), schema, depth - 1)
    return found


def _referred(reference: str, schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Resolve a reference within the schema, like `#/$defs/colour`; others are never fetched."""
    if not reference.startswith("#/"):
        return {}
    part: Any = schema
    for step in reference[2:].split("/"):
        part = _object(part).get(step.replace("~1", "/").replace("~0", "~"))
    return _object(part)


def _object(value: object) -> Mapping[str, Any]:
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    """One value or a list of values, as a list."""
    if value is None:
        return []
    return cast(list[Any], value) if isinstance(value, list) else [value]
