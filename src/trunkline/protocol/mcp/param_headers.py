"""Arguments of a tool that `Mcp-Param-*` headers repeat: which ones, how they are written, and whether they match."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Final, cast

import msgspec

from trunkline.core.call import Json
from trunkline.protocol.mcp.modern import decode_header, encode_header

PREFIX: Final = b"mcp-param-"
_ANNOTATION: Final = "x-mcp-header"
_ANNOTATION_BYTES: Final = _ANNOTATION.encode()
_TYPES: Final = ("string", "integer", "boolean")
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,200}")
_NUMBER: Final = re.compile(r"-?[0-9]{1,400}(\.[0-9]{1,400})?([eE][+-]?[0-9]{1,4})?")
_SCHEMA: Final = frozenset(
    {"items", "contains", "unevaluatedItems", "additionalItems", "contentSchema", "not", "if", "then", "else"}
    | {"additionalProperties", "propertyNames", "unevaluatedProperties"}
)
_SCHEMA_LIST: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems", "items"})
_SCHEMA_MAP: Final = frozenset({"patternProperties", "dependentSchemas", "$defs", "definitions"})
_MAX_SCHEMAS: Final = 100_000

_Schema = dict[str, object]
_Path = tuple[str, ...]


class BadAnnotation(ValueError):
    """An `x-mcp-header` that the protocol forbids: the tool must not be offered."""


@dataclass(frozen=True, slots=True)
class HeaderParameter:
    """An argument that a header repeats: its path, and the header's name in lower case."""

    path: _Path
    header: bytes


class _Definition(msgspec.Struct):
    inputSchema: object = None


# -- header parameters --------------------------------------------------------------------------------------------


def header_parameters_of(definition: bytes) -> tuple[HeaderParameter, ...]:
    """The header parameters of a tool; nearly all tools have none, which is cheap to see. Raises `BadAnnotation`."""
    if _ANNOTATION_BYTES not in definition and b"\\u" not in definition:
        return ()
    try:
        schema = msgspec.json.decode(definition, type=_Definition).inputSchema
    except (msgspec.MsgspecError, RecursionError):
        return ()
    header_parameters: dict[bytes, HeaderParameter] = {}
    for path, position in _positions(schema):
        if _ANNOTATION in position:
            parameter = _header_parameter(path, position)
            if parameter.header in header_parameters:
                raise BadAnnotation(f"two arguments want the header `{parameter.header.decode()}`")
            header_parameters[parameter.header] = parameter
    return tuple(header_parameters.values())


def _header_parameter(path: _Path | None, schema: _Schema) -> HeaderParameter:
    token = schema[_ANNOTATION]
    if not path:
        raise BadAnnotation(f"`{_ANNOTATION}` does not belong to a single argument")
    where = ".".join(path)
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        raise BadAnnotation(f"`{_ANNOTATION}` of `{where}` is not a valid header name")
    if schema.get("type") not in _TYPES:
        raise BadAnnotation(f"`{_ANNOTATION}` is for strings, integers and booleans, but `{where}` is none of these")
    return HeaderParameter(path, PREFIX + token.lower().encode())


def _positions(root: object) -> Iterator[tuple[_Path | None, _Schema]]:
    """Every schema within a schema, with the path of the argument that it describes; None if it is not a single one.

    Data (`default`, `enum`) is skipped, and no reference is followed.
    """
    waiting: list[tuple[_Path | None, object]] = [((), root)]
    for _ in range(_MAX_SCHEMAS):
        if not waiting:
            return
        path, node = waiting.pop()
        if isinstance(node, dict):
            schema = cast(_Schema, node)
            yield path, schema
            properties = schema.get("properties")
            if isinstance(properties, dict):
                named = cast(_Schema, properties).items()
                waiting += [(None if path is None else (*path, name), inner) for name, inner in named]
            waiting += [(None, inner) for inner in _schemas_in(schema)]
    raise BadAnnotation("its schema is too large to look for annotations")


def _schemas_in(schema: _Schema) -> Iterator[object]:
    for keyword, value in schema.items():
        if keyword in _SCHEMA_MAP and isinstance(value, dict):
            yield from cast(_Schema, value).values()
        elif keyword in _SCHEMA_LIST and isinstance(value, list):
            yield from cast(list[object], value)
        elif keyword in _SCHEMA:
            yield value


# -- values -------------------------------------------------------------------------------------------------------


def param_headers(header_parameters: Collection[HeaderParameter], arguments: Json) -> list[tuple[bytes, bytes]]:
    """The headers of a call: one for every header parameter that has a value."""
    headers: list[tuple[bytes, bytes]] = []
    for parameter in header_parameters:
        text = _text_at(arguments, parameter.path)
        if text is not None:
            headers.append((parameter.header, encode_header(text) if text else b""))
    return headers


def check_param_headers(
    headers: Mapping[bytes, bytes],
    header_parameters: Collection[HeaderParameter],
    arguments: Json,
    repeated: Collection[bytes] = (),
) -> str | None:
    """What is wrong with the headers of a call (names in lower case); None if they match its arguments."""
    for parameter in header_parameters:
        what = _disagreement(headers, parameter, arguments, repeated)
        if what is not None:
            return f"Header `{parameter.header.decode()}` {what}"
    return None


def _disagreement(
    headers: Mapping[bytes, bytes], parameter: HeaderParameter, arguments: Json, repeated: Collection[bytes]
) -> str | None:
    raw, expected = headers.get(parameter.header), _text_at(arguments, parameter.path)
    if parameter.header in repeated:
        return "appears more than once"
    if raw is None:
        return None if expected is None else "is missing"
    value = decode_header(raw)
    if value is None:
        return "cannot be decoded"
    if expected is None:
        return "repeats an argument that has no value"
    both_numbers = _NUMBER.fullmatch(value) and _NUMBER.fullmatch(expected)
    same = value == expected or (both_numbers and Decimal(value) == Decimal(expected))
    return None if same else "differs from the body"


def _text_at(arguments: Json, path: _Path) -> str | None:
    """An argument as a header writes it; None if it is absent, or of a type that headers cannot have."""
    raw = bytes(arguments)
    try:
        for name in path:
            inner = msgspec.json.decode(raw, type=dict[str, msgspec.Raw]).get(name)
            if inner is None:
                return None
            raw = bytes(inner)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return _spelled(raw)


def _spelled(raw: bytes) -> str | None:
    if raw[:1] == b'"':
        try:
            return msgspec.json.decode(raw, type=str)
        except msgspec.MsgspecError:
            return None
    if raw in (b"true", b"false"):
        return raw.decode()
    text = raw.decode("latin-1")
    return _plain_number(text) if _NUMBER.fullmatch(text) else None


def _plain_number(text: str) -> str:
    """A number as a header writes it: whole numbers as digits only, however the body writes them."""
    if text.lstrip("-").isdigit():
        return text
    try:
        whole = Decimal(text).to_integral_value()
        return format(whole, "f") if whole == Decimal(text) and whole.adjusted() < 400 else text
    except InvalidOperation:
        return text
