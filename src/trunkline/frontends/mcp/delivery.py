"""What a call came to, as clients of either era may see it: results, errors and codes of the other one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trunkline.core.call import Call, Failure, Json, NeedsInput, RemoteError, Result
from trunkline.core.errors import CANCELLED, UNKNOWN_RESOURCE, Problem
from trunkline.frontends.mcp.answer import deliver, result_of_ours
from trunkline.protocol.jsonrpc import encode, encode_error, has_member, text_member
from trunkline.protocol.mcp.modern import complete
from trunkline.protocol.mcp.server_requests import labelled_result
from trunkline.protocol.mcp.translation import (
    NO_RESOURCE,
    URL_REQUIRED,
    code_of,
    downgraded_result,
    for_legacy,
    for_modern,
    legacy_code,
)
from trunkline.protocol.mcp.versions import LEGACY, MODERN
from trunkline.router.router import Router

if TYPE_CHECKING:
    from trunkline.frontends.mcp.asked import Asked
    from trunkline.frontends.mcp.conversation import Conversation
    from trunkline.frontends.mcp.parking import Parking

_READ: Final = "resources/read"
_COMPLETE: Final = "completion/complete"
_TASK: Final = "tasks/get"
_READ_HINTS: Final = {"ttlMs": b"0", "cacheScope": b'"private"'}
_WITH_CONTENT: Final = frozenset({"tools/call", "prompts/get"})
_OLD: Final = frozenset(LEGACY[:2])
"""Versions whose clients cannot read everything that servers of today answer."""
_SPECIAL: Final = b"-32"
"""Every code that may have to be changed begins like this."""


def deliver_modern(asked: Asked, call: Call, parking: Parking) -> None:
    outcome = call.outcome
    if isinstance(outcome, Result):
        raw = complete(outcome.raw)
        if call.method == _READ:
            raw = _with_hints(raw)
        elif call.method == _TASK and _has(raw, "inputRequests"):
            raw = labelled_result(call.source, raw, in_text=parking.rules.names_servers())
        asked.answer.result(Result(raw, outcome.message))
    elif isinstance(outcome, NeedsInput):
        raw = labelled_result(call.source, outcome.raw, in_text=parking.rules.names_servers())
        asked.answer.result(Result(raw))
    elif isinstance(outcome, RemoteError) and _SPECIAL in bytes(outcome.raw):
        _modern_error(asked, call, outcome.raw, parking)
    else:
        deliver(asked.answer, call)


def _modern_error(asked: Asked, call: Call, error: Json, parking: Parking) -> None:
    if code_of(error) == URL_REQUIRED:
        asking = parking.urls_to_visit(asked, call.source, error)
        if asking is not None:
            asked.answer.result(result_of_ours(asking))
            return
    uri = text_member(asked.params, "uri") if call.method == _READ else None
    asked.answer.error(for_modern(error, uri), None)


def _with_hints(raw: bytes) -> bytes:
    """A resource that was read may be kept for no time and for nobody else, unless its server says otherwise."""
    missing = [b'"%b":%b,' % (name.encode(), value) for name, value in _READ_HINTS.items() if not _has(raw, name)]
    return b"{%b%b" % (b"".join(missing), raw[1:]) if missing else raw


def _has(raw: bytes, name: str) -> bool:
    return (b'"%b"' % name.encode() in raw or b"\\u" in raw) and has_member(raw, name)


def deliver_legacy(asked: Asked, conversation: Conversation, call: Call, router: Router) -> None:
    outcome = call.outcome
    if isinstance(outcome, Result):
        snapshot = router.catalog.snapshot(call.source)
        newer = snapshot is not None and snapshot.protocol_version in MODERN
        if (newer or conversation.version in _OLD) and call.method in _WITH_CONTENT:
            raw = downgraded_result(outcome.raw, conversation.version, outcome.message)
            if raw is not outcome.raw:
                outcome = Result(raw)
        asked.answer.result(outcome)
    elif isinstance(outcome, RemoteError) and _SPECIAL in bytes(outcome.raw):
        reading = call.method == _READ and _is_modern(router, call.source)
        asked.answer.error(for_legacy(outcome.raw, reading=reading), None)
    elif isinstance(outcome, Failure) and outcome.problem.code is not CANCELLED and call.method != _COMPLETE:
        asked.answer.error(legacy_error(outcome.problem), outcome.problem)
    else:
        deliver(asked.answer, call)


def legacy_error(problem: Problem) -> bytes:
    """A problem of ours with a code that clients from before 2026-07-28 know."""
    known = problem.code.jsonrpc
    code = NO_RESOURCE if problem.code is UNKNOWN_RESOURCE else legacy_code(known)
    if code == known:
        return encode_error(problem)
    return encode({"code": code, "message": problem.message, "data": problem.data()})


def _is_modern(router: Router, source: str) -> bool:
    snapshot = router.catalog.snapshot(source)
    return snapshot is not None and snapshot.protocol_version in MODERN
