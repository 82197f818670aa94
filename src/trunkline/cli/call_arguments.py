"""A tool's arguments as people type them: one JSON object, or `key=value` pairs made fit by the tool's schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn, cast

_TYPES: Final = {
    "integer": "a whole number",
    "number": "a number",
    "boolean": "`true` or `false`",
    "array": "a JSON list",
    "object": "a JSON object",
    "null": "`null`",
}
"""The JSON types that are not text, in words."""
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


class BadArguments(ValueError):
    """What was typed makes no arguments, and why."""


def is_whole(typed: Sequence[str]) -> bool:
    """Whether one JSON object was typed, for which no schema is needed."""
    return len(typed) == 1 and _is_object(typed[0])


def read_whole(text: str) -> bytes:
    """One JSON object, passed on as it was written, to the last digit."""
    import json

    from trunkline.protocol.jsonrpc import BadMessage, members_of, single_line

    check_text(text)
    try:
        json.loads(text, parse_int=str, parse_float=str)  # for its messages, which say where
        data = text.strip().encode()
        members_of(data, "what was given")
        return bytes(single_line(data))
    except (ValueError, BadMessage, RecursionError) as error:
        raise BadArguments(f"the arguments are not a JSON object: {error}") from None


def read_pairs(typed: Sequence[str], schema: Mapping[str, Any]) -> bytes:
    """`key=value` pairs as a JSON object. A value is text unless the schema says otherwise; `key:=value` is JSON."""
    import msgspec

    from trunkline.protocol.jsonrpc import encode_members

    found: dict[str, bytes] = {}
    for pair in typed:
        name, value, is_json = split_pair(pair)
        if name in found:
            raise BadArguments(f"`{name}` is given twice")
        kinds = set[str]() if is_json else kinds_of(schema, name)
        is_text = not is_json and ("string" in kinds or not kinds & _TYPES.keys())
        found[name] = msgspec.json.encode(value) if is_text else _json(name, value, kinds)
    return encode_members(found)


def split_pair(pair: str) -> tuple[str, str, bool]:
    """The key, the value, and whether the value is JSON."""
    check_text(pair)
    if _is_object(pair):
        raise BadArguments("a JSON object holds all the arguments, so nothing can stand beside it")
    name, equals, value = pair.partition("=")
    is_json = name.endswith(":")
    name = name.removesuffix(":")
    if not equals or not name:
        raise BadArguments(f"`{_brief(pair)}` is neither `key=value` nor a JSON object")
    return name, value, is_json


def check_name(name: str) -> None:
    """What a tool may be called by. Longer names than any tool has would be refused somewhere on the way."""
    check_text(name)
    if not 0 < len(name) <= _LONGEST_NAME:
        raise BadArguments(f"the name of a tool has 1 to {_LONGEST_NAME} characters")


def check_text(text: str) -> None:
    """A shell passes any bytes on; JSON cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadArguments(f"`{_brief(ascii(text)[1:-1])}` is not valid UTF-8") from None


def _is_object(text: str) -> bool:
    return text.lstrip().startswith("{")


def _json(name: str, value: str, kinds: set[str]) -> bytes:
    """The value as it was typed, once it is known to be JSON."""
    import json

    def refuse(constant: str) -> NoReturn:
        raise ValueError(constant)  # NaN and Infinity: Python's JSON has them, nobody else's

    try:
        json.loads(value, parse_int=str, parse_float=str, parse_constant=refuse)
        return value.strip().encode()
    except (ValueError, RecursionError):
        wanted = " or ".join(_TYPES[kind] for kind in _TYPES if kind in kinds) or _JSON
        raise BadArguments(f"`{name}` must be {wanted}, not `{_brief(value)}`") from None


def _brief(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


# -- what the schema says ---------------------------------------------------------------------------------------------


def kinds_of(schema: Mapping[str, Any], name: str) -> set[str]:
    """The JSON types the schema allows for a property; empty where it does not say."""
    described = _object(_object(schema.get("properties")).get(name))
    return _kinds(described, schema, _MAX_DEPTH)


def _kinds(described: Mapping[str, Any], schema: Mapping[str, Any], depth: int) -> set[str]:
    if not depth:
        return set()
    found = {kind for kind in _list(described.get("type")) if isinstance(kind, str)}
    found |= {_kind(value) for value in [*_list(described.get("enum", [])), *_list(described.get("const", []))]}
    for group in ("anyOf", "oneOf", "allOf"):
        for choice in _list(described.get(group)):
            found |= _kinds(_object(choice), schema, depth - 1)
    if "$ref" in described:
        found |= _kinds(_referred(str(described["$ref"]), schema), schema, depth - 1)
    return found


def _referred(reference: str, schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """A part of the same schema, like `#/$defs/colour`; nothing is fetched from elsewhere."""
    if not reference.startswith("#/"):
        return {}
    part: Any = schema
    for step in reference[2:].split("/"):
        part = _object(part).get(step.replace("~1", "/").replace("~0", "~"))
    return _object(part)


def _kind(value: object) -> str:
    return _BY_TYPE.get(type(value), "null")


def _object(value: object) -> Mapping[str, Any]:
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    """What may be one value or a list of them, as a list."""
    if value is None:
        return []
    return cast(list[Any], value) if isinstance(value, list) else [value]
