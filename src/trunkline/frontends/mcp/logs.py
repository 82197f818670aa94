"""Log messages of servers: which of them a client wants."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from trunkline.core.call import Caller, Json
from trunkline.core.errors import INVALID_PARAMS, Problem
from trunkline.frontends.mcp.answer import refuse, result_of_ours
from trunkline.protocol.jsonrpc import BadMessage, Members, encode, members_of, text_member
from trunkline.protocol.mcp.modern import LOG_LEVEL, Refused
from trunkline.protocol.mcp.notifications import LEVELS, RANKS, wanted
from trunkline.protocol.mcp.versions import MODERN
from trunkline.router.router import Router

if TYPE_CHECKING:
    from trunkline.frontends.mcp.asked import Asked

LOG_MESSAGE: Final = "notifications/message"
SET_LEVEL: Final = "logging/setLevel"
_ONE_OF: Final = ", ".join(LEVELS)


def is_log_message(method: str) -> bool:
    return method == LOG_MESSAGE


def wants_log_message(caller: Caller, params: Json) -> bool:
    """A legacy client that never said a level gets what its servers send; a modern one gets nothing then."""
    if not caller.log_level:
        return caller.version not in MODERN
    try:
        level = text_member(members_of(bytes(params), "`params`"), "level")
    except BadMessage:
        return False
    return level is not None and wanted(level, caller.log_level)


def stated_level(meta: Members) -> str:
    """The level that a modern request asks for; empty where it wants none."""
    if LOG_LEVEL not in meta:
        return ""
    level = _level_in(meta, LOG_LEVEL)
    if level is None:
        raise Refused(Problem(code=INVALID_PARAMS, message=f"`_meta` member `{LOG_LEVEL}` must be one of {_ONE_OF}"))
    return level


def set_level(router: Router, asked: Asked) -> None:
    """`logging/setLevel` holds for this client from now on, and its servers hear of it."""
    conversation = asked.conversation
    level = _level_in(asked.params, "level")
    if conversation is None or level is None:
        refuse(asked.answer, Problem(code=INVALID_PARAMS, message=f"`params.level` must be one of {_ONE_OF}"))
        return
    conversation.caller = replace(conversation.caller, log_level=level)
    router.notify(conversation.caller, SET_LEVEL, encode({"level": level}))
    asked.answer.result(result_of_ours(b"{}"))


def _level_in(members: Members, name: str) -> str | None:
    try:
        level = text_member(members, name)
    except BadMessage:
        return None
    return level if level in RANKS else None
