"""The shapes of what the HTTP routes take and give, as JSON Schema (2020-12)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, get_args

from trunkline.core.source import State
from trunkline.frontends.rest.openapi_tool_schemas import TOOL_SCHEMAS
from trunkline.frontends.rest.schema_parts import CODE, COUNT, TEXT, TEXTS, Schema, exactly, list_of, reference, told

_STATE: Final[Schema] = {"enum": list(get_args(State))}
_NAME: Final = reference("ServerName")
_NAMES: Final = list_of(_NAME)

_SERVER: Final = exactly(
    {
        "name": _NAME,
        "kind": told(TEXT, "The kind of source, as in the configuration"),
        "state": _STATE,
        "tools": told(COUNT, "How many tools it offers at the moment"),
        "restarts": COUNT,
        "inFlight": told(COUNT, "Calls it is working on"),
        "queued": told(COUNT, "Calls that wait for it"),
        "origin": told({"enum": ["file", "api", "app"]}, "Who brought it in; an app dialled in by itself"),
        "prompts": told(COUNT, "How many prompts it offers; absent for none, as are the next two"),
        "resources": told(COUNT, "How many resources it lists"),
        "resourceTemplates": told(COUNT, "How many templates of resources it lists"),
        "reason": told(TEXT, "Why it is in this state"),
        "hint": told(TEXT, "What to do about it"),
        "since": told({"type": "string", "format": "date-time"}, "When it came into this state"),
        "lastError": TEXT,
        "stderrTail": told(TEXT, "What it wrote to its standard error last"),
        "protocolVersion": told(TEXT, "The version of MCP spoken with it"),
        "server": told(TEXT, "What it calls itself"),
        "collisions": told(TEXTS, "Its tools, prompts and resources whose name or URI another one holds"),
        "warnings": TEXTS,
    },
    "prompts",
    "resources",
    "resourceTemplates",
    "reason",
    "hint",
    "since",
    "lastError",
    "stderrTail",
    "protocolVersion",
    "server",
    "collisions",
    "warnings",
)

_PROBLEM_MEMBERS: Final[Schema] = {
    "detail": told(TEXT, "What is wrong"),
    "code": told(CODE, "Stable; `trunkline explain CODE` tells more"),
    "hint": told(TEXT, "What to do"),
}
_FAULT: Final = exactly(
    {
        **_PROBLEM_MEMBERS,
        "severity": {"enum": ["error", "warning"]},
        "where": told(TEXT, "The file with line and column"),
    },
    "hint",
    "where",
)

SCHEMAS: Final[Mapping[str, Schema]] = {
    **TOOL_SCHEMAS,
    "ServerName": {"type": "string", "pattern": "^[A-Za-z0-9_-]+$"},
    "Server": _SERVER,
    "Servers": exactly({"servers": list_of(reference("Server"))}),
    "NewServer": {
        "type": "object",
        "description": "A server as clients write it under `mcpServers`, with its name inside.",
        "properties": {
            "name": _NAME,
            "url": {"type": "string", "format": "uri"},
            "headers": {"type": "object", "additionalProperties": TEXT},
            "type": told(TEXT, "`http` or `sse`, where it must not be found out"),
            "timeout": told({"type": "number", "exclusiveMinimum": 0}, "Of a call, in milliseconds"),
        },
        "required": ["name", "url"],
    },
    "NewService": {
        "type": "object",
        "description": "A service with the keys that a source of `kind: service` has in the configuration, and a few.",
        "properties": {
            "endpoint": told({"type": "string", "format": "uri"}, "Its address, before `/tools/execute`"),
            "tools": told({"type": "array", "items": {"type": "object"}}, "Definitions, where it does not list them"),
            "token": told(TEXT, "The token to show it for everybody"),
            "tokens": {"type": "object", "additionalProperties": TEXT},
            "lease": told({"type": "number", "exclusiveMinimum": 0}, "Seconds until it is gone; 60 if not given"),
        },
        "required": ["endpoint"],
    },
    "ServiceRegistered": exactly(
        {
            "name": _NAME,
            "lease": told({"type": "number"}, "In seconds"),
            "changed": told({"type": "boolean"}, "Whether anything but the lease is new"),
        }
    ),
    "SessionId": {"type": "string", "minLength": 1, "maxLength": 256},
    "SessionToken": exactly({"token": told(TEXT, "What `Authorization: Bearer` is followed by")}),
    "SessionNamed": exactly({"sessionId": told(TEXT, "What services know the session by")}),
    "TokenDropped": exactly({"removed": {"type": "boolean"}}),
    "ServerAdded": exactly({"name": _NAME, "persisted": {"type": "boolean"}}),
    "ServerNamed": exactly({"name": _NAME, "hint": TEXT}, "hint"),
    "Reloaded": exactly(
        {
            "status": {"const": "reloaded"},
            "added": _NAMES,
            "replaced": told(_NAMES, "Connected anew, because something that matters to them changed"),
            "adjusted": told(_NAMES, "Changed without a new connection"),
            "removed": _NAMES,
            "unchanged": told(COUNT, "How many go on as they were"),
            "needsRestart": told(TEXTS, "Keys of `gateway` whose change waits for the next start"),
            "warnings": TEXTS,
        }
    ),
    "ToolExplained": exactly(
        {
            "name": told(TEXT, "As it was asked for"),
            "found": told({"type": "boolean"}, "Whether a call by this name reaches a tool"),
            "findings": {
                "type": "array",
                "items": exactly({"what": TEXT, "hint": told(TEXT, "What to do")}, "hint"),
            },
            "listed": told({"type": "boolean"}, "Whether clients see it in the list"),
            "address": told(TEXT, "`server.tool`"),
            "exposed": told(TEXT, "The name in the list, if it has one"),
            "server": _NAME,
            "similar": told(TEXTS, "Names that are like it"),
        },
        "listed",
        "address",
        "exposed",
        "server",
        "similar",
    ),
    "Health": exactly({"status": {"const": "ok"}}),
    "Readiness": exactly(
        {
            "status": {"enum": ["ready", "draining"]},
            "servers": told(
                {"type": "object", "additionalProperties": exactly({"state": _STATE})},
                "Left out where a token is needed and none was shown",
            ),
        },
        "servers",
    ),
    "Problem": exactly(
        {**_PROBLEM_MEMBERS, "problems": told({"type": "array", "items": _FAULT}, "Every single fault")},
        "hint",
        "problems",
    ),
    "JsonRpcMessage": {
        "type": "object",
        "properties": {"jsonrpc": {"const": "2.0"}, "method": TEXT, "id": {"type": ["string", "integer"]}},
        "required": ["jsonrpc"],
    },
    "JsonRpcError": {
        "type": "object",
        "properties": {
            "jsonrpc": {"const": "2.0"},
            "id": {"type": ["string", "integer", "null"]},
            "error": {
                "type": "object",
                "properties": {"code": {"type": "integer"}, "message": TEXT, "data": {"type": "object"}},
                "required": ["code", "message"],
            },
        },
        "required": ["jsonrpc", "id", "error"],
    },
}
