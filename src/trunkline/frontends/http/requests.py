"""One request on its way to a route other than `/mcp`, and the JSON such routes answer with."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

import msgspec
from msgspec import Raw

from trunkline.core.call import Call, Failure, Json, RemoteError, Result
from trunkline.core.errors import CANCELLED, INTERNAL, NOT_ANSWERED, Problem
from trunkline.frontends.http.exchange import HttpExchange
from trunkline.protocol.http1 import HttpRequest
from trunkline.protocol.jsonrpc import (
    BadMessage,
    Message,
    encode,
    encode_error,
    encode_members,
    error_message,
    members_of,
)
from trunkline.protocol.mcp.translation import error_text

API: Final = "/api/"
NO_STORE: Final = (b"cache-control", b"no-store")


class RouteRequest(NamedTuple):
    """A request that was let in. `names` are the `{name}` parts of its path, decoded."""

    exchange: HttpExchange
    request: HttpRequest
    principal: str
    names: Mapping[str, str]

    def answer(self, status: int, document: Mapping[str, object]) -> None:
        self.exchange.add_header(*NO_STORE)
        self.exchange.respond(status, encode(document))


Handler = Callable[[RouteRequest], None]


def problem_document(problem: Problem, details: Iterable[Problem] = ()) -> dict[str, object]:
    """`problems` are the single faults where one problem stands for several."""
    document: dict[str, object] = {"detail": problem.message, "code": problem.code.id}
    if problem.hint:
        document["hint"] = problem.hint
    problems = [_detail(each) for each in details]
    if problems:
        document["problems"] = problems
    return document


def unparsed_request_body(target: bytes, problem: Problem) -> bytes:
    """For a request that could not be read, and so never came to its route: in the words of where it was going."""
    if target.startswith(API.encode()):
        return encode(problem_document(problem))
    return error_message(b"null", encode_error(problem))


def _detail(problem: Problem) -> dict[str, object]:
    document = problem_document(problem) | {"severity": problem.severity}
    if problem.where:
        document["where"] = problem.where
    return document


# What a call came to, as an answer of REST: the result, or `detail` with the status that its problem owns.


def respond_with_call(request: RouteRequest, call: Call) -> None:
    try:
        _answer(request, call)
    except Exception:  # a bug of ours: the client gets its answer, and the router tells the operator
        respond_with_problem(request, Problem(code=INTERNAL, message="Internal error", executed="unknown"))
        raise


def _answer(request: RouteRequest, call: Call) -> None:
    outcome = call.outcome
    if isinstance(outcome, Result):
        request.exchange.add_header(*NO_STORE)
        request.exchange.respond(200, b"".join((b'{"result":', outcome.raw, b"}")))
    elif isinstance(outcome, RemoteError):
        request.respond_json(502, _servers_own(call, outcome.raw))
    elif isinstance(outcome, Failure):
        respond_with_problem(request, outcome.problem)
    else:
        respond_with_problem(request, _asked_back(call))


def respond_with_problem(request: RouteRequest, problem: Problem) -> None:
    """With everything that MCP clients find in the `data` of an error."""
    if problem.retry_after_ms is not None:
        request.exchange.add_header(b"retry-after", b"%d" % max(1, -(-problem.retry_after_ms // 1000)))
    # Who can read that a call was cancelled did not cancel it: the gateway is ending.
    status = 503 if problem.code is CANCELLED else problem.code.http
    request.respond_json(status, {"detail": problem.message, **problem.data()})


def _servers_own(call: Call, error: Json) -> dict[str, object]:
    """The server's own JSON-RPC error, unchanged; the number in it is the server's, so there is no code of ours."""
    return {
        "detail": error_text(error),
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


# Trace context that came in HTTP headers, put where MCP carries it: the `_meta` of the request.

_TRACEPARENT: Final = re.compile(rb"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-[\x21-\x7e]{0,64})?")
_TEXT: Final = re.compile(rb"[\x20-\x7e\t]{1,8192}")
_FORMATS: Final = {"traceparent": _TRACEPARENT, "tracestate": _TEXT, "baggage": _TEXT}


def copy_trace_headers(message: Message, headers: Mapping[bytes, bytes]) -> None:
    """What the message says itself stays. A state without its parent means nothing, nor does a malformed header."""
    found = _from(headers)
    if not found:
        return
    try:
        params = {} if message.params is None else members_of(message.params, "`params`")
        meta = members_of(params["_meta"], "`_meta`") if "_meta" in params else {}
    except BadMessage:
        return  # refused further on, with the reason
    added = {name: encode(value) for name, value in found.items() if name not in meta}
    if "traceparent" in meta or "traceparent" not in added:
        added.pop("tracestate", None)
        added.pop("traceparent", None)
    if added:
        members = {**params, "_meta": encode_members({**meta, **added})}
        message.params = msgspec.Raw(encode_members(members))


def trace_meta(headers: Mapping[bytes, bytes]) -> dict[str, Json] | None:
    """The same for a call that is not a message of MCP: the members of its `_meta`, None where there are none."""
    found = _from(headers)
    if "traceparent" not in found:
        found.pop("tracestate", None)
    return {name: encode(value) for name, value in found.items()} or None


def _from(headers: Mapping[bytes, bytes]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, form in _FORMATS.items():
        value = headers.get(name.encode())
        if value is not None and form.fullmatch(value):
            found[name] = value.decode("ascii")
    return found
