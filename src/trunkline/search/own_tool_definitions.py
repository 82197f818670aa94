"""The definitions of the gateway's own tools, and their arguments.

Definitions are terse: each byte is paid for with every request to a model.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Raw, Struct

from trunkline.config.call_arguments import InvalidArguments, StrictArguments
from trunkline.config.problems import hint_for
from trunkline.core.names import RESERVED_SOURCE
from trunkline.core.tool import Snapshot, ToolDefinition
from trunkline.protocol.jsonrpc import encode

_Schema = dict[str, Any]
EXECUTE: Final = "execute_tool"
EXECUTE_READ_ONLY: Final = "execute_read_only_tool"

_TEXT: Final[_Schema] = {"type": "string"}
_NUMBER: Final[_Schema] = {"type": "integer"}
_TEXTS: Final[_Schema] = {"type": "array", "items": _TEXT}
_COUNTS: Final[_Schema] = {"type": "object", "additionalProperties": _NUMBER}
_ONLY_READS: Final = {"readOnlyHint": True, "openWorldHint": False}


def _object(required: _Schema, optional: _Schema | None = None) -> _Schema:
    schema: _Schema = {"type": "object", "properties": required | (optional or {})}
    return schema | {"required": list(required)} if required else schema


def _definition(name: str, title: str, description: str, takes: _Schema, gives: _Schema) -> ToolDefinition:
    definition: _Schema = {
        "name": name,
        "description": description,
        "inputSchema": takes,
        "outputSchema": gives,
        "annotations": {"title": title, **_ONLY_READS},
    }
    return ToolDefinition(RESERVED_SOURCE, name, encode(definition))


def _searching(name: str, description: str, takes: _Schema, hints: dict[str, bool] = _ONLY_READS) -> ToolDefinition:
    """Without an output schema: a list with these tools has to be short."""
    definition: _Schema = {"name": name, "description": description, "inputSchema": takes, "annotations": hints}
    return ToolDefinition(RESERVED_SOURCE, name, encode(definition))


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
_TOOL_WITH_SCHEMA: Final = _object(_TOOL, {"inputSchema": {"type": "object"}})
_ARGUMENTS: Final = {"type": "object", "description": "As its inputSchema says"}
_EXECUTED: Final = _object({"tool_id": _TEXT}, {"arguments": _ARGUMENTS})

INFORMING: Final = (
    _definition(
        "list_servers",
        "List servers",
        "List the servers behind this gateway: state, number of tools, why one is not ready.",
        _object({}),
        _object({"servers": {"type": "array", "items": _SERVER}}),
    ),
    _definition(
        "server_health",
        "Server health",
        "Health of one server, or of all: last error, what to do, restarts, end of its stderr, name collisions.",
        _object({}, {"server": _TEXT}),
        _object({"servers": {"type": "array", "items": _HEALTH}}),
    ),
    _definition(
        "list_tools",
        "List tools",
        "List tools, of all servers or one: the name to call, address, short description. Page with offset.",
        _object({}, {"server": _TEXT, "limit": _NUMBER, "offset": _NUMBER}),
        _object(
            {"tools": {"type": "array", "items": _object(_TOOL)}, "total": _NUMBER},
            {"nextOffset": _NUMBER, "notReady": _TEXTS},
        ),
    ),
    _definition(
        "find_tool",
        "Find a tool",
        "Find tools by what they do, by words and meaning; best match first.",
        _object({"query": _TEXT}, {"limit": _NUMBER}),
        _object({"tools": {"type": "array", "items": _TOOL_WITH_SCHEMA}, "total": _NUMBER}, {"notReady": _TEXTS}),
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
SEARCHERS: Final = (
    _searching(
        "discover_tools",
        "Find tools for a task, by meaning, on all servers. Returns the best with their input schemas and puts them "
        "into your tool list. Call one at once: by its tool_id as the name, or with execute_tool.",
        _object(
            {"query": {"type": "string", "description": "What the tool should do, in plain words"}},
            {
                "tags": _TEXTS,
                "limit": {"type": "integer", "description": "Default 5"},
                "provision": {"type": "boolean", "description": "false: only look"},
            },
        ),
    ),
    _searching(
        "provision_tools",
        "Put tools into your tool list by tool_id, within a budget of tokens. Those that discover_tools returned are "
        "there already.",
        _object({"tool_ids": _TEXTS}, {"context_tokens": {"type": "integer", "description": "New budget"}}),
    ),
    _searching(
        "unprovision_tools",
        "Take tools out of your tool list, to make room.",
        _object({"tool_ids": _TEXTS}),
    ),
    _searching(
        EXECUTE,
        "Run a tool that discover_tools returned.",
        _EXECUTED,
        {"readOnlyHint": False, "destructiveHint": True, "openWorldHint": True},
    ),
    _searching(
        EXECUTE_READ_ONLY,
        "Run a tool that discover_tools returned as read_only; others are refused.",
        _EXECUTED,
        {"readOnlyHint": True, "openWorldHint": True},
    ),
)
SEARCHING: Final = frozenset(tool.name for tool in SEARCHERS)
"""Listed in place of all tools; if those are listed, these can be called all the same."""
TOOLS: Final = INFORMING + SEARCHERS
SNAPSHOT: Final = Snapshot(tools=TOOLS)


# -- arguments ------------------------------------------------------------------------------------------------------


class NoArguments(Struct):
    """Some clients send a made-up argument to tools without arguments, so none is refused."""


class ServerArguments(StrictArguments):
    server: str | None = None


class ListToolsArguments(StrictArguments):
    server: str | None = None
    limit: int | None = None
    offset: int | None = None


class FindArguments(StrictArguments):
    query: str = ""
    limit: int | None = None


class DiscoverArguments(StrictArguments):
    query: str = ""
    tags: list[str] | str | None = None
    limit: int | None = None
    provision: bool | None = None
    session: str | None = None
    explain: bool | None = None


class ProvisionArguments(StrictArguments):
    tool_ids: list[str] | str
    context_tokens: int | None = None
    session: str | None = None


class UnprovisionArguments(StrictArguments):
    tool_ids: list[str] | str
    session: str | None = None


class ExecuteArguments(StrictArguments):
    tool_id: str
    arguments: Raw = Raw(b"{}")
    session: str | None = None


def several(texts: list[str] | str | None) -> list[str]:
    """A list of texts: models write a text where a list with one text is meant."""
    return [texts] if isinstance(texts, str) else (texts or [])


def bounded(number: int | None, default: int, maximum: int) -> int:
    """The limit that was given, or the default, between 1 and the maximum."""
    return default if number is None else max(1, min(number, maximum))


def known_server(name: str | None, servers: list[str]) -> str | None:
    """The name of an existing server, or None when none was named; raises InvalidArguments with the nearest names."""
    if not name or name in servers:
        return name or None
    hint = hint_for(name, servers, "the servers are") or "`list_servers` names them"
    raise InvalidArguments(f"No server is called `{name[:100]}`", hint)
