"""The shapes of what the routes for tools take and give, as JSON Schema (2020-12)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from trunkline.frontends.rest.schema_parts import CODE, COUNT, SWITCH, TEXT, TEXTS, Schema, exactly, list_of, told

_HANDLE: Final = told(
    {"type": "string", "maxLength": 200},
    "A name of the caller's choice: what is given under it is kept apart from what the caller holds otherwise",
)
_ID: Final = told(TEXT, "What a tool is called by: `server_tool`")
_NUMBER: Final[Schema] = {"type": "number"}
_IDS: Final = list_of(_ID)
_TOKENS: Final = told(COUNT, "Estimated")
_USED: Final[Mapping[str, Schema]] = {
    "tokens": told(COUNT, "What all tools that the caller holds now cost"),
    "budget": told(COUNT, "What they may cost"),
}
_REFUSED: Final = exactly({"tool_id": _ID, "tokens": _TOKENS, "why": TEXT}, "tokens")
_WHY: Final = exactly(
    {
        "words": list_of(
            exactly(
                {
                    "word": told(TEXT, "Of the query"),
                    "field": told(TEXT, "Where it was found"),
                    "share": told(_NUMBER, "How much of all that was found; they add up to 1"),
                }
            )
        ),
        "cosine": told({"type": ["number", "null"]}, "How near in meaning, 1 is the same; null where it is not known"),
        "score": told(_NUMBER, "What tools are ranked by; it means nothing beyond this search"),
        "named": told({"const": True}, "The query is the name of this tool, which is why it comes first"),
    },
    "named",
)
_FOUND: Final = exactly(
    {
        "tool_id": _ID,
        "description": TEXT,
        "inputSchema": told({"type": "object"}, "As its server wrote it, without blanks"),
        "read_only": told({"const": True}, "Its server says that it only reads"),
        "why": told(_WHY, "With `explain` only"),
    },
    *("inputSchema", "read_only", "why"),
)
_CALL_PROBLEM: Final = exactly(
    {
        "detail": told(TEXT, "What is wrong"),
        "code": told(CODE, "Absent where the server itself refused the call"),
        "hint": told(TEXT, "What to do"),
        "source": told(TEXT, "The server"),
        "tool": TEXT,
        "phase": told({"enum": ["queued", "sent", "partial"]}, "How far the call came"),
        "executed": told({"enum": ["no", "unknown"]}, "Whether the tool may have run"),
        "retryable": told(SWITCH, "Whether trying again may help"),
        "retryAfterMs": COUNT,
        "error": told({"type": "object"}, "The JSON-RPC error of the server, as it wrote it"),
    },
    *("code", "hint", "source", "tool", "phase", "executed", "retryable", "retryAfterMs", "error"),
)

TOOL_SCHEMAS: Final[Mapping[str, Schema]] = {
    "Discover": exactly(
        {
            "query": told(TEXT, "What the tool should do, in plain words; only with `tags` it may be left out"),
            "tags": told(TEXTS, "Only tools with one of these; in a query also with commas"),
            "limit": told({"type": "integer", "minimum": 1, "maximum": 50, "default": 5}, "How many tools at most"),
            "provision": told({"type": "boolean", "default": True}, "Whether what is returned may be executed"),
            "session": _HANDLE,
            "explain": told({"type": "boolean", "default": False}, "Say of each tool why it was found"),
        },
        *("query", "tags", "limit", "provision", "session", "explain"),
    ),
    "Discovered": exactly(
        {
            "tools": list_of(_FOUND),
            "provisioned": told(SWITCH, "Whether they may be executed now"),
            "hint": told(TEXT, "What to do where nothing was found"),
            "left_out": told(list_of(_REFUSED), "Found, but over the budget"),
            "more": told(_IDS, "The next best"),
            "servers": told({"type": "object", "additionalProperties": TEXT}, "What servers say of themselves, once"),
            **_USED,
            "notReady": told(TEXTS, "Servers whose tools may be missing here, and their states"),
        },
        *("hint", "left_out", "more", "servers", "notReady"),
    ),
    "Provision": exactly(
        {
            "tool_ids": _IDS,
            "context_tokens": told({"type": "integer", "minimum": 1}, "The budget from now on"),
            "session": _HANDLE,
        },
        *("context_tokens", "session"),
    ),
    "Provisioned": exactly(
        {
            "provisioned": list_of(exactly({"tool_id": _ID, "tokens": _TOKENS})),
            "refused": list_of(_REFUSED),
            **_USED,
        },
        "refused",
    ),
    "Unprovision": exactly({"tool_ids": _IDS, "session": _HANDLE}, "session"),
    "Unprovisioned": exactly(
        {"removed": _IDS, "unknown": told(_IDS, "The caller did not hold these"), **_USED}, "unknown"
    ),
    "Execute": exactly(
        {"tool_id": _ID, "arguments": {"type": "object"}, "session": _HANDLE},
        *("arguments", "session"),
    ),
    "Executed": exactly(
        {"result": told({"type": "object"}, "The result of MCP's `tools/call`, as the server wrote it")}
    ),
    "CallProblem": _CALL_PROBLEM,
    "TokenBudget": exactly(
        {
            "servers": list_of(exactly({"name": TEXT, "tools": COUNT, "tokens": _TOKENS})),
            "tools": list_of(exactly({"tool_id": _ID, "server": TEXT, "tokens": _TOKENS})),
            "modes": exactly(
                {
                    "all": exactly({"tokens": told(COUNT, "The whole list")}),
                    "search": exactly(
                        {
                            "tokens": told(COUNT, "The list of a client that has found nothing yet"),
                            "dialogue": told(COUNT, "The most that finding and listing tools costs together"),
                        }
                    ),
                    "auto": exactly({"chosen": {"enum": ["all", "search"]}, "why": TEXT}),
                }
            ),
            "disclosure": told({"enum": ["all", "search", "auto"]}, "As configured"),
            "shown": told({"enum": ["all", "search"]}, "What clients see that have no search of their own"),
            "context_tokens": told(COUNT, "The budget of a session"),
        },
        "tools",
    ),
}
