"""What an app offers: its tools as MCP knows them, each with the name that goes out on the wire.

An app usually writes its own name before each tool's. Here that is the server's name already, so it is taken off; the
name as it was registered stays a spelling that callers may use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import msgspec
from msgspec import Raw

from trunkline.core.errors import TOOL_NOT_USABLE
from trunkline.core.tool import ToolDefinition
from trunkline.protocol.app_messages import folded_members
from trunkline.protocol.jsonrpc import BadMessage, Members, encode, encode_members, members_of, single_line

# Schemas of programs that write every name with a capital: `{"Type": "object", "Properties": {…}}`.
#
# Only such a schema is touched. The names that the app itself chose, below `properties`, stay as they are.

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


_MOST_TOOLS: Final = 1000
_MOST_WARNINGS: Final = 20
_LONGEST_NAME: Final = 128
_ANY_OBJECT: Final = b'{"type":"object"}'
_OBJECT_TYPE: Final = b'"object"'
_NULL: Final = b"null"


@dataclass(frozen=True, slots=True)
class AppTools:
    """`wire_names` has each tool's registered name, as JSON, by its own."""

    tools: tuple[ToolDefinition, ...]
    wire_names: dict[str, bytes]
    warnings: tuple[str, ...]


class _Schema(msgspec.Struct):
    """What clients insist on in a schema: they refuse a whole list because of one tool that has it otherwise."""

    properties: dict[str, dict[str, Raw]] = {}
    required: list[str] = []


class _Annotations(msgspec.Struct, rename="camel"):
    """The same for annotations."""

    title: str = ""
    read_only_hint: bool = False
    destructive_hint: bool = False
    idempotent_hint: bool = False
    open_world_hint: bool = False


class _Unusable(Exception):
    """Why a tool cannot be offered."""


def read_tools(server: str, app_name: str, definitions: Sequence[Raw]) -> AppTools:
    """The tools that can be used; what is wrong with the others is a warning each."""
    tools: list[ToolDefinition] = []
    wire_names: dict[str, bytes] = {}
    warnings: list[str] = []
    for number, raw in enumerate(definitions[:_MOST_TOOLS], 1):
        try:
            tool, registered = _read_tool(server, app_name, raw, number)
            if tool.name in wire_names:
                raise _Unusable(f"`{tool.name}` comes twice")
        except _Unusable as unusable:
            warnings.append(f"{TOOL_NOT_USABLE}: a tool is left out: {unusable}")
            continue
        wire_names[tool.name] = encode(registered)
        tools.append(tool)
    if len(definitions) > _MOST_TOOLS:
        warnings.insert(0, f"{TOOL_NOT_USABLE}: only the first {_MOST_TOOLS} of {len(definitions)} tools are offered")
    return AppTools(tuple(tools), wire_names, _shortened(warnings))


def _shortened(warnings: list[str]) -> tuple[str, ...]:
    more = len(warnings) - _MOST_WARNINGS
    return (*warnings[:_MOST_WARNINGS], *([f"{more} more warnings like these"] if more > 0 else []))


def _read_tool(server: str, app_name: str, raw: Raw, number: int) -> tuple[ToolDefinition, str]:
    try:
        members = folded_members(raw, f"tool {number}")
    except BadMessage as error:
        raise _Unusable(str(error)) from None
    registered = _text(members, "name", f"tool {number}")
    if not 0 < len(registered) <= _LONGEST_NAME or not registered.isprintable():
        raise _Unusable(f"the name of tool {number} is not 1 to {_LONGEST_NAME} printable characters")
    name = _without_app_name(registered, app_name)
    if not name:
        raise _Unusable(f"of `{registered}` nothing is left without the app's name")
    aliases = () if name == registered else (registered,)
    return ToolDefinition(server, name, _definition(name, members), aliases), registered


def _without_app_name(registered: str, app_name: str) -> str:
    prefix = f"{app_name}:"
    has_it = registered[: len(prefix)].casefold() == prefix.casefold()
    return registered[len(prefix) :].strip() if has_it else registered


def _definition(name: str, members: Members) -> bytes:
    definition = {"name": encode(name)}
    if title := _text(members, "title", f"`{name}`"):
        definition["title"] = encode(title)
    definition["description"] = encode(_text(members, "description", f"`{name}`"))
    definition["inputSchema"] = _schema(members, "inputSchema", name) or _ANY_OBJECT
    if (output_schema := _schema(members, "outputSchema", name)) is not None:
        definition["outputSchema"] = output_schema
    if (annotations := _object(members, "annotations", name)) is not None:
        _check(annotations, _Annotations, f"the `annotations` of `{name}`")
        definition["annotations"] = annotations
    return encode_members(definition)


def _schema(members: Members, member: str, name: str) -> bytes | None:
    """Clients refuse a whole list because of one tool whose schema is not for an object."""
    schema = _object(members, member, name)
    if schema is None:
        return None
    whose = f"the `{member}` of `{name}`"
    inner = members_of(schema, whose)
    if is_capitalised(inner):
        schema = _respelled(schema, whose)
        inner = members_of(schema, whose)
    if "type" not in inner:
        schema = encode_members({"type": _OBJECT_TYPE, **inner})
    elif bytes(inner["type"]) != _OBJECT_TYPE:
        raise _Unusable(f"{whose} is not of type `object`")
    _check(schema, _Schema, whose)
    return schema


def _respelled(schema: bytes, whose: str) -> bytes:
    try:
        return encode(with_small_keywords(msgspec.json.decode(schema)))
    except RecursionError:
        raise _Unusable(f"{whose} is nested too deeply") from None


def _check(value: bytes, shape: type[msgspec.Struct], whose: str) -> None:
    try:
        msgspec.json.decode(value, type=shape)
    except msgspec.MsgspecError as error:
        raise _Unusable(f"{whose} cannot be used: {error}") from None


def _object(members: Members, member: str, name: str) -> bytes | None:
    """An object as it was written, but for members that are null: some programs write what they do not have."""
    raw = members.get(member.casefold())
    if raw is None or bytes(raw) == _NULL:
        return None
    try:
        inner = members_of(raw, f"the `{member}` of `{name}`")
    except BadMessage as error:
        raise _Unusable(str(error)) from None
    given = {key: value for key, value in inner.items() if bytes(value) != _NULL}
    return single_line(raw) if len(given) == len(inner) else single_line(encode_members(given))


def _text(members: Members, member: str, whose: str) -> str:
    raw = members.get(member)
    if raw is None or bytes(raw) == _NULL:
        return ""
    try:
        return msgspec.json.decode(raw, type=str)
    except msgspec.MsgspecError:
        raise _Unusable(f"the `{member}` of {whose} is not text") from None
