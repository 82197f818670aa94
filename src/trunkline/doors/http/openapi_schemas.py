"""The shapes of what the HTTP routes take and give, as JSON Schema (2020-12)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, get_args

from trunkline.core.source import State

Schema = dict[str, Any]

_TEXT: Final[Schema] = {"type": "string"}
_COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
_TEXTS: Final[Schema] = {"type": "array", "items": _TEXT}
_STATE: Final[Schema] = {"enum": list(get_args(State))}
_NAME: Final[Schema] = {"$ref": "#/components/schemas/ServerName"}
_NAMES: Final[Schema] = {"type": "array", "items": _NAME}


def _told(schema: Schema, description: str) -> Schema:
    return {**schema, "description": description}


def _object(properties: Mapping[str, Schema], *optional: str, **more: Any) -> Schema:
    """An object that has exactly these members, all but the optional ones for certain."""
    required = [name for name in properties if name not in optional]
    return {
        "type": "object",
        "properties": dict(properties),
        "required": required,
        "additionalProperties": False,
        **more,
    }


_SERVER: Final = _object(
    {
        "name": _NAME,
        "kind": _told(_TEXT, "The kind of source, as in the configuration"),
        "state": _STATE,
        "tools": _told(_COUNT, "How many tools it offers at the moment"),
        "restarts": _COUNT,
        "inFlight": _told(_COUNT, "Calls it is working on"),
        "queued": _told(_COUNT, "Calls that wait for it"),
        "origin": _told({"enum": ["file", "api", "app"]}, "Who brought it in; an app dialled in by itself"),
        "prompts": _told(_COUNT, "How many prompts it offers; absent for none, as are the next two"),
        "resources": _told(_COUNT, "How many resources it lists"),
        "resourceTemplates": _told(_COUNT, "How many templates of resources it lists"),
        "reason": _told(_TEXT, "Why it is in this state"),
        "hint": _told(_TEXT, "What to do about it"),
        "since": _told({"type": "string", "format": "date-time"}, "When it came into this state"),
        "lastError": _TEXT,
        "stderrTail": _told(_TEXT, "What it wrote to its standard error last"),
        "protocolVersion": _told(_TEXT, "The version of MCP spoken with it"),
        "server": _told(_TEXT, "What it calls itself"),
        "collisions": _told(_TEXTS, "Its tools, prompts and resources whose name or URI another one holds"),
        "warnings": _TEXTS,
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
    "detail": _told(_TEXT, "What is wrong"),
    "code": _told({"type": "string", "pattern": "^TL[0-9]{3}$"}, "Stable; `trunkline explain CODE` tells more"),
    "hint": _told(_TEXT, "What to do"),
}
_FAULT: Final = _object(
    {
        **_PROBLEM_MEMBERS,
        "severity": {"enum": ["error", "warning"]},
        "where": _told(_TEXT, "The file with line and column"),
    },
    "hint",
    "where",
)

SCHEMAS: Final[Mapping[str, Schema]] = {
    "ServerName": {"type": "string", "pattern": "^[A-Za-z0-9_-]+$"},
    "Server": _SERVER,
    "Servers": _object({"servers": {"type": "array", "items": {"$ref": "#/components/schemas/Server"}}}),
    "NewServer": {
        "type": "object",
        "description": "A server as clients write it under `mcpServers`, with its name inside.",
        "properties": {
            "name": _NAME,
            "url": {"type": "string", "format": "uri"},
            "headers": {"type": "object", "additionalProperties": _TEXT},
            "type": _told(_TEXT, "`http` or `sse`, where it must not be found out"),
            "timeout": _told({"type": "number", "exclusiveMinimum": 0}, "Of a call, in milliseconds"),
        },
        "required": ["name", "url"],
    },
    "NewService": {
        "type": "object",
        "description": "A service with the keys that a source of `kind: service` has in the configuration, and a few.",
        "properties": {
            "endpoint": _told({"type": "string", "format": "uri"}, "Its address, before `/tools/execute`"),
            "tools": _told({"type": "array", "items": {"type": "object"}}, "Definitions, where it does not list them"),
            "token": _told(_TEXT, "The token to show it for everybody"),
            "tokens": {"type": "object", "additionalProperties": _TEXT},
            "lease": _told({"type": "number", "exclusiveMinimum": 0}, "Seconds until it is gone; 60 if not given"),
        },
        "required": ["endpoint"],
    },
    "ServiceRegistered": _object(
        {
            "name": _NAME,
            "lease": _told({"type": "number"}, "In seconds"),
            "changed": _told({"type": "boolean"}, "Whether anything but the lease is new"),
        }
    ),
    "SessionId": {"type": "string", "minLength": 1, "maxLength": 256},
    "SessionToken": _object({"token": _told(_TEXT, "What `Authorization: Bearer` is followed by")}),
    "SessionNamed": _object({"sessionId": _told(_TEXT, "What services know the session by")}),
    "TokenDropped": _object({"removed": {"type": "boolean"}}),
    "ServerAdded": _object({"name": _NAME, "persisted": {"type": "boolean"}}),
    "ServerNamed": _object({"name": _NAME, "hint": _TEXT}, "hint"),
    "Reloaded": _object(
        {
            "status": {"const": "reloaded"},
            "added": _NAMES,
            "replaced": _told(_NAMES, "Connected anew, because something that matters to them changed"),
            "adjusted": _told(_NAMES, "Changed without a new connection"),
            "removed": _NAMES,
            "unchanged": _told(_COUNT, "How many go on as they were"),
            "needsRestart": _told(_TEXTS, "Keys of `gateway` whose change waits for the next start"),
            "warnings": _TEXTS,
        }
    ),
    "ToolExplained": _object(
        {
            "name": _told(_TEXT, "As it was asked for"),
            "found": _told({"type": "boolean"}, "Whether a call by this name reaches a tool"),
            "findings": {
                "type": "array",
                "items": _object({"what": _TEXT, "hint": _told(_TEXT, "What to do")}, "hint"),
            },
            "listed": _told({"type": "boolean"}, "Whether clients see it in the list"),
            "address": _told(_TEXT, "`server.tool`"),
            "exposed": _told(_TEXT, "The name in the list, if it has one"),
            "server": _NAME,
            "similar": _told(_TEXTS, "Names that are like it"),
        },
        "listed",
        "address",
        "exposed",
        "server",
        "similar",
    ),
    "Health": _object({"status": {"const": "ok"}}),
    "Readiness": _object(
        {
            "status": {"enum": ["ready", "draining"]},
            "servers": {"type": "object", "additionalProperties": _object({"state": _STATE})},
        }
    ),
    "Problem": _object(
        {**_PROBLEM_MEMBERS, "problems": _told({"type": "array", "items": _FAULT}, "Every single fault")},
        "hint",
        "problems",
    ),
    "JsonRpcMessage": {
        "type": "object",
        "properties": {"jsonrpc": {"const": "2.0"}, "method": _TEXT, "id": {"type": ["string", "integer"]}},
        "required": ["jsonrpc"],
    },
    "JsonRpcError": {
        "type": "object",
        "properties": {
            "jsonrpc": {"const": "2.0"},
            "id": {"type": ["string", "integer", "null"]},
            "error": {
                "type": "object",
                "properties": {"code": {"type": "integer"}, "message": _TEXT, "data": {"type": "object"}},
                "required": ["code", "message"],
            },
        },
        "required": ["jsonrpc", "id", "error"],
    },
}
