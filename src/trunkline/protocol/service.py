"""What is said between us and a service: a tool to execute, what came of it, and the list of its tools.

The arguments are spliced into the request, and the output out of the answer, as they were written.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec
from msgspec import Raw

from trunkline.core.call import Json
from trunkline.core.errors import TOOL_NOT_USABLE
from trunkline.protocol.jsonrpc import (
    LESS_ROOM,
    BadMessage,
    Members,
    check_text,
    encode,
    encode_members,
    members_of,
    members_of_message,
    single_line,
    text_member,
)

EXECUTE: Final = "/tools/execute"
TOOLS: Final = "/tools"
_MOST_TOOLS: Final = 1000
_LONGEST_NAME: Final = 128
_NULL: Final = b"null"
_OBJECT_TYPE: Final = b'"object"'
_SCHEMAS: Final = ("inputSchema", "outputSchema", "annotations")


class BadAnswer(Exception):
    """A service answered something else than it was asked for."""


class Executed(NamedTuple):
    """What a tool gave, as JSON; `metadata` is an object."""

    output: bytes
    metadata: bytes | None


def execute_body(service_id: str, session_id: str, tool: str, args: Json | Raw) -> bytes:
    return b'{"serviceId":%b,"sessionId":%b,"tool":%b,"args":%b}' % (
        encode(service_id),
        encode(session_id),
        encode(tool),
        args,
    )


def read_executed(body: bytes) -> Executed:
    """The answer to an execution, or BadAnswer."""
    try:
        check_text(body)
        members = members_of_message(body)
        metadata = bytes(members.get("metadata", _NULL))
        if metadata != _NULL:
            members_of(metadata, "`metadata`")
    except BadMessage as error:
        raise BadAnswer(str(error)) from None
    if "output" not in members:
        raise BadAnswer("it has no member `output`")
    return Executed(bytes(members["output"]), None if metadata == _NULL else metadata)


# -- its tools --------------------------------------------------------------------------------------------------------


class Tools(NamedTuple):
    """Definitions as MCP has them, by name, and what is wrong with those that are left out."""

    definitions: dict[str, bytes]
    warnings: tuple[str, ...]


class _Listed(msgspec.Struct):
    tools: list[Raw]


def read_tools(body: bytes) -> Tools:
    """A list of definitions, bare or as the member `tools`. Raises BadAnswer."""
    try:
        check_text(body)
        with LESS_ROOM:
            listed = msgspec.json.decode(body, type=list[Raw] | _Listed)
    except BadMessage as error:
        raise BadAnswer(str(error)) from None
    except (msgspec.MsgspecError, RecursionError):
        raise BadAnswer("it is not a list of tools") from None
    return usable_tools(listed.tools if isinstance(listed, _Listed) else listed)


def usable_tools(definitions: Iterable[Raw]) -> Tools:
    usable: dict[str, bytes] = {}
    warnings: list[str] = []
    for number, raw in enumerate(definitions, 1):
        if number > _MOST_TOOLS:
            warnings.append(f"{TOOL_NOT_USABLE}: only the first {_MOST_TOOLS} tools are offered")
            break
        try:
            name, definition = _usable(raw, number)
            if name in usable:
                raise BadMessage(TOOL_NOT_USABLE, f"`{name}` comes twice")
            usable[name] = definition
        except BadMessage as error:
            warnings.append(f"{TOOL_NOT_USABLE}: a tool is left out: {error}")
    return Tools(usable, tuple(warnings))


def _usable(raw: Raw, number: int) -> tuple[str, bytes]:
    members = members_of(raw, f"tool {number}")
    name = text_member(members, "name") or ""
    if not 0 < len(name) <= _LONGEST_NAME or not name.isprintable():
        message = f"the name of tool {number} is not 1 to {_LONGEST_NAME} printable characters"
        raise BadMessage(TOOL_NOT_USABLE, message)
    text_member(members, "description")
    schemas = {member: _object(members, member, name) for member in _SCHEMAS if _is_given(members, member)}
    schemas["inputSchema"] = _for_an_object(schemas.get("inputSchema", b"{}"), name)
    rest = {member: single_line(value) for member, value in members.items() if member not in _SCHEMAS}
    return name, encode_members({**rest, **schemas})


def _is_given(members: Members, member: str) -> bool:
    return bytes(members.get(member, _NULL)) != _NULL


def _object(members: Members, member: str, name: str) -> bytes:
    members_of(members[member], f"the `{member}` of `{name}`")
    return single_line(members[member])


def _for_an_object(schema: bytes, name: str) -> bytes:
    """Clients refuse a whole list because of one tool whose schema is not for an object."""
    inner = members_of(schema, "`inputSchema`")
    if "type" not in inner:
        return encode_members({"type": _OBJECT_TYPE, **inner})
    if bytes(inner["type"]) != _OBJECT_TYPE:
        raise BadMessage(TOOL_NOT_USABLE, f"the `inputSchema` of `{name}` is not of type `object`")
    return schema
