"""The tools that an app registers as MCP tools, with schemas in the form that clients accept.

An app usually prefixes its tools with its own name. That is the server's name already, so it is removed; the registered
name stays an alias. Some programs write every name in a schema with a capital, such as `{"Type": "object"}`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import msgspec
from msgspec import Raw

from trunkline.core.errors import TOOL_NOT_USABLE
from trunkline.core.tool import ToolDefinition
from trunkline.protocol.app_messages import folded_members
from trunkline.protocol.jsonrpc import BadMessage, Members, encode, encode_members, members_of, single_line

_KEYWORDS: Final = {
    keyword.casefold(): keyword
    for keyword in (
        *("type", "title", "description", "default", "enum", "const", "format", "pattern", "examples"),
        *("properties", "required", "additionalProperties", "items", "prefixItems", "uniqueItems"),
        *("anyOf", "oneOf", "allOf", "not", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
        *("minLength", "maxLength", "minItems", "maxItems", "multipleOf", "nullable"),
    )
}
_DATA: Final = frozenset({"default", "enum", "const", "examples", "required"})
_MAY_BE_NULL: Final = frozenset({"default", "const"})
_MOST_TOOLS: Final = 1000
_MOST_WARNINGS: Final = 20
_LONGEST_NAME: Final = 128
_OBJECT_TYPE: Final = b'"object"'
_NULL: Final = b"null"


def with_small_keywords(schema: Any) -> Any:
    """The schema with JSON Schema's own spelling of keywords at every depth, without those that are null.

    Names below `properties` are the app's own and stay as they are.
    """
    if isinstance(schema, list):
        return [with_small_keywords(item) for item in cast(list[Any], schema)]
    if not isinstance(schema, dict):
        return schema
    spelled: dict[str, Any] = {}
    for name, value in cast(dict[str, Any], schema).items():
        keyword = _KEYWORDS.get(name.casefold(), name)
        if value is not None or keyword in _MAY_BE_NULL:
            if keyword in _DATA:
                spelled[keyword] = value
            elif keyword == "properties" and isinstance(value, dict):
                properties = cast(dict[str, Any], value)
                spelled[keyword] = {name: with_small_keywords(inner) for name, inner in properties.items()}
            else:
                spelled[keyword] = with_small_keywords(value)
    return spelled


@dataclass(frozen=True, slots=True)
class AppTools:
    """The usable tools of an app. `wire_names` maps their names to the registered ones, as JSON."""

    tools: tuple[ToolDefinition, ...]
    wire_names: dict[str, bytes]
    warnings: tuple[str, ...]


class _Schema(msgspec.Struct):
    """What clients require of a schema: one bad tool makes them refuse the whole list."""

    properties: dict[str, dict[str, Raw]] = {}
    required: list[str] = []


class _Annotations(msgspec.Struct, rename="camel"):
    """What clients require of annotations."""

    title: str = ""
    read_only_hint: bool = False
    destructive_hint: bool = False
    idempotent_hint: bool = False
    open_world_hint: bool = False


class _InvalidTool(Exception):
    """A tool cannot be offered; says why."""


def read_tools(server: str, app_name: str, definitions: Sequence[Raw]) -> AppTools:
    """Read the tools that an app registers; each that cannot be used becomes a warning."""
    tools: list[ToolDefinition] = []
    wire_names: dict[str, bytes] = {}
    warnings: list[str] = []
    for number, raw in enumerate(definitions[:_MOST_TOOLS], 1):
        try:
            tool, registered = _read_tool(server, app_name, raw, number)
            if tool.name in wire_names:
                raise _InvalidTool(f"`{tool.name}` is registered twice")
        except _InvalidTool as error:
            warnings.append(f"{TOOL_NOT_USABLE}: a tool is left out: {error}")
            continue
        wire_names[tool.name] = encode(registered)
        tools.append(tool)
    if len(definitions) > _MOST_TOOLS:
        warnings.insert(0, f"{TOOL_NOT_USABLE}: only the first {_MOST_TOOLS} of {len(definitions)} tools are offered")
    if (more := len(warnings) - _MOST_WARNINGS) > 0:
        warnings[_MOST_WARNINGS:] = [f"{more} more warnings like these"]
    return AppTools(tuple(tools), wire_names, tuple(warnings))


def _read_tool(server: str, app_name: str, raw: Raw, number: int) -> tuple[ToolDefinition, str]:
    try:
        members = folded_members(raw, f"tool {number}")
    except BadMessage as error:
        raise _InvalidTool(str(error)) from None
    registered = _text(members, "name", f"tool {number}")
    if not 0 < len(registered) <= _LONGEST_NAME or not registered.isprintable():
        raise _InvalidTool(f"the name of tool {number} is not 1 to {_LONGEST_NAME} printable characters")
    prefix = f"{app_name}:"
    has_prefix = registered[: len(prefix)].casefold() == prefix.casefold()
    name = registered[len(prefix) :].strip() if has_prefix else registered
    if not name:
        raise _InvalidTool(f"`{registered}` has no name besides the app's")
    aliases = () if name == registered else (registered,)
    return ToolDefinition(server, name, _definition(name, members), aliases), registered


def _definition(name: str, members: Members) -> bytes:
    definition = {"name": encode(name)}
    if title := _text(members, "title", f"`{name}`"):
        definition["title"] = encode(title)
    definition["description"] = encode(_text(members, "description", f"`{name}`"))
    definition["inputSchema"] = _schema(members, "inputSchema", name) or b'{"type":"object"}'
    if (output_schema := _schema(members, "outputSchema", name)) is not None:
        definition["outputSchema"] = output_schema
    if (annotations := _object(members, "annotations", name)) is not None:
        _check(annotations, _Annotations, f"the `annotations` of `{name}`")
        definition["annotations"] = annotations
    return encode_members(definition)


def _schema(members: Members, member: str, name: str) -> bytes | None:
    """A schema of an object as clients accept it; None if there is none."""
    schema = _object(members, member, name)
    if schema is None:
        return None
    what = f"the `{member}` of `{name}`"
    inner = members_of(schema, what)
    if "type" not in inner and ("Type" in inner or "Properties" in inner):  # written with capitals
        try:
            schema = encode(with_small_keywords(msgspec.json.decode(schema)))
        except RecursionError:
            raise _InvalidTool(f"{what} is nested too deeply") from None
        inner = members_of(schema, what)
    if "type" not in inner:
        schema = encode_members({"type": _OBJECT_TYPE, **inner})
    elif bytes(inner["type"]) != _OBJECT_TYPE:
        raise _InvalidTool(f"{what} is not of type `object`")
    _check(schema, _Schema, what)
    return schema


def _check(value: bytes, shape: type[msgspec.Struct], what: str) -> None:
    try:
        msgspec.json.decode(value, type=shape)
    except msgspec.MsgspecError as error:
        raise _InvalidTool(f"{what} cannot be used: {error}") from None


def _object(members: Members, member: str, name: str) -> bytes | None:
    """An object member as it was written, without members that are null; None if there is none."""
    raw = members.get(member.casefold())
    if raw is None or bytes(raw) == _NULL:
        return None
    try:
        inner = members_of(raw, f"the `{member}` of `{name}`")
    except BadMessage as error:
        raise _InvalidTool(str(error)) from None
    given = {key: value for key, value in inner.items() if bytes(value) != _NULL}
    return single_line(raw) if len(given) == len(inner) else single_line(encode_members(given))


def _text(members: Members, member: str, what: str) -> str:
    raw = members.get(member)
    if raw is None or bytes(raw) == _NULL:
        return ""
    try:
        return msgspec.json.decode(raw, type=str)
    except msgspec.MsgspecError:
        raise _InvalidTool(f"the `{member}` of {what} is not text") from None
