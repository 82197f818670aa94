"""What a call came to, as an answer of REST: the result, or `detail` with the status that its problem owns."""

from __future__ import annotations

from msgspec import Raw

from trunkline.core.call import Call, Failure, Json, RemoteError, Result
from trunkline.core.errors import CANCELLED, INTERNAL, NOT_ANSWERED, Problem
from trunkline.frontends.rest.rest import NO_STORE, Visit
from trunkline.protocol.mcp.translation import message_of


def answer_call(visit: Visit, call: Call) -> None:
    try:
        _answer(visit, call)
    except Exception:  # a bug of ours: the client gets its answer, and the router tells the operator
        answer_problem(visit, Problem(code=INTERNAL, message="Internal error", executed="unknown"))
        raise


def _answer(visit: Visit, call: Call) -> None:
    outcome = call.outcome
    if isinstance(outcome, Result):
        visit.exchange.add_header(*NO_STORE)
        visit.exchange.respond(200, b"".join((b'{"result":', outcome.raw, b"}")))
    elif isinstance(outcome, RemoteError):
        visit.answer(502, _servers_own(call, outcome.raw))
    elif isinstance(outcome, Failure):
        answer_problem(visit, outcome.problem)
    else:
        answer_problem(visit, _asked_back(call))


def answer_problem(visit: Visit, problem: Problem) -> None:
    """With everything that MCP clients find in the `data` of an error."""
    if problem.retry_after_ms is not None:
        visit.exchange.add_header(b"retry-after", b"%d" % max(1, -(-problem.retry_after_ms // 1000)))
    # Who can read that a call was cancelled did not cancel it: the gateway is ending.
    status = 503 if problem.code is CANCELLED else problem.code.http
    visit.answer(status, {"detail": problem.message, **problem.data()})


def _servers_own(call: Call, error: Json) -> dict[str, object]:
    """The server's own JSON-RPC error, unchanged; the number in it is the server's, so there is no code of ours."""
    return {
        "detail": message_of(error),
        "source": call.source,
        "tool": call.tool,
        "phase": "sent",
        "executed": "unknown",
        "retryable": False,
        "error": Raw(bytes(error)),
    }


def _asked_back(call: Call) -> Problem:
    return Problem(
        code=NOT_ANSWERED,
        message=f"Server {call.source}: the tool asks its client something, and nobody can be asked over REST",
        source=call.source,
        tool=call.tool,
        phase="sent",
        executed="unknown",
        hint="call it with a client that speaks MCP",
    )
