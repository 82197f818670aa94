"""The table of HTTP routes: the credential, the handler and the OpenAPI description of each.

Nothing else is served. `/mcp` is here for the document and the tests; the server hands it to its own handler before it
looks into the table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final
from urllib.parse import unquote

from trunkline.core import errors
from trunkline.core.errors import Problem
from trunkline.frontends.http.access import Credential, Denied
from trunkline.frontends.http.operator import PERSIST_SWITCH, OperatorApi
from trunkline.frontends.http.pages import PageHandlers
from trunkline.frontends.http.requests import API, Handler
from trunkline.frontends.http.sse import MESSAGES, SseRoute
from trunkline.frontends.rest.tools_api import TOOLS_SWITCH, ToolsApi
from trunkline.protocol.jsonrpc import encode

MCP: Final = "/mcp"
SSE: Final = "/sse"
MCP_PATHS: Final = (MCP, SSE, MESSAGES)
"""The paths where MCP is spoken; their errors are JSON-RPC errors."""
_JSON: Final = ("application/json",)
_BAD_BODY: Final = (
    errors.INVALID_PARAMS,
    errors.PARSE_ERROR,
    errors.INVALID_REQUEST,
    errors.REQUEST_TOO_LARGE,
    errors.UNSUPPORTED_MEDIA,
)
_WRONG_TOOL: Final = (errors.NOT_PROVISIONED, errors.BAD_TOOL_ID, errors.PATH_TRAVERSAL, errors.UNKNOWN_TOOL)
_OVER_LIMIT: Final = (errors.CLIENT_LIMIT, errors.QUEUE_FULL, errors.RATE_LIMIT, errors.TOO_MANY_UPSTREAM_SESSIONS)
_SERVER_FAILED: Final = (errors.SOURCE_LOST, errors.SOURCE_OVER_LIMITS, errors.SOURCE_PROTOCOL, errors.NOT_ANSWERED)
_SERVER_DOWN: Final = (
    errors.SOURCE_DOWN,
    errors.SOURCE_DISABLED,
    errors.SOURCE_START_FAILED,
    errors.SOURCE_AUTH_REQUIRED,
)


@dataclass(frozen=True, slots=True)
class RouteResponse:
    """A successful response: its status and meaning, the name of its schema, and its media types."""

    status: int
    meaning: str
    schema: str = ""
    media: tuple[str, ...] = _JSON


@dataclass(frozen=True, slots=True)
class Handlers:
    """The objects whose methods handle the routes."""

    pages: PageHandlers
    operator: OperatorApi
    sse: SseRoute
    tools: ToolsApi


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One method of one path.

    `body` names the schema of its body, `query` one whose members are query parameters, `problem` that of its errors
    (`CallProblem` where a client has to know whether to try again); `switches` are its query parameters that are `1` or
    `0`, with their meaning.
    """

    endpoint: str
    """Its method and its path."""
    summary: str
    responses: tuple[RouteResponse, ...]
    handler_in: Callable[[Handlers], Handler] | None = None
    """Picks its handler. None for `/mcp` only."""
    credential: Credential = "client"
    problems: tuple[errors.Code, ...] = ()
    body: str = ""
    query: str = ""
    switches: Mapping[str, str] | None = None
    problem: str = "Problem"
    waits: bool = False
    """Whether it may take long or responds with a stream: refused while too many such requests are open."""

    @property
    def method(self) -> str:
        return self.endpoint.split()[0]

    @property
    def path(self) -> str:
        return self.endpoint.split()[1]


@cache
def _openapi() -> bytes:
    from trunkline.frontends.rest.openapi import openapi_document

    return encode(openapi_document(ROUTES))


# The order is that of the document.
ROUTES: Final = (
    Route(
        endpoint=f"POST {MCP}",
        summary="Send an MCP message (Streamable HTTP, any version)",
        body="JsonRpcMessage",
        responses=(
            RouteResponse(200, "The response, alone or at the end of a stream", "", (*_JSON, "text/event-stream")),
            RouteResponse(202, "A notification or response was accepted", media=()),
        ),
        problems=(errors.UNKNOWN_SESSION, errors.UNSUPPORTED_MEDIA),
    ),
    Route(
        endpoint=f"GET {MCP}",
        summary="Open a session's stream of messages from the gateway (versions before 2026-07-28)",
        responses=(RouteResponse(200, "A stream that stays open", "", ("text/event-stream",)),),
        problems=(errors.UNKNOWN_SESSION,),
    ),
    Route(
        endpoint=f"DELETE {MCP}",
        summary="End a session (versions before 2026-07-28)",
        responses=(RouteResponse(200, "The session has ended", media=()),),
        problems=(errors.UNKNOWN_SESSION,),
    ),
    Route(
        endpoint=f"GET {SSE}",
        handler_in=lambda handlers: handlers.sse.open,
        summary="Open the stream of a client of HTTP+SSE, the older transport; its first event is the URL to post to",
        responses=(RouteResponse(200, "A stream; the session ends with it", "", ("text/event-stream",)),),
        problems=(errors.NOT_ACCEPTABLE, errors.TOO_MANY_SESSIONS, errors.CLIENT_LIMIT),
        waits=True,
    ),
    Route(
        endpoint=f"POST {MESSAGES}",
        handler_in=lambda handlers: handlers.sse.post,
        summary="Send a message of a client of HTTP+SSE; `session` in the query comes from its stream",
        body="JsonRpcMessage",
        responses=(RouteResponse(202, "Accepted; the response comes on the stream", "", ("text/plain",)),),
        problems=(errors.INVALID_REQUEST, errors.UNKNOWN_SESSION, errors.UNSUPPORTED_MEDIA),
    ),
    Route(
        endpoint="GET /",
        handler_in=lambda handlers: handlers.pages.home,
        summary="Overview of the gateway, its servers and tools: HTML for browsers, text for others",
        responses=(RouteResponse(200, "The page", "", ("text/html", "text/plain")),),
    ),
    # The two probes need no token; without one they say how the gateway is, and nothing of its servers.
    Route(
        endpoint="GET /healthz",
        credential="open",
        handler_in=lambda handlers: handlers.pages.health,
        summary="Whether the gateway is alive",
        responses=(RouteResponse(200, "The gateway is alive", "Health"),),
    ),
    Route(
        endpoint="GET /readyz",
        credential="open",
        handler_in=lambda handlers: handlers.pages.ready,
        summary="Whether the gateway accepts new calls, and the state of each server",
        responses=(
            RouteResponse(200, "It accepts calls; single servers may be down", "Readiness"),
            RouteResponse(503, "The gateway is shutting down", "Readiness"),
        ),
    ),
    Route(
        endpoint="GET /metrics",
        handler_in=lambda handlers: handlers.pages.metrics,
        summary="Metrics in the Prometheus text format",
        responses=(RouteResponse(200, "The metrics", "", ("text/plain",)),),
    ),
    Route(
        endpoint="GET /api/openapi.json",
        handler_in=lambda _: lambda request: request.exchange.respond(200, _openapi()),
        summary="This document",
        responses=(RouteResponse(200, "OpenAPI 3.1"),),
    ),
    Route(
        endpoint="GET /api/tools/discover",
        handler_in=lambda handlers: handlers.tools.discover_by_query,
        summary="Find tools by what they do; the tools returned can be executed from then on",
        query="Discover",
        responses=(RouteResponse(200, "The best first, with their input schemas", "Discovered"),),
        problems=(errors.INVALID_PARAMS, errors.DEADLINE, errors.CLIENT_LIMIT),
        waits=True,
        problem="CallProblem",
    ),
    Route(
        endpoint="POST /api/tools/discover",
        handler_in=lambda handlers: handlers.tools.discover,
        summary="The same, with the parameters as JSON",
        body="Discover",
        responses=(RouteResponse(200, "The best first, with their input schemas", "Discovered"),),
        problems=(*_BAD_BODY, errors.DEADLINE, errors.CLIENT_LIMIT),
        waits=True,
        problem="CallProblem",
    ),
    Route(
        endpoint="POST /api/tools/provision",
        handler_in=lambda handlers: handlers.tools.provision,
        summary="Provision tools by id, within a token budget",
        body="Provision",
        responses=(RouteResponse(200, "The tools provisioned, and those refused with the reason", "Provisioned"),),
        problems=(*_BAD_BODY, errors.DEADLINE, errors.CLIENT_LIMIT),
        waits=True,
        problem="CallProblem",
    ),
    Route(
        endpoint="POST /api/tools/unprovision",
        handler_in=lambda handlers: handlers.tools.unprovision,
        summary="Unprovision tools, which can then no longer be executed",
        body="Unprovision",
        responses=(RouteResponse(200, "The tools removed", "Unprovisioned"),),
        problems=_BAD_BODY,
    ),
    Route(
        endpoint="GET /api/tools/budget",
        handler_in=lambda handlers: handlers.tools.budget,
        summary="Tokens that the tools cost a model, and the cost of each mode of `gateway.disclosure`",
        switches={TOOLS_SWITCH: "`0` leaves out the single tools"},
        responses=(RouteResponse(200, "The most expensive first", "TokenBudget"),),
        problems=(errors.INVALID_PARAMS, errors.DEADLINE, errors.CLIENT_LIMIT),
        waits=True,
        problem="CallProblem",
    ),
    Route(
        endpoint="POST /api/proxy/execute",
        handler_in=lambda handlers: handlers.tools.execute,
        summary="Call a tool that was discovered or provisioned; a failed tool is a result too (`isError`)",
        body="Execute",
        responses=(RouteResponse(200, "The server's result, unchanged", "Executed"),),
        problems=(
            *_BAD_BODY,
            *_WRONG_TOOL,
            errors.ANSWER_TOO_LARGE,
            *_OVER_LIMIT,
            *_SERVER_FAILED,
            *_SERVER_DOWN,
            errors.DRAINING,
            errors.DEADLINE,
        ),
        waits=True,
        problem="CallProblem",
    ),
    Route(
        endpoint="GET /api/mcp/servers",
        credential="operator",
        handler_in=lambda handlers: handlers.operator.list_servers,
        summary="List all servers and their state",
        responses=(RouteResponse(200, "In the order of the file, followed by those that were added", "Servers"),),
        problems=(errors.INVALID_PARAMS,),
    ),
    Route(
        endpoint="POST /api/mcp/servers",
        credential="operator",
        handler_in=lambda handlers: handlers.operator.add_server,
        summary="Add a server with a URL; servers with a command can only come from the file",
        body="NewServer",
        switches={PERSIST_SWITCH: "`1` keeps the server after a restart of the gateway"},
        responses=(RouteResponse(201, "It was added and is being connected", "ServerAdded"),),
        problems=(
            errors.INVALID_PARAMS,
            errors.COMMAND_NOT_ALLOWED,
            errors.SERVER_EXISTS,
            errors.UNSUPPORTED_MEDIA,
            errors.SERVER_NOT_VALID,
            errors.STATE_NOT_WRITTEN,
            errors.DRAINING,
        ),
    ),
    Route(
        endpoint="DELETE /api/mcp/servers/{name}",
        credential="operator",
        handler_in=lambda handlers: handlers.operator.remove_server,
        summary="Remove a server; its calls in flight may finish. A server of the file comes back with the next reload",
        responses=(RouteResponse(200, "The server was removed", "ServerNameResponse"),),
        problems=(errors.INVALID_PARAMS, errors.UNKNOWN_SERVER, errors.STATE_NOT_WRITTEN, errors.DRAINING),
    ),
    Route(
        endpoint="POST /api/mcp/servers/{name}/reconnect",
        credential="operator",
        handler_in=lambda handlers: handlers.operator.reconnect,
        summary="Reconnect to a server, or restart its process",
        responses=(
            RouteResponse(202, "The attempt has begun; the list of servers shows the outcome", "ServerNameResponse"),
        ),
        problems=(errors.INVALID_PARAMS, errors.UNKNOWN_SERVER, errors.SOURCE_DISABLED, errors.DRAINING),
    ),
    Route(
        endpoint="POST /api/services/{id}",
        credential="operator",
        handler_in=lambda handlers: handlers.operator.register_service,
        summary="Register a service or renew its lease; the service is removed when the lease ends",
        body="NewService",
        responses=(
            RouteResponse(201, "It was registered", "ServiceRegistered"),
            RouteResponse(200, "Its lease was renewed", "ServiceRegistered"),
        ),
        problems=(
            errors.INVALID_PARAMS,
            errors.SERVER_EXISTS,
            errors.UNSUPPORTED_MEDIA,
            errors.SERVER_NOT_VALID,
            errors.DRAINING,
        ),
    ),
    Route(
        endpoint="DELETE /api/services/{id}",
        credential="operator",
        handler_in=lambda handlers: handlers.operator.leave_service,
        summary="Remove a registered service; its calls in flight may finish",
        responses=(RouteResponse(200, "The service was removed", "ServerNameResponse"),),
        problems=(errors.INVALID_PARAMS, errors.UNKNOWN_SERVER, errors.DRAINING),
    ),
    Route(
        endpoint="PUT /api/sessions/{id}/token",
        credential="operator",
        handler_in=lambda handlers: handlers.operator.put_session_token,
        summary="Set the token sent to services for a session or principal; it is kept in memory and never shown",
        body="SessionToken",
        responses=(RouteResponse(200, "Used from the next call on", "SessionIdResponse"),),
        problems=(errors.INVALID_PARAMS, errors.UNSUPPORTED_MEDIA, errors.TOO_MANY_SESSIONS, errors.DRAINING),
    ),
    Route(
        endpoint="DELETE /api/sessions/{id}/token",
        credential="operator",
        handler_in=lambda handlers: handlers.operator.drop_session_token,
        summary="Delete the token of a session; it is also deleted when the session ends",
        responses=(RouteResponse(200, "The session has no token any more", "TokenDropped"),),
        problems=(errors.INVALID_PARAMS,),
    ),
    Route(
        endpoint="GET /api/tools/{name}/why",
        credential="operator",
        handler_in=lambda handlers: handlers.operator.diagnose_tool,
        summary="Which server has a tool, or why there is none with this name",
        responses=(RouteResponse(200, "What is known, and what to do", "ToolExplained"),),
        problems=(errors.INVALID_PARAMS,),
    ),
    Route(
        endpoint="POST /api/reload",
        credential="operator",
        handler_in=lambda handlers: handlers.operator.reload,
        summary="Reload the configuration file, as a whole or not at all",
        responses=(RouteResponse(200, "What changed", "Reloaded"),),
        problems=(errors.INVALID_PARAMS, errors.RELOAD_REFUSED, errors.DRAINING),
    ),
)


# -- finding the handler ----------------------------------------------------------------------------------------------

PATH_PARAMETER: Final = re.compile(r"\{(\w+)\}")


class PathHandlers:
    """The handlers of one path by method; all require the same credential.

    `rest` says which form its errors have, `waits` whether its responses may take long.
    """

    __slots__ = ("_handlers", "allow", "credential", "rest", "waits")

    def __init__(
        self, credential: Credential, handlers: Mapping[bytes, Handler], *, rest: bool, waits: bool = False
    ) -> None:
        self.credential: Credential = credential
        self.rest = rest
        self.waits = waits
        self._handlers = handlers
        self.allow = b", ".join(sorted(handlers))

    def handler(self, method: bytes) -> Handler:
        """The handler of a method. Raises Denied."""
        handler = self._handlers.get(method)
        if handler is not None:
            return handler
        if not self._handlers:
            raise Denied(Problem(code=errors.NOT_FOUND, message="No such route", hint=f"MCP is at `{MCP}`"))
        message = f"{method.decode('latin-1')} is not allowed here"
        hint = f"use {self.allow.decode()}; MCP is at `{MCP}`"
        raise Denied(Problem(code=errors.METHOD_NOT_ALLOWED, message=message, hint=hint), self.allow)


# An unknown path requires the credential too, so that strangers cannot probe which paths exist. An MCP client with a
# wrong address understands a JSON-RPC error, so outside of the API it gets one.
_UNKNOWN_PATH: Final = PathHandlers("client", {}, rest=False)
_UNKNOWN_API_PATH: Final = PathHandlers("client", {}, rest=True)
# Clients look here for OAuth before they have a token: they must get 404, not 401. Some look below the MCP address.
_NO_OAUTH: Final = PathHandlers("open", {}, rest=True)
_OAUTH_PATHS: Final = ("/register", "/authorize", "/token")
_WELL_KNOWN: Final = tuple(f"{below}/.well-known/" for below in ("", *MCP_PATHS))


class RouteTable:
    """Finds the handlers of a path. A `{name}` stands for one segment; it is matched before it is decoded."""

    def __init__(self, handlers: Handlers, routes: Iterable[Route] = ROUTES) -> None:
        self._exact: dict[bytes, PathHandlers] = {}
        self._patterns: list[tuple[re.Pattern[str], PathHandlers]] = []
        by_path: dict[str, list[Route]] = {}
        for route in routes:
            by_path.setdefault(route.path, []).append(route)
        for path, group in by_path.items():
            found = _path_handlers(group, handlers)
            if "{" in path:
                self._patterns.append((_path_pattern(path), found))
            else:
                self._exact[path.encode()] = found

    def find(self, path: bytes) -> tuple[PathHandlers, Mapping[str, str]]:
        """The handlers of a path and its parameters: for `/api/services/my%20app`, those of `/api/services/{id}` and
        `{"id": "my app"}`. For an unknown path they handle no method."""
        found = self._exact.get(path)
        if found is not None:
            return found, {}
        text = path.decode("latin-1")
        for pattern, found in self._patterns:
            match = pattern.fullmatch(text)
            if match is not None:
                return found, {name: unquote(part) for name, part in match.groupdict().items()}
        if text.startswith(_WELL_KNOWN) or text.removesuffix("/") in _OAUTH_PATHS:
            return _NO_OAUTH, {}
        return (_UNKNOWN_API_PATH if text.startswith(API) else _UNKNOWN_PATH), {}


def _path_pattern(path: str) -> re.Pattern[str]:
    """`/api/services/{id}` → `/api/services/(?P<id>[^/]+)`."""
    parts = PATH_PARAMETER.split(path)  # a literal part, a name, a literal part …
    return re.compile(
        "".join(f"(?P<{part}>[^/]+)" if index % 2 else re.escape(part) for index, part in enumerate(parts))
    )


def _path_handlers(group: list[Route], handlers: Handlers) -> PathHandlers:
    methods: dict[bytes, Handler] = {}
    for route in group:
        assert route.credential == group[0].credential, f"the methods of {route.path} require different credentials"
        if route.handler_in is not None:
            methods[route.method.encode()] = route.handler_in(handlers)
    if b"GET" in methods:
        methods[b"HEAD"] = methods[b"GET"]
    waits = any(route.waits for route in group)
    return PathHandlers(group[0].credential, methods, rest=group[0].path not in MCP_PATHS, waits=waits)
