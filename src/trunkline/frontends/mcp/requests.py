"""How one request is answered: the seam between what MCP means and the wire a client came by."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, ParamSpec, Protocol

from trunkline.core.call import Call, Caller, Failure, Json, Outcome, RemoteError, Result
from trunkline.core.errors import CANCELLED, Problem
from trunkline.protocol.jsonrpc import BadMessage, Members, Message, encode, encode_error, text_member
from trunkline.runtime.safe_calls import call_safely, internal_problem

if TYPE_CHECKING:
    from trunkline.frontends.mcp.clients import ClientSession, InFlightCalls

    # REFAC


P = ParamSpec("P")


class Responder(Protocol):
    """One client request waiting for its one answer. Messages are JSON; framing is the door's business."""

    def result(self, result: Result, /) -> None: ...
    def error(self, raw: Json, problem: Problem | None, /) -> None:
        """A JSON-RPC error object; `problem` when it is ours and not a server's."""
        ...

    def notify(self, message: bytes, /) -> None:
        """A notification that belongs to this request, before its answer."""
        ...

    def send_request(self, message: bytes, /) -> bool:
        """A question that belongs to this request; False where only the client's other ways can carry it."""
        ...

    def cancelled(self, problem: Problem, /) -> None:
        """The client took the request back. Doors that owe an answer all the same give one."""
        ...

    def pause_stream(self) -> None:
        """The server closed its stream in the middle and wants to be asked again later; a door may do the same."""
        ...


def own_result(raw: bytes) -> Result:
    """A result that we wrote ourselves, on one line."""
    return Result(raw, raw)


def refuse(responder: Responder, problem: Problem, extra: dict[str, object] | None = None) -> None:
    if extra is None:
        responder.error(encode_error(problem), problem)
    else:
        error = {"code": problem.code.jsonrpc, "message": problem.message, "data": problem.data() | extra}
        responder.error(encode(error), problem)


def respond_later(responder: Responder, run: Callable[P, object], *args: P.args, **more: P.kwargs) -> None:
    """Run what answers a request that waited, where no door looks after it: a bug of ours is an answer, too."""
    if not call_safely("an answer that waited", run, *args, **more):
        refuse(responder, internal_problem())


def respond(responder: Responder, call: Call) -> None:
    """Hand a call's outcome to whoever asked."""
    outcome: Outcome | None = call.outcome
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


# One request of a client, whichever era it speaks: what it asks, who asks, and where the answer goes.


class RequestContext:
    """`session` is the legacy client's, None for a request that describes itself. `calls` are those that this
    client has in flight, where `key` names this one."""

    __slots__ = ("responder", "caller", "calls", "session", "key", "message", "meta", "params")

    def __init__(
        self,
        message: Message,
        params: Members,
        meta: Members | None,
        responder: Responder,
        caller: Caller,
        calls: InFlightCalls,
        key: Hashable,
        session: ClientSession | None = None,
    ) -> None:
        self.message = message
        self.params = params
        self.meta = meta
        self.responder = responder
        self.caller = caller
        self.calls = calls
        self.key = key
        self.session = session

    @property
    def modern(self) -> bool:
        return self.session is None


def text_or_none(params: Members, name: str) -> str | None:
    try:
        return text_member(params, name)
    except BadMessage:
        return None
