"""Tools over REST: find, provision and execute them, and what they cost. The same as the gateway's own tools do, also
if those are switched off.

A caller has no session here: what it is given belongs to its principal, or to the handle that it sends as `session`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl

from trunkline.config.call_arguments import InvalidArguments, decode_arguments
from trunkline.core.call import Call, Caller
from trunkline.core.errors import DEADLINE, INVALID_PARAMS, UNSUPPORTED_MEDIA, GatewayError, Problem
from trunkline.frontends.http.exchange import JSON
from trunkline.frontends.http.operator import switches
from trunkline.frontends.http.requests import RouteRequest, respond_with_call, respond_with_problem
from trunkline.frontends.http.trace_context import trace_meta
from trunkline.frontends.mcp.clients import InFlightCalls
from trunkline.protocol.http1 import HttpRequest
from trunkline.protocol.jsonrpc import REDUCED_STACK, BadMessage, check_text, encode, members_of
from trunkline.router.router import Router
from trunkline.runtime.deadlines import Deadline
from trunkline.search.discovery import Discovery
from trunkline.search.own_tool_definitions import (
    DiscoverArguments,
    ExecuteArguments,
    ProvisionArguments,
    UnprovisionArguments,
)

TOOLS_SWITCH: Final = "tools"
_TIMEOUT_S: Final = 30.0


class ToolsApi:
    """The handlers. `calls_of` gives what the clients of a principal have in flight."""

    def __init__(self, router: Router, discovery: Discovery, calls_of: Callable[[str], InFlightCalls]) -> None:
        self._router = router
        self._discovery = discovery
        self._calls_of = calls_of

    # -- finding and provisioning ------------------------------------------------------------------------------------

    def discover_by_query(self, request: RouteRequest) -> None:
        self._discover(request, in_query(request.http))

    def discover(self, request: RouteRequest) -> None:
        self._discover(request, in_body(request.http, DiscoverArguments))

    def _discover(self, request: RouteRequest, arguments: DiscoverArguments) -> None:
        later = _DelayedResponse(request, "The search")
        with refusing():
            self._discovery.discover(_caller(request), arguments, later.send_result)
        later.begin()

    def provision(self, request: RouteRequest) -> None:
        arguments = in_body(request.http, ProvisionArguments)
        later = _DelayedResponse(request, "Waiting for the servers")
        # Right after the start a server may not have listed its tools yet.
        self._router.when_published(
            lambda: later.send_result(partial(self._discovery.provision, _caller(request), arguments))
        )
        later.begin()

    def unprovision(self, request: RouteRequest) -> None:
        arguments = in_body(request.http, UnprovisionArguments)
        with refusing():
            request.respond_json(200, self._discovery.unprovision(_caller(request), arguments))

    # -- costs ----------------------------------------------------------------------------------------------------

    def budget(self, request: RouteRequest) -> None:
        with_tools = switches(request.http, TOOLS_SWITCH, otherwise=True)[TOOLS_SWITCH]
        catalog = self._router.views.of(_caller(request))
        later = _DelayedResponse(request, "Counting tokens")

        def counted() -> None:
            costs = self._discovery.listing.budget(catalog)
            later.send(costs if with_tools else {name: value for name, value in costs.items() if name != "tools"})

        self._router.when_published(lambda: self._discovery.listing.when_counted(catalog, counted))
        later.begin()

    # -- running --------------------------------------------------------------------------------------------------

    def execute(self, request: RouteRequest) -> None:
        """Call a tool; every response says whether it may have run."""
        try:
            self._execute(request)
        except GatewayError as error:
            self._router.events.count("requests_refused", error.problem.code.id)
            respond_with_problem(request, error.problem)

    def _execute(self, request: RouteRequest) -> None:
        """Make the call that an MCP client would make, with every rule and limit."""
        caller, exchange = _caller(request), request.exchange
        arguments = in_body(request.http, ExecuteArguments)
        with refusing():
            name, members = self._discovery.execution.target(caller, arguments)
        calls = self._calls_of(request.principal)
        refusal = calls.refusal(exchange)
        if refusal is not None:
            raise GatewayError(refusal)
        call = self._router.call_tool(
            caller, name, members, partial(_ended, request, calls), meta=trace_meta(request.http.headers)
        )
        if not call.done:
            calls.add(exchange, call)
            exchange.on_disconnect = partial(call.cancel, "the client closed the connection")


def _ended(request: RouteRequest, calls: InFlightCalls, call: Call) -> None:
    calls.remove(request.exchange)
    respond_with_call(request, call)


def _caller(request: RouteRequest) -> Caller:
    return Caller(request.principal)


class _DelayedResponse:
    """A response that may have to wait, up to a timeout."""

    def __init__(self, request: RouteRequest, what: str) -> None:
        self._request = request
        self._what = what
        self._timer: Deadline | None = None

    def begin(self) -> None:
        """Start the timeout, unless the response was sent by now."""
        if not self._request.exchange.over:
            self._timer = Deadline(_TIMEOUT_S, self._too_late)
            self._request.exchange.on_disconnect = self._timer.cancel

    def send(self, document: dict[str, Any]) -> None:
        self._stop()
        self._request.respond_json(200, document)

    def send_result(self, make: Callable[[], dict[str, Any]]) -> None:
        if self._request.exchange.over:  # too late, or nobody waits any more
            return
        try:
            with refusing():
                self.send(make())
        except GatewayError as error:
            self._stop()
            respond_with_problem(self._request, error.problem)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _too_late(self) -> None:
        message = f"{self._what} took more than {_TIMEOUT_S:g} seconds"
        respond_with_problem(self._request, Problem(code=DEADLINE, message=message, retryable=True))


# -- arguments: a JSON object in the body, or query parameters --------------------------------------------------------

# The examples people copy send JSON with `curl -d`, so the Content-Type of a form is accepted too. A web page could
# send that without a preflight: `access.py` refuses it.

_AS_CURL_SENDS_IT: Final = b"application/x-www-form-urlencoded"
_TAKEN_FOR_JSON: Final = (b"", JSON, _AS_CURL_SENDS_IT)
_MAX_FIELDS: Final = 100
_TAGS: Final = "tags"
_BODY_HINT: Final = "write the body as one JSON object; `/api/openapi.json` says what it may hold"
A = TypeVar("A", DiscoverArguments, ProvisionArguments, UnprovisionArguments, ExecuteArguments)


@contextmanager
def refusing() -> Generator[None, None, None]:
    """Turn malformed arguments into a GatewayError."""
    try:
        yield
    except InvalidArguments as error:
        raise GatewayError(error.problem) from None
    except BadMessage as error:
        raise GatewayError(Problem(code=error.code, message=str(error), hint=_BODY_HINT)) from None


def in_body(request: HttpRequest, shape: type[A]) -> A:
    """The arguments in the body. Raises GatewayError."""
    switches(request)
    if _media_type(request.headers.get(b"content-type", b"")) not in _TAKEN_FOR_JSON:
        message = "Content-Type must be `application/json`"
        raise GatewayError(Problem(code=UNSUPPORTED_MEDIA, message=message, hint="it may be left out"))
    with refusing():
        if not request.body.strip():
            raise GatewayError(Problem(code=INVALID_PARAMS, message="The body is empty", hint=_BODY_HINT))
        check_text(request.body)
        with REDUCED_STACK:
            members_of(request.body, "The body")  # one object, and no member twice
        return decode_arguments(request.body, shape)


def in_query(request: HttpRequest) -> DiscoverArguments:
    """The arguments in the query; `tags` may come several times, or with commas. Raises GatewayError."""
    try:
        query = parse_qsl(request.query.decode("latin-1"), keep_blank_values=True, max_num_fields=_MAX_FIELDS)
    except ValueError:
        raise _refused("The query has too many parameters") from None
    fields: dict[str, object] = {}
    tags: list[str] = []
    for name, value in query:
        if name == _TAGS:
            tags += [tag.strip() for tag in value.split(",") if tag.strip()]
        elif name in fields:
            raise _refused(f"`{name[:100]}` appears more than once")
        else:
            fields[name] = value
    with refusing():
        return decode_arguments(encode({**fields, _TAGS: tags} if tags else fields), DiscoverArguments)


def _refused(message: str) -> GatewayError:
    return GatewayError(Problem(code=INVALID_PARAMS, message=message))


@lru_cache(maxsize=128)
def _media_type(content_type: bytes) -> bytes:
    return content_type.split(b";", 1)[0].strip().lower()
