"""What an app offers: its tools as MCP knows them, each with the name that goes out on the wire.

An app usually writes its own name before each tool's. Here that is the server's name already, so it is taken off; the
name as it was registered stays a spelling that callers may use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec import Raw

from trunkline.core.errors import TOOL_NOT_USABLE
from trunkline.core.tool import Tool
from trunkline.sources.app.schema_case import is_capitalised, with_small_keywords
from trunkline.wire.dialin import folded_members
from trunkline.wire.jsonrpc import BadMessage, Members, encode, encode_members, members_of, single_line

_MOST_TOOLS: Final = 1000
_MOST_WARNINGS: Final = 20
_LONGEST_NAME: Final = 128
_ANY_OBJECT: Final = b'{"type":"object"}'
_OBJECT_TYPE: Final = b'"object"'
_NULL: Final = b"null"


@dataclass(frozen=True, slots=True)
class Offer:
    """`wire_names` has each tool's registered name, as JSON, by its own."""

    tools: tuple[Tool, ...]
    wire_names: dict[str, bytes]
    warnings: tuple[str, ...]


class _Unusable(Exception):
    """Why a tool cannot be offered."""


def make_offer(server: str, app_name: str, definitions: Sequence[Raw]) -> Offer:
    """The tools that can be used; what is wrong with the others is a warning each."""
    tools: list[Tool] = []
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
    return Offer(tuple(tools), wire_names, _shortened(warnings))


def _shortened(warnings: list[str]) -> tuple[str, ...]:
    more = len(warnings) - _MOST_WARNINGS
    return (*warnings[:_MOST_WARNINGS], *([f"{more} more warnings like these"] if more > 0 else []))


def _read_tool(server: str, app_name: str, raw: Raw, number: int) -> tuple[Tool, str]:
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
    also = () if name == registered else (registered,)
    return Tool(server, name, _definition(name, members), also), registered


def _without_app_name(registered: str, app_name: str) -> str:
    prefix = f"{app_name}:"
    has_it = registered[: len(prefix)].casefold() == prefix.casefold()
    return registered[len(prefix) :].strip() if has_it else registered


def _definition(name: str, members: Members) -> bytes:
    definition = {"name": encode(name)}
    if title := _text(members, "title", f"`{name}`"):
        definition["title"] = encode(title)
    definition["description"] = encode(_text(members, "description", f"`{name}`"))
    definition["inputSchema"] = _input_schema(name, members)
    for known in ("outputSchema", "annotations"):
        value = _object(members, known, name)
        if value is not None:
            definition[known] = value
    return encode_members(definition)


def _input_schema(name: str, members: Members) -> bytes:
    """Clients refuse a whole list because of one tool whose schema is not for an object."""
    schema = _object(members, "inputSchema", name)
    if schema is None:
        return _ANY_OBJECT
    inner = members_of(schema, "inputSchema")
    if is_capitalised(inner):
        schema = encode(with_small_keywords(msgspec.json.decode(schema)))
        inner = members_of(schema, "inputSchema")
    if "type" not in inner:
        return encode_members({"type": _OBJECT_TYPE, **inner})
    if bytes(inner["type"]) != _OBJECT_TYPE:
        raise _Unusable(f"the `inputSchema` of `{name}` is not of type `object`")
    return schema


def _object(members: Members, member: str, name: str) -> bytes | None:
    raw = members.get(member.casefold())
    if raw is None or bytes(raw) == _NULL:
        return None
    try:
        members_of(raw, f"the `{member}` of `{name}`")
    except BadMessage as error:
        raise _Unusable(str(error)) from None
    return single_line(raw)


def _text(members: Members, member: str, whose: str) -> str:
    raw = members.get(member)
    if raw is None or bytes(raw) == _NULL:
        return ""
    try:
        return msgspec.json.decode(raw, type=str)
    except msgspec.MsgspecError:
        raise _Unusable(f"the `{member}` of {whose} is not text") from None
