"""A client's request and its responder: what every handler is given, whichever frontend the request came in by."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, ParamSpec, Protocol

from trunkline.core.call import Call, Caller, Failure, Json, RemoteError, Result
from trunkline.core.errors import CANCELLED, Problem
from trunkline.protocol.jsonrpc import (
    BadMessage,
    Members,
    Message,
    encode,
    encode_error,
    error_message,
    result_message,
    single_line,
    text_member,
)
from trunkline.runtime.safe_callbacks import call_safely, internal_problem

if TYPE_CHECKING:
    from trunkline.frontends.mcp.clients import ClientSession, InFlightCalls

P = ParamSpec("P")


class Responder(Protocol):
    """Sends the one response to a request, and what goes before it. Messages are JSON; the frontend frames them."""

    def result(self, result: Result, /) -> None: ...
    def error(self, raw: Json, problem: Problem | None, /) -> None:
        """Send a JSON-RPC error object; `problem` is None if a server wrote the error."""
        ...

    def notify(self, message: bytes, /) -> None:
        """Send a notification that belongs to this request."""
        ...

    def send_request(self, message: bytes, /) -> bool:
        """Send a server's request that belongs to this one; False if only the session's own stream can carry it."""
        ...

    def cancelled(self, problem: Problem, /) -> None:
        """The client cancelled the request. Transports that owe a response all the same send this error."""
        ...

    def pause_stream(self) -> None:
        """The server closed its stream before the response and will be polled; a frontend may do the same."""
        ...


class MessageResponder:
    """Base of the responders that send each message by itself: one response, and nothing after it.

    Each sets both attributes itself: a call of this class's `__init__` would be one more for every request.
    """

    __slots__ = ("_id_json", "_open")

    _id_json: bytes
    _open: bool

    def result(self, result: Result) -> None:
        self._respond(result_message(self._id_json, result.raw if result.single_line else single_line(result.raw)))

    def error(self, raw: Json, problem: Problem | None) -> None:
        self._respond(error_message(self._id_json, single_line(raw)))

    def pause_stream(self) -> None:
        """Nothing to do: a pipe or an old stream cannot be resumed, and the stream of a batch has other messages."""

    def _respond(self, message: bytes | None) -> None:
        """Send the response, or end without one."""
        raise NotImplementedError


class RequestContext:
    """One request of a client of either era, as its handlers see it; `RoutedCall` makes it.

    `session` is None for a request that describes itself (2026-07-28). `calls` are those that the client has in flight,
    where `key` names this one.
    """

    __slots__ = ("caller", "calls", "key", "message", "meta", "params", "responder", "session")

    message: Message
    params: Members
    meta: Members | None
    responder: Responder
    caller: Caller
    calls: InFlightCalls
    key: Hashable
    session: ClientSession | None


def own_result(raw: bytes) -> Result:
    """A result that the gateway wrote itself, on one line."""
    return Result(raw, raw)


def refuse(responder: Responder, problem: Problem, extra: dict[str, object] | None = None) -> None:
    """Respond with a problem of the gateway's; `extra` joins the `data` of the error."""
    if extra is None:
        responder.error(encode_error(problem), problem)
    else:
        error = {"code": problem.code.jsonrpc, "message": problem.message, "data": problem.data() | extra}
        responder.error(encode(error), problem)


def respond(responder: Responder, call: Call) -> None:
    """Send a call's outcome as it is."""
    outcome = call.outcome
    assert outcome is not None
    if isinstance(outcome, Failure):
        if outcome.problem.code is CANCELLED:
            responder.cancelled(outcome.problem)
        else:
            responder.error(encode_error(outcome.problem), outcome.problem)
    elif isinstance(outcome, RemoteError):
        responder.error(outcome.raw, None)
    else:
        responder.result(outcome if isinstance(outcome, Result) else Result(outcome.raw))


def respond_later(responder: Responder, run: Callable[P, object], *args: P.args, **more: P.kwargs) -> None:
    """Run what responds to a request that had to wait; an exception in it is logged, and the client gets an error."""
    if not call_safely("a delayed response", run, *args, **more):
        refuse(responder, internal_problem())


def text_or_none(params: Members, name: str) -> str | None:
    try:
        return text_member(params, name)
    except BadMessage:
        return None
