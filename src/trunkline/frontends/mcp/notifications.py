"""Notifications of servers: which progress and log messages a client gets, and how."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from trunkline.core.call import PROGRESS, STREAM_CLOSED, Caller, Json
from trunkline.core.errors import INVALID_PARAMS, Problem
from trunkline.frontends.mcp.requests import own_result, refuse
from trunkline.protocol.jsonrpc import (
    BadMessage,
    Members,
    encode,
    encode_members,
    encode_notification,
    members_of,
    single_line,
    text_member,
)
from trunkline.protocol.mcp.methods import LOGGING_SET_LEVEL, NOTIFICATIONS_CANCELLED, NOTIFICATIONS_MESSAGE
from trunkline.protocol.mcp.modern import LOG_LEVEL, RequestRefused
from trunkline.protocol.mcp.notifications import LEVELS, RANKS, is_level_wanted
from trunkline.protocol.mcp.versions import MODERN
from trunkline.router.router import Router

if TYPE_CHECKING:
    from trunkline.frontends.mcp.requests import RequestContext

_ONE_OF: Final = ", ".join(LEVELS)


def wants_log_message(caller: Caller, params: Json) -> bool:
    """Whether a client wants this log message. Without a level a legacy client wants all, a modern one none."""
    if not caller.log_level:
        return caller.version not in MODERN
    try:
        level = text_member(members_of(bytes(params), "`params`"), "level")
    except BadMessage:
        return False
    return level is not None and is_level_wanted(level, caller.log_level)


def requested_log_level(meta: Members) -> str:
    """The level that a modern request asks for; empty if it wants none."""
    if LOG_LEVEL not in meta:
        return ""
    level = _level_in(meta, LOG_LEVEL)
    if level is None:
        raise RequestRefused(
            Problem(code=INVALID_PARAMS, message=f"`_meta` member `{LOG_LEVEL}` must be one of {_ONE_OF}")
        )
    return level


def set_level(router: Router, context: RequestContext) -> None:
    """Handle `logging/setLevel`: keep the level for this client, and pass it on to its servers."""
    session = context.session
    level = _level_in(context.params, "level")
    if session is None or level is None:
        refuse(context.responder, Problem(code=INVALID_PARAMS, message=f"`params.level` must be one of {_ONE_OF}"))
        return
    session.caller = replace(session.caller, log_level=level)
    router.notify(session.caller, LOGGING_SET_LEVEL, encode({"level": level}))
    context.responder.result(own_result(b"{}"))


def _level_in(members: Members, name: str) -> str | None:
    try:
        level = text_member(members, name)
    except BadMessage:
        return None
    return level if level in RANKS else None


def forward_notification(context: RequestContext, method: str, params: Json) -> None:
    """Send a notification that belongs to a request to its client, if it is meant for it. Drop a malformed one."""
    try:
        if method == STREAM_CLOSED:
            context.responder.pause_stream()
        elif method == PROGRESS:
            token = None if context.meta is None else context.meta.get("progressToken")
            if token is not None:  # under the token that the client chose
                members = {**members_of(bytes(params), "params"), "progressToken": token}
                context.responder.notify(encode_notification(PROGRESS, single_line(encode_members(members))))
        elif _is_for(context, method, params):
            context.responder.notify(encode_notification(method, single_line(params)))
    except (BadMessage, RecursionError):
        return


def _is_for(context: RequestContext, method: str, params: Json) -> bool:
    session = context.session
    if method == NOTIFICATIONS_MESSAGE:
        # a legacy client may have set another level since the call began
        return wants_log_message(context.caller if session is None else session.caller, params)
    # a modern client gets nothing but progress and log messages on a request's stream
    return session is not None and method != NOTIFICATIONS_CANCELLED
