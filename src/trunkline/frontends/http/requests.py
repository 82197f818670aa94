"""A request to a route other than `/mcp`, and the JSON that such routes respond with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from msgspec import Raw

from trunkline.core.call import Call, Failure, Json, RemoteError, Result
from trunkline.core.errors import CANCELLED, NOT_ANSWERED, Problem
from trunkline.frontends.http.exchange import HttpExchange
from trunkline.protocol.http1 import HttpRequest
from trunkline.protocol.jsonrpc import encode, encode_error, error_message
from trunkline.protocol.mcp.translation import error_text
from trunkline.runtime.safe_callbacks import internal_problem

API: Final = "/api/"
NO_STORE: Final = (b"cache-control", b"no-store")


class RouteRequest(NamedTuple):
    """A request that was let in. `path_parameters` are the `{name}` parts of its path, decoded."""

    exchange: HttpExchange
    http: HttpRequest
    principal: str
    path_parameters: Mapping[str, str]

    def respond_json(self, status: int, document: Mapping[str, object]) -> None:
        self.exchange.add_header(*NO_STORE)
        self.exchange.respond(status, encode(document))


Handler = Callable[[RouteRequest], None]


def problem_document(problem: Problem, details: Iterable[Problem] = ()) -> dict[str, object]:
    """The JSON of a problem of a request that was refused or failed without calling a tool; `details` are the single
    faults if one problem stands for several. For requests that may have to be repeated: `respond_with_problem`."""
    document: dict[str, object] = {"detail": problem.message, "code": problem.code.id}
    if problem.hint:
        document["hint"] = problem.hint
    problems: list[dict[str, object]] = []
    for each in details:
        where = {"where": each.where} if each.where else {}
        problems.append(problem_document(each) | {"severity": each.severity} | where)
    if problems:
        document["problems"] = problems
    return document


def unparsed_request_body(target: bytes, problem: Problem) -> bytes:
    """The body of the response to a request that could not be parsed, in the form its target uses."""
    if target.startswith(API.encode()):
        return encode(problem_document(problem))
    return error_message(b"null", encode_error(problem))


# -- responses of REST calls ------------------------------------------------------------------------------------------


def respond_with_call(request: RouteRequest, call: Call) -> None:
    """Send a call's result, or `detail` with the status of its problem."""
    outcome = call.outcome
    try:
        if isinstance(outcome, Result):
            request.exchange.add_header(*NO_STORE)
            request.exchange.respond(200, b"".join((b'{"result":', outcome.raw, b"}")))
        elif isinstance(outcome, RemoteError):
            request.respond_json(502, _remote_error(call, outcome.raw))
        elif isinstance(outcome, Failure):
            respond_with_problem(request, outcome.problem)
        else:
            respond_with_problem(request, _needs_input(call))
    except Exception:  # a bug of ours: the client gets a response, and the router tells the operator
        respond_with_problem(request, internal_problem())
        raise


def respond_with_problem(request: RouteRequest, problem: Problem) -> None:
    """Send a problem of a request that calls a tool or waits: with everything that MCP clients find in the `data` of an
    error, so that the client knows whether the tool may have run, and whether and when to try again."""
    if problem.retry_after_ms is not None:
        rounded_up_s = -(-problem.retry_after_ms // 1000)
        request.exchange.add_header(b"retry-after", b"%d" % max(1, rounded_up_s))
    # A client that can read that its call was cancelled did not cancel it itself: the gateway is shutting down.
    status = 503 if problem.code is CANCELLED else problem.code.http
    request.respond_json(status, {"detail": problem.message, **problem.data()})


def _remote_error(call: Call, error: Json) -> dict[str, object]:
    """A server's JSON-RPC error, unchanged; its number is the server's, so the document has no `code` of ours."""
    return {
        "detail": error_text(error),
        "source": call.source,
        "tool": call.tool,
        "phase": "sent",
        "executed": "unknown",
        "retryable": False,
        "error": Raw(bytes(error)),
    }


def _needs_input(call: Call) -> Problem:
    return Problem(
        code=NOT_ANSWERED,
        message=f"Server {call.source}: the tool asks for input from its client, which REST clients cannot give",
        source=call.source,
        tool=call.tool,
        phase="sent",
        executed="unknown",
        hint="call it with an MCP client",
    )
