"""Every route of the HTTP door: who may use it, who answers it, and what the OpenAPI document says about it.

Nothing is served that does not stand here. `/mcp` does too, for the document and the tests, but the door hands it to
its own handler before it looks into the table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final
from urllib.parse import unquote

from trunkline.core.errors import (
    COMMAND_NOT_ALLOWED,
    DRAINING,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_ALLOWED,
    NOT_ACCEPTABLE,
    NOT_FOUND,
    RELOAD_REFUSED,
    SERVER_EXISTS,
    SERVER_NOT_VALID,
    SOURCE_DISABLED,
    STATE_NOT_WRITTEN,
    TOO_MANY_SESSIONS,
    UNKNOWN_SERVER,
    UNKNOWN_SESSION,
    UNSUPPORTED_MEDIA,
    Code,
    Problem,
)
from trunkline.doors.http.access import Credential, Denied
from trunkline.doors.http.operator import PERSIST, OperatorApi
from trunkline.doors.http.pages import Pages
from trunkline.doors.http.rest import Handler, Visit
from trunkline.doors.http.sse import MESSAGES, SseRoute
from trunkline.wire.jsonrpc import encode

MCP: Final = "/mcp"
SSE: Final = "/sse"
AGENTS: Final = (MCP, SSE, MESSAGES)
"""The paths where MCP is spoken; their errors are those of JSON-RPC."""
API: Final = "/api/"
_PART: Final = re.compile(r"\{(\w+)\}")
_JSON: Final = ("application/json",)


@dataclass(frozen=True, slots=True)
class Answers:
    """A good answer: when it comes, the name of its schema, and the types it can have."""

    status: int
    meaning: str
    schema: str = ""
    media: tuple[str, ...] = _JSON


@dataclass(frozen=True, slots=True)
class Handlers:
    """Those who answer."""

    pages: Pages
    operator: OperatorApi
    sse: SseRoute


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """`body` names the schema of what it takes, `switches` its parameters that are `1` or `0`, with their meaning."""

    method: str
    path: str
    credential: Credential
    handler: Callable[[Handlers], Handler] | None
    summary: str
    answers: tuple[Answers, ...]
    problems: tuple[Code, ...] = ()
    body: str = ""
    switches: Mapping[str, str] | None = None


def _show_description(visit: Visit) -> None:
    visit.exchange.respond(200, _description())


@cache
def _description() -> bytes:
    from trunkline.doors.http.openapi import openapi_document

    return encode(openapi_document(ROUTES))


ROUTES: Final = (
    Route(
        method="POST",
        path=MCP,
        credential="client",
        handler=None,
        summary="One message of MCP, Streamable HTTP of any version",
        body="JsonRpcMessage",
        answers=(
            Answers(200, "The response, alone or at the end of a stream", "", (*_JSON, "text/event-stream")),
            Answers(202, "A notification or response was taken", media=()),
        ),
        problems=(UNKNOWN_SESSION, UNSUPPORTED_MEDIA),
    ),
    Route(
        method="GET",
        path=MCP,
        credential="client",
        handler=None,
        summary="The stream of a session for news from the gateway (versions before 2026-07-28)",
        answers=(Answers(200, "A stream that stays open", "", ("text/event-stream",)),),
        problems=(UNKNOWN_SESSION,),
    ),
    Route(
        method="DELETE",
        path=MCP,
        credential="client",
        handler=None,
        summary="End a session (versions before 2026-07-28)",
        answers=(Answers(200, "It is over", media=()),),
        problems=(UNKNOWN_SESSION,),
    ),
    Route(
        method="GET",
        path=SSE,
        credential="client",
        handler=lambda to: to.sse.open,
        summary="The stream of a client of HTTP+SSE, as MCP was before Streamable HTTP; it names where to post",
        answers=(Answers(200, "A stream; the session ends with it", "", ("text/event-stream",)),),
        problems=(NOT_ACCEPTABLE, TOO_MANY_SESSIONS),
    ),
    Route(
        method="POST",
        path=MESSAGES,
        credential="client",
        handler=lambda to: to.sse.post,
        summary="One message of a client of HTTP+SSE; `session` in the query is what its stream named",
        body="JsonRpcMessage",
        answers=(Answers(202, "It was taken; the response comes on the stream", "", ("text/plain",)),),
        problems=(INVALID_REQUEST, UNKNOWN_SESSION, UNSUPPORTED_MEDIA),
    ),
    Route(
        method="GET",
        path="/",
        credential="client",
        handler=lambda to: to.pages.home,
        summary="What this is, its servers and their tools: a page for browsers, text for others",
        answers=(Answers(200, "The page", "", ("text/html", "text/plain")),),
    ),
    # The two probes need no token: they tell states and names of servers, never tools or what went wrong.
    Route(
        method="GET",
        path="/healthz",
        credential="open",
        handler=lambda to: to.pages.health,
        summary="Whether the gateway is alive",
        answers=(Answers(200, "It is", "Health"),),
    ),
    Route(
        method="GET",
        path="/readyz",
        credential="open",
        handler=lambda to: to.pages.ready,
        summary="Whether new calls are welcome, and the state of each server",
        answers=(
            Answers(200, "They are; single servers may be down", "Readiness"),
            Answers(503, "The gateway is shutting down", "Readiness"),
        ),
    ),
    Route(
        method="GET",
        path="/metrics",
        credential="client",
        handler=lambda to: to.pages.metrics,
        summary="Metrics in the text format of Prometheus",
        answers=(Answers(200, "The metrics", "", ("text/plain",)),),
    ),
    Route(
        method="GET",
        path="/api/openapi.json",
        credential="client",
        handler=lambda to: _show_description,
        summary="This document",
        answers=(Answers(200, "OpenAPI 3.1"),),
    ),
    Route(
        method="GET",
        path="/api/mcp/servers",
        credential="operator",
        handler=lambda to: to.operator.list_servers,
        summary="All servers and how they are",
        answers=(Answers(200, "In the order of the file, then those that were added", "Servers"),),
        problems=(INVALID_PARAMS,),
    ),
    Route(
        method="POST",
        path="/api/mcp/servers",
        credential="operator",
        handler=lambda to: to.operator.add_server,
        summary="Add a server with a URL; servers with a command come from the file only",
        body="NewServer",
        switches={PERSIST: "`1` keeps the server for the next start too; else it is gone then"},
        answers=(Answers(201, "It was added and is being connected", "ServerAdded"),),
        problems=(
            INVALID_PARAMS,
            COMMAND_NOT_ALLOWED,
            SERVER_EXISTS,
            UNSUPPORTED_MEDIA,
            SERVER_NOT_VALID,
            STATE_NOT_WRITTEN,
            DRAINING,
        ),
    ),
    Route(
        method="DELETE",
        path="/api/mcp/servers/{name}",
        credential="operator",
        handler=lambda to: to.operator.remove_server,
        summary="Take a server out; its calls in flight may end. One of the file is back with the next reload",
        answers=(Answers(200, "It is out", "ServerNamed"),),
        problems=(INVALID_PARAMS, UNKNOWN_SERVER, STATE_NOT_WRITTEN, DRAINING),
    ),
    Route(
        method="POST",
        path="/api/mcp/servers/{name}/reconnect",
        credential="operator",
        handler=lambda to: to.operator.reconnect,
        summary="Connect to a server anew, or start its process again",
        answers=(Answers(202, "It has begun; the list of servers shows what comes of it", "ServerNamed"),),
        problems=(INVALID_PARAMS, UNKNOWN_SERVER, SOURCE_DISABLED, DRAINING),
    ),
    Route(
        method="POST",
        path="/api/services/{id}",
        credential="operator",
        handler=lambda to: to.operator.register_service,
        summary="Register a service for as long as its lease lasts, or renew that; once it ends the service is gone",
        body="NewService",
        answers=(
            Answers(201, "It was registered", "ServiceRegistered"),
            Answers(200, "Its lease was renewed", "ServiceRegistered"),
        ),
        problems=(INVALID_PARAMS, SERVER_EXISTS, UNSUPPORTED_MEDIA, SERVER_NOT_VALID, DRAINING),
    ),
    Route(
        method="DELETE",
        path="/api/services/{id}",
        credential="operator",
        handler=lambda to: to.operator.leave_service,
        summary="A registered service leaves; its calls in flight may end",
        answers=(Answers(200, "It is out", "ServerNamed"),),
        problems=(INVALID_PARAMS, UNKNOWN_SERVER, DRAINING),
    ),
    Route(
        method="PUT",
        path="/api/sessions/{id}/token",
        credential="operator",
        handler=lambda to: to.operator.put_session_token,
        summary="The token that services are shown for a session or a principal; it is kept in memory and never shown",
        body="SessionToken",
        answers=(Answers(200, "It is used from the next call on", "SessionNamed"),),
        problems=(INVALID_PARAMS, UNSUPPORTED_MEDIA, TOO_MANY_SESSIONS, DRAINING),
    ),
    Route(
        method="DELETE",
        path="/api/sessions/{id}/token",
        credential="operator",
        handler=lambda to: to.operator.drop_session_token,
        summary="Forget the token of a session; that also happens when the session ends",
        answers=(Answers(200, "There is none any more", "TokenDropped"),),
        problems=(INVALID_PARAMS,),
    ),
    Route(
        method="GET",
        path="/api/tools/{name}/why",
        credential="operator",
        handler=lambda to: to.operator.why_tool,
        summary="Where a tool is, or why there is none of this name",
        answers=(Answers(200, "What is known, and what to do", "ToolExplained"),),
        problems=(INVALID_PARAMS,),
    ),
    Route(
        method="POST",
        path="/api/reload",
        credential="operator",
        handler=lambda to: to.operator.reload,
        summary="Read the configuration file again and take it over, as a whole or not at all",
        answers=(Answers(200, "What changed", "Reloaded"),),
        problems=(INVALID_PARAMS, RELOAD_REFUSED, DRAINING),
    ),
)
"""The order is that of the document."""


class Place:
    """One path: all its methods ask for the same credential. `rest` says which shape its errors have."""

    __slots__ = ("_handlers", "allow", "credential", "rest")

    def __init__(self, credential: Credential, handlers: Mapping[bytes, Handler], *, rest: bool) -> None:
        self.credential: Credential = credential
        self.rest = rest
        self._handlers = handlers
        self.allow = b", ".join(sorted(handlers))

    def handler(self, method: bytes) -> Handler:
        """Who answers, or Denied."""
        handler = self._handlers.get(method)
        if handler is not None:
            return handler
        if not self._handlers:
            raise Denied(Problem(code=NOT_FOUND, message="No such route", hint=f"MCP is at `{MCP}`"))
        message = f"{method.decode('latin-1')} is not allowed here"
        hint = f"use {self.allow.decode()}; MCP is at `{MCP}`"
        raise Denied(Problem(code=METHOD_NOT_ALLOWED, message=message, hint=hint), self.allow)


# Whoever asks for what is not there must still be let in: what exists is nobody else's business. An MCP client that
# was given a wrong address understands a JSON-RPC error, so outside of the API it gets one.
_NOWHERE: Final = Place("client", {}, rest=False)
_NOWHERE_IN_API: Final = Place("client", {}, rest=True)


class RouteTable:
    """Finds the place of a path. A `{name}` stands for one segment, taken apart before anything in it is decoded."""

    def __init__(self, handlers: Handlers, routes: Iterable[Route] = ROUTES) -> None:
        self._exact: dict[bytes, Place] = {}
        self._patterns: list[tuple[re.Pattern[str], Place]] = []
        by_path: dict[str, list[Route]] = {}
        for route in routes:
            by_path.setdefault(route.path, []).append(route)
        for path, group in by_path.items():
            place = _place(group, handlers)
            if "{" in path:
                self._patterns.append((_pattern(path), place))
            else:
                self._exact[path.encode()] = place

    def find(self, path: bytes) -> tuple[Place, Mapping[str, str]]:
        place = self._exact.get(path)
        if place is not None:
            return place, {}
        text = path.decode("latin-1")
        for pattern, place in self._patterns:
            match = pattern.fullmatch(text)
            if match is not None:
                return place, {name: unquote(part) for name, part in match.groupdict().items()}
        return (_NOWHERE_IN_API if text.startswith(API) else _NOWHERE), {}


def _pattern(path: str) -> re.Pattern[str]:
    return re.compile(_PART.sub(r"(?P<\1>[^/]+)", path))


def _place(group: list[Route], handlers: Handlers) -> Place:
    methods: dict[bytes, Handler] = {}
    for route in group:
        assert route.credential == group[0].credential, f"{route.path} asks for different credentials"
        if route.handler is not None:
            methods[route.method.encode()] = route.handler(handlers)
    if b"GET" in methods:
        methods[b"HEAD"] = methods[b"GET"]
    return Place(group[0].credential, methods, rest=group[0].path not in AGENTS)
