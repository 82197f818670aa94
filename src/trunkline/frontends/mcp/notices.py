"""Notifications of servers that belong to a request: which of them its client gets, and under which token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trunkline.core.call import PROGRESS, STREAM_CLOSED, Json
from trunkline.frontends.mcp.logs import LOG_MESSAGE, wants_log_message
from trunkline.protocol.jsonrpc import BadMessage, encode_members, encode_notification, members_of, single_line
from trunkline.protocol.mcp.methods import CANCELLED

if TYPE_CHECKING:
    from trunkline.frontends.mcp.asked import Asked


def pass_on(asked: Asked, method: str, params: Json) -> None:
    """Give it to the client, if it is for the client. One that cannot be read for sure is dropped."""
    try:
        if method == STREAM_CLOSED:
            asked.answer.pause()
        elif method == PROGRESS:
            _progress(asked, params)
        elif _is_for(asked, method, params):
            asked.answer.notice(encode_notification(method, single_line(params)))
    except (BadMessage, RecursionError):
        return


def _progress(asked: Asked, params: Json) -> None:
    """Under the token that its client chose."""
    token = None if asked.meta is None else asked.meta.get("progressToken")
    if token is not None:
        members = {**members_of(bytes(params), "params"), "progressToken": token}
        asked.answer.notice(encode_notification(PROGRESS, single_line(encode_members(members))))


def _is_for(asked: Asked, method: str, params: Json) -> bool:
    conversation = asked.conversation
    if method == LOG_MESSAGE:
        # A legacy client may have changed its mind since it asked.
        return wants_log_message(asked.caller if conversation is None else conversation.caller, params)
    # Modern clients get nothing on a request's stream but its progress and its log.
    return conversation is not None and method != CANCELLED
