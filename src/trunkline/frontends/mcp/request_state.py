"""`requestState` of ours: what it names, whose it is, how long it holds, and for which request alone."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from typing import TYPE_CHECKING, Final

import msgspec

from trunkline.core.errors import INVALID_PARAMS, Problem
from trunkline.core.names import RESERVED_SOURCE
from trunkline.core.seal import Sealer
from trunkline.protocol.jsonrpc import BadMessage, Members, encode, encode_members, members_of, single_line, text_member
from trunkline.protocol.mcp.server_requests import ROUND_MEMBERS
from trunkline.protocol.mcp.versions import MODERN
from trunkline.router.catalog import ToolEntry
from trunkline.router.router import Router

if TYPE_CHECKING:
    from trunkline.frontends.mcp.asked import Asked

_PURPOSE: Final = "requestState"
_GRACE_S: Final = 5.0
"""A client that is back in the last moment finds out from us that it is too late, not from a state gone bad."""
_OPEN_BRACE: Final = 0x7B
_canonical: Final = msgspec.json.Encoder(order="sorted").encode


class _State(msgspec.Struct, array_like=True):
    handle: str
    principal: str
    until: float
    digest: str


class StateSeal:
    def __init__(self, sealer: Sealer, question_s: float) -> None:
        self._sealer = sealer
        self._lasts_s = question_s + _GRACE_S
        self._loop = asyncio.get_running_loop()

    def sealed(self, asked: Asked, handle: str) -> str:
        state = _State(handle, asked.caller.principal, self._loop.time() + self._lasts_s, _digest(asked))
        return self._sealer.seal(_PURPOSE, encode(state))

    def opened(self, asked: Asked, text: str) -> str | None:
        """The handle in a state that was given for this very request; None for any other."""
        payload = self._sealer.open(_PURPOSE, text)
        if payload is None:
            return None
        state = msgspec.json.decode(payload, type=_State)
        is_asked_for = (
            state.principal == asked.caller.principal
            and state.until > self._loop.time()
            and state.digest == _digest(asked)
        )
        return state.handle if is_asked_for else None


def _digest(asked: Asked) -> str:
    """What is asked, whichever way it is written: a client may order its arguments differently the next time."""
    params = encode_members({name: asked.params[name] for name in sorted(without_round(asked.params))})
    with contextlib.suppress(msgspec.MsgspecError, RecursionError):  # else as it is written
        params = _canonical(msgspec.json.decode(params))
    return hashlib.sha256(f"{asked.message.method}\0".encode() + params).hexdigest()


def without_round(params: Members) -> Members:
    """The parameters of the request itself, without what belongs to a round of questions."""
    return {name: value for name, value in params.items() if name not in ROUND_MEMBERS and name != "_meta"}


def answers_in(params: Members) -> dict[str, bytes] | Problem:
    """What the client answered, by the keys it was asked under."""
    raw = params.get("inputResponses")
    try:
        answers = {} if raw is None else members_of(raw, "`params.inputResponses`")
        return {key: single_line(_object(key, answer)) for key, answer in answers.items()}
    except BadMessage as error:
        return Problem(code=INVALID_PARAMS, message=str(error))


def _object(key: str, answer: msgspec.Raw) -> msgspec.Raw:
    if memoryview(answer)[0] != _OPEN_BRACE:
        raise BadMessage(INVALID_PARAMS, f"`params.inputResponses.{key}` must be an object")
    return answer


def is_for_legacy(asked: Asked, router: Router) -> bool:
    """Whether the server that this goes to has no such states, as far as that is known now."""
    source = _source_of(asked, router)
    snapshot = None if source is None else router.catalog.snapshot(source)
    return snapshot is not None and snapshot.protocol_version not in MODERN


def _source_of(asked: Asked, router: Router) -> str | None:
    if asked.message.method == "resources/read":
        place = router.uri_rewriter.resolve_or_guess(asked.caller, text_member(asked.params, "uri") or "")
        return None if place is None else place.source
    name = text_member(asked.params, "name") or ""
    if asked.message.method == "prompts/get":
        prompt = router.views.of(asked.caller).prompts.find(name)
        return None if prompt is None else prompt.source
    entry = _tool_of(asked, router, name)
    return None if entry is None else entry.tool.source


def _tool_of(asked: Asked, router: Router, name: str) -> ToolEntry | None:
    """The tool that answers: what is executed by a tool of ours, is answered by the one that was named."""
    catalog = router.views.of(asked.caller)
    entry = catalog.find(name)
    if entry is None or entry.source != RESERVED_SOURCE:
        return entry
    try:
        arguments = members_of(asked.params.get("arguments", b"{}"), "`params.arguments`")
        return catalog.find(text_member(arguments, "tool_id") or "")
    except BadMessage:
        return None
