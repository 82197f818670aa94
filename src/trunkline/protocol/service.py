"""The messages between the gateway and a service: executions of tools and their results, and the list of tools.

Arguments and outputs are passed on as raw JSON.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec
from msgspec import Raw

from trunkline.core.call import Json
from trunkline.core.errors import TOOL_NOT_USABLE
from trunkline.protocol.jsonrpc import (
    REDUCED_STACK,
    BadMessage,
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
_MAX_TOOLS: Final = 1000
_MAX_NAME_CHARACTERS: Final = 128
_NULL: Final = b"null"
_OBJECT_TYPE: Final = b'"object"'
_SCHEMAS: Final = ("inputSchema", "outputSchema", "annotations")


class BadServiceResponse(Exception):
    """A response of a service that is not valid."""


class ExecuteResponse(NamedTuple):
    """The output of a tool as JSON; `metadata` is an object."""

    output: bytes
    metadata: bytes | None


def execute_body(service_id: str, session_id: str, tool: str, args: Json | Raw) -> bytes:
    return b'{"serviceId":%b,"sessionId":%b,"tool":%b,"args":%b}' % (
        encode(service_id),
        encode(session_id),
        encode(tool),
        args,
    )


def parse_execute_response(body: bytes) -> ExecuteResponse:
    """The response to an execution; raises BadServiceResponse."""
    try:
        check_text(body)
        members = members_of_message(body)
        metadata = bytes(members.get("metadata", _NULL))
        if metadata != _NULL:
            members_of(metadata, "`metadata`")
    except BadMessage as error:
        raise BadServiceResponse(str(error)) from None
    if "output" not in members:
        raise BadServiceResponse("it has no member `output`")
    return ExecuteResponse(bytes(members["output"]), None if metadata == _NULL else metadata)


# -- the list of tools ------------------------------------------------------------------------------------------------


class ToolListing(NamedTuple):
    """The MCP definitions of a service's tools by name, and why others were left out."""

    definitions: dict[str, bytes]
    warnings: tuple[str, ...]


class _Listed(msgspec.Struct):
    tools: list[Raw]


def parse_tool_listing(body: bytes) -> ToolListing:
    """A list of definitions, bare or as the member `tools`. Raises BadServiceResponse."""
    try:
        check_text(body)
        with REDUCED_STACK:
            listed = msgspec.json.decode(body, type=list[Raw] | _Listed)
    except BadMessage as error:
        raise BadServiceResponse(str(error)) from None
    except (msgspec.MsgspecError, RecursionError):
        raise BadServiceResponse("it is not a list of tools") from None
    return usable_tools(listed.tools if isinstance(listed, _Listed) else listed)


def usable_tools(definitions: Iterable[Raw]) -> ToolListing:
    usable: dict[str, bytes] = {}
    warnings: list[str] = []
    for number, raw in enumerate(definitions, 1):
        if number > _MAX_TOOLS:
            warnings.append(f"{TOOL_NOT_USABLE}: only the first {_MAX_TOOLS} tools are offered")
            break
        try:
            name, definition = _usable(raw, number)
            if name in usable:
                raise BadMessage(TOOL_NOT_USABLE, f"`{name}` comes twice")
            usable[name] = definition
        except BadMessage as error:
            warnings.append(f"{TOOL_NOT_USABLE}: a tool is left out: {error}")
    return ToolListing(usable, tuple(warnings))


def _usable(raw: Raw, number: int) -> tuple[str, bytes]:
    members = members_of(raw, f"tool {number}")
    name = text_member(members, "name") or ""
    if not 0 < len(name) <= _MAX_NAME_CHARACTERS or not name.isprintable():
        message = f"the name of tool {number} is not 1 to {_MAX_NAME_CHARACTERS} printable characters"
        raise BadMessage(TOOL_NOT_USABLE, message)
    text_member(members, "description")
    schemas: dict[str, bytes] = {}
    for member in _SCHEMAS:
        if bytes(members.get(member, _NULL)) != _NULL:
            members_of(members[member], f"the `{member}` of `{name}`")
            schemas[member] = single_line(members[member])
    schemas["inputSchema"] = _for_an_object(schemas.get("inputSchema", b"{}"), name)
    rest = {member: single_line(value) for member, value in members.items() if member not in _SCHEMAS}
    return name, encode_members({**rest, **schemas})


def _for_an_object(schema: bytes, name: str) -> bytes:
    """The schema with `type` `object`, which it must have: clients refuse a whole list because of one that has not."""
    inner = members_of(schema, "`inputSchema`")
    if "type" not in inner:
        return encode_members({"type": _OBJECT_TYPE, **inner})
    if bytes(inner["type"]) != _OBJECT_TYPE:
        raise BadMessage(TOOL_NOT_USABLE, f"the `inputSchema` of `{name}` is not of type `object`")
    return schema
