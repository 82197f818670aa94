"""The definitions of our own tools. They are terse: each byte is paid for with every request to a model."""

from __future__ import annotations

from typing import Any, Final

from trunkline.core.names import RESERVED_SOURCE
from trunkline.core.tool import Snapshot, Tool
from trunkline.wire.jsonrpc import encode

_Schema = dict[str, Any]

_TEXT: Final[_Schema] = {"type": "string"}
_NUMBER: Final[_Schema] = {"type": "integer"}
_TEXTS: Final[_Schema] = {"type": "array", "items": _TEXT}
_COUNTS: Final[_Schema] = {"type": "object", "additionalProperties": _NUMBER}


def _object(required: _Schema, optional: _Schema | None = None) -> _Schema:
    schema: _Schema = {"type": "object", "properties": required | (optional or {})}
    return schema | {"required": list(required)} if required else schema


def _list_of(item: _Schema) -> _Schema:
    return {"type": "array", "items": item}


def _definition(name: str, title: str, description: str, takes: _Schema, gives: _Schema) -> Tool:
    definition: _Schema = {
        "name": name,
        "description": description,
        "inputSchema": takes,
        "outputSchema": gives,
        "annotations": {"title": title, "readOnlyHint": True, "openWorldHint": False},
    }
    return Tool(RESERVED_SOURCE, name, encode(definition))


_BESIDE_TOOLS: Final = {"prompts": _NUMBER, "resources": _NUMBER, "resourceTemplates": _NUMBER}
_SERVER: Final = _object({"name": _TEXT, "state": _TEXT, "tools": _NUMBER}, {"reason": _TEXT})
_HEALTH: Final = _object(
    {"name": _TEXT, "kind": _TEXT, "state": _TEXT, "tools": _NUMBER, "restarts": _NUMBER},
    {"inFlight": _NUMBER, "queued": _NUMBER, "origin": _TEXT, **_BESIDE_TOOLS}
    | {"reason": _TEXT, "hint": _TEXT, "since": _TEXT}
    | {"lastError": _TEXT, "stderrTail": _TEXT, "protocolVersion": _TEXT, "server": _TEXT}
    | {"collisions": _TEXTS, "warnings": _TEXTS},
)
_TOOL: Final = {"name": _TEXT, "address": _TEXT, "server": _TEXT, "description": _TEXT}

TOOLS: Final = (
    _definition(
        "list_servers",
        "List servers",
        "List the servers behind this gateway: state, number of tools, why one is not ready.",
        _object({}),
        _object({"servers": _list_of(_SERVER)}),
    ),
    _definition(
        "server_health",
        "Server health",
        "Health of one server, or of all: last error, what to do, restarts, end of its stderr, name collisions.",
        _object({}, {"server": _TEXT}),
        _object({"servers": _list_of(_HEALTH)}),
    ),
    _definition(
        "list_tools",
        "List tools",
        "List tools, of all servers or one: the name to call, address, short description. Page with offset.",
        _object({}, {"server": _TEXT, "limit": _NUMBER, "offset": _NUMBER}),
        _object(
            {"tools": _list_of(_object(_TOOL)), "total": _NUMBER},
            {"nextOffset": _NUMBER, "notReady": _TEXTS},
        ),
    ),
    _definition(
        "find_tool",
        "Find a tool",
        "Find tools by words of their name, description or parameters; best match first.",
        _object({"query": _TEXT}, {"limit": _NUMBER}),
        _object(
            {"tools": _list_of(_object(_TOOL, {"inputSchema": {"type": "object"}})), "total": _NUMBER},
            {"notReady": _TEXTS},
        ),
    ),
    _definition(
        "registry_summary",
        "Registry summary",
        "Count servers by state and tools by server, and estimate the tokens of the tool list.",
        _object({}),
        _object(
            {"version": _TEXT, "uptimeSeconds": _NUMBER, "servers": _NUMBER, "serversByState": _COUNTS}
            | {"tools": _NUMBER, "toolsByServer": _COUNTS, **_BESIDE_TOOLS, "listBytes": _NUMBER}
            | {"listTokensEstimate": _NUMBER, "collisions": _NUMBER},
        ),
    ),
)
SNAPSHOT: Final = Snapshot(tools=TOOLS)
