"""Results of modern servers that are not the last word: questions and tasks, and whether its caller takes them."""

from __future__ import annotations

from typing import Final

from trunkline.core.call import Call, Json, Request
from trunkline.protocol.jsonrpc import BadMessage, Members, members_of, text_member
from trunkline.protocol.mcp.capabilities import TASKS, extensions
from trunkline.protocol.mcp.server_requests import MAY_ASK, refusal
from trunkline.sources.mcp.questions import MAX_OPEN

MARK: Final = b"input_required"
"""Without these bytes a result is no question."""
TASK_MARK: Final = b'"task"'
"""Without these bytes a result is no task."""
ESCAPED: Final = b"\\u00"
"""How letters of either may be spelled instead."""


def wrong_with_input(raw: Json, request: Request) -> str | None:
    """What is wrong with a result that may ask for input: empty for nothing, None when it does not ask."""
    try:
        result = members_of(bytes(raw), "the result")
        if _type_of(result) != "input_required":
            return None
        return _wrong(result, request)
    except (BadMessage, RecursionError) as error:
        return f"asks for input in a way that is not valid: {error}" if MARK in bytes(raw) else None


def _wrong(result: Members, request: Request) -> str:
    if request.method not in MAY_ASK or not isinstance(request, Call):
        return f"asks for input in an answer to `{request.method}`"
    if "inputRequests" not in result and "requestState" not in result:
        return "asks for input without saying what it needs"
    text_member(result, "requestState")
    asked = members_of(result["inputRequests"], "`inputRequests`") if "inputRequests" in result else {}
    if len(asked) > MAX_OPEN:
        return f"asks {len(asked)} things at once"
    for raw in asked.values():
        server_request = members_of(raw, "an input request")
        method = text_member(server_request, "method") or ""
        if refusal(request.caller.capabilities, method, bytes(server_request.get("params", b"{}"))) is not None:
            return f"asks its client for `{method}`, which the client did not declare"
    return ""


def wrong_with_task(raw: Json, request: Request) -> str:
    """What is wrong with a result that may be a task: nothing where it is none, or its caller knows tasks."""
    try:
        if _type_of(members_of(bytes(raw), "the result")) != "task":
            return ""
    except (BadMessage, RecursionError):
        return ""
    if request.method != "tools/call" or not isinstance(request, Call):
        return f"made a task of `{request.method}`"
    if TASKS in extensions(request.caller.capabilities):
        return ""
    return f"made a task of the call, though its client did not declare `{TASKS}`"


def _type_of(result: Members) -> str | None:
    try:
        return text_member(result, "resultType")
    except BadMessage:
        return None
