"""The messages a relay looks at, as bytes: what a request's headers must say, and whether an answer is one.

Everything else about them is the client's and the gateway's business, and passes as it came.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

import msgspec

from trunkline.core.call import PROGRESS
from trunkline.core.errors import ANSWER_TOO_LARGE, CANCELLED, GATEWAY_UNREACHABLE, UNAUTHORIZED, Executed, Problem
from trunkline.protocol.jsonrpc import (
    BadMessage,
    Members,
    Message,
    MessageId,
    check_text,
    decode_server_message,
    encode_error,
    encode_notification,
    error_message,
    members_of,
    read_id,
    single_line,
    text_member,
)
from trunkline.protocol.mcp.modern import NAMED_BY, PROTOCOL_VERSION, encode_header
from trunkline.runtime.child_io import beginning

Headers = list[tuple[bytes, bytes]]
Kind = Literal["answer", "notice", "nonsense"]

_PROGRESS: Final = encode_notification(PROGRESS)[:-1]
_EXCERPT_BYTES: Final = 120
_RETRY_MS: Final = 1000


class _Hello(msgspec.Struct, rename="camel"):
    protocol_version: str


class _HelloAnswer(msgspec.Struct):
    result: _Hello


# -- what the client sends --------------------------------------------------------------------------------------------


def mirrors(message: Message) -> Headers:
    """The headers that repeat a 2026-07-28 request. Of one that is malformed, what can be read: the gateway refuses
    it with the reason."""
    headers: Headers = []
    if message.method is not None:
        headers.append((b"mcp-method", encode_header(message.method)))
    if message.params is None:
        return headers
    try:
        params = members_of(message.params, "`params`")
        meta = members_of(params["_meta"], "`_meta`") if "_meta" in params else {}
    except BadMessage:
        return headers
    _mirror(headers, b"mcp-protocol-version", meta, PROTOCOL_VERSION)
    _mirror(headers, b"mcp-name", params, NAMED_BY.get(message.method or ""))
    return headers


def _mirror(headers: Headers, header: bytes, members: Members, name: str | None) -> None:
    try:
        value = None if name is None else text_member(members, name)
    except BadMessage:
        return
    if value is not None:
        headers.append((header, encode_header(value)))


# -- what the gateway sends -------------------------------------------------------------------------------------------


def kind_of(data: bytes, request_id: MessageId | None) -> Kind:
    """Whether a message answers this request, is something else for the client, or is not for anybody."""
    try:
        check_text(data)
        message = decode_server_message(data)
        single_line(data)  # what is only just not too deep to be looked at may be too deep for that
        has_result, has_error = message.result is not msgspec.UNSET, message.error is not msgspec.UNSET
        if message.method is not msgspec.UNSET:
            # with a result, some clients would take it for the answer to another request
            return "nonsense" if has_result or has_error else "notice"
        if message.id is msgspec.UNSET or has_result == has_error:
            return "nonsense"
        return "answer" if read_id(message.id) == request_id else "nonsense"
    except (msgspec.MsgspecError, BadMessage, RecursionError):
        return "nonsense"


def is_progress(data: bytes) -> bool:
    return data.startswith(_PROGRESS)


def answer_in(body: bytes, message: Message) -> bytes | None:
    """The answer to a request in the body of its response, on one line; None where there is none.

    A gateway that refuses a request before it has read it cannot know its id: such an error gets it here.
    """
    if kind_of(body, message.id) == "answer":
        return single_line(body)
    try:
        check_text(body)
        refusal = decode_server_message(body)
        if refusal.error is msgspec.UNSET or not bytes(refusal.error).startswith(b"{"):
            return None
        return error_message(message.id_json, single_line(refusal.error))
    except (msgspec.MsgspecError, BadMessage, RecursionError):
        return None


def version_in(answer: bytes) -> str | None:
    """The protocol version that an `initialize` was answered with; None where it was refused."""
    try:
        version = msgspec.json.decode(answer, type=_HelloAnswer).result.protocol_version
    except (msgspec.MsgspecError, RecursionError):
        return None
    return version if version.isascii() and version.isprintable() else None


# -- what the relay says itself ---------------------------------------------------------------------------------------


def unreachable(where: str, reason: str, *, sent: bool) -> Problem:
    """The gateway is not there, or was lost while it worked on a request."""
    what = "was lost" if sent else "cannot be reached"
    return Problem(
        code=GATEWAY_UNREACHABLE,
        message=f"The gateway at {where} {what}: {reason}",
        hint="start it again with `trunkline up`; this connection recovers by itself once it answers",
        phase="sent" if sent else "queued",
        executed="unknown" if sent else "no",
        retryable=not sent,
        retry_after_ms=None if sent else _RETRY_MS,
    )


def cancelled(why: str, *, sent: bool) -> Problem:
    """The relay ends before the gateway has answered."""
    return Problem(
        code=CANCELLED, message=why, phase="sent" if sent else "queued", executed="unknown" if sent else "no"
    )


def no_gateway(where: str, what: str, *, executed: Executed = "no") -> Problem:
    """Something answers at that address, but not as an MCP gateway would."""
    return Problem(
        code=GATEWAY_UNREACHABLE,
        message=f"What answers at {where} is no MCP gateway: {what}",
        hint="check the address: a gateway's ends in `/mcp`, and `trunkline up` prints it",
        phase="sent",
        executed=executed,
    )


def odd_answer(where: str, status: int, body: bytes, redact: Callable[[str], str]) -> Problem:
    """An HTTP answer in which there is none to our request. One that blames us says that nothing was done; one of a
    proxy that lost its gateway, say, does not."""
    excerpt = redact(beginning(body, _EXCERPT_BYTES)).strip()
    shown = f": {excerpt!r}" if excerpt else ""
    return no_gateway(where, f"HTTP {status}{shown}", executed="no" if 300 <= status < 500 else "unknown")


def too_large(where: str, reason: str) -> Problem:
    return Problem(
        code=ANSWER_TOO_LARGE,
        message=f"The gateway at {where} sent more than a message may hold: {reason}",
        hint="ask for less, or raise `gateway.limits.message_bytes`",
        phase="sent",
        executed="unknown",
    )


def token_refused(where: str, *, given: bool) -> Problem:
    what = "refuses the token" if given else "asks for a token"
    return Problem(
        code=UNAUTHORIZED,
        message=f"The gateway at {where} {what}",
        hint="set `gateway.token` in the configuration file, or TRUNKLINE_TOKEN in this program's environment",
    )


def refusal(message: Message, problem: Problem) -> bytes:
    """A problem of ours as the answer to a request."""
    return error_message(message.id_json, encode_error(problem))
