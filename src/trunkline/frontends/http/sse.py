"""HTTP+SSE, the transport of MCP 2024-11-05: a stream for everything the gateway sends, and an address to post to.

A session ends with its stream. Any protocol version before 2026-07-28 may be spoken over it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final
from urllib.parse import parse_qs

from trunkline.core.call import Json
from trunkline.core.errors import INVALID_REQUEST, NOT_ACCEPTABLE, Problem
from trunkline.frontends.http.access import Denied, accepts_stream, check_content_type
from trunkline.frontends.http.exchange import EVENTS
from trunkline.frontends.http.requests import RouteRequest
from trunkline.frontends.http.sessions import HttpSession, HttpSessions
from trunkline.frontends.http.trace_context import copy_trace_headers
from trunkline.frontends.mcp.batches import TOO_MANY_REQUESTS, ArrayBatchTransport, Batch
from trunkline.frontends.mcp.requests import MessageResponder
from trunkline.frontends.mcp.server import McpServer
from trunkline.protocol.http1 import HttpRequest
from trunkline.protocol.jsonrpc import (
    BATCH_VERSION,
    BadMessage,
    encode_error,
    is_batch,
    parse_message,
    split_batch,
)

MESSAGES: Final = "/messages"
_SESSION: Final = "session"
_INITIALIZE_S: Final = 60.0
_ACCEPTED: Final = b"Accepted"


class SseSession(HttpSession):
    """One client and its stream."""

    @property
    def is_idle(self) -> bool:
        """Before its `initialize` there is nothing to lose, though its stream is open."""
        return not self.version

    def expiry_reason(self, now: float, idle_s: float) -> str:
        if self.stream is None:
            return "its stream closed"
        is_late = not self.version and now - self.opened_at > _INITIALIZE_S
        return "it never sent `initialize`" if is_late else ""

    def send(self, message: bytes) -> None:
        if self.stream is not None:
            self.stream.send_response(message)

    def notify(self, message: bytes) -> None:
        if self.stream is not None:
            self.stream.send_notification(message)

    def send_request_now(self, message: bytes) -> bool:
        self.send(message)
        return self.stream is not None


class SseRoute:
    def __init__(self, server: McpServer, sessions: HttpSessions) -> None:
        self._server = server
        self._sessions = sessions
        self._loop = asyncio.get_running_loop()

    def open(self, request: RouteRequest) -> None:
        """`GET /sse`: open the stream; its first event names the address to post to."""
        exchange = request.exchange
        if not accepts_stream(request.http.headers.get(b"accept", b"*/*")):
            raise Denied(Problem(code=NOT_ACCEPTABLE, message="Accept must allow `text/event-stream`"))
        if request.http.method == b"HEAD":
            exchange.respond(200, content_type=EVENTS)
            return
        session = self._sessions.create(SseSession, request.principal, self._loop.time())
        session.stream = exchange
        exchange.on_disconnect = lambda: self._sessions.end(session, "its stream closed")
        exchange.named_event(b"endpoint", f"{MESSAGES}?{_SESSION}={session.id}".encode())

    def post(self, request: RouteRequest) -> None:
        """`POST /messages`: accepted with 202; the response comes on the stream."""
        exchange, http = request.exchange, request.http
        check_content_type(http)
        named = parse_qs(http.query.decode("latin-1")).get(_SESSION, [])
        if len(named) != 1:
            hint = "open `/sse` first, then post to the address that its first event names"
            raise Denied(Problem(code=INVALID_REQUEST, message=f"The query must have one `{_SESSION}`", hint=hint))
        session = self._sessions.get(SseSession, named[0].encode(), request.principal, self._loop.time())
        try:
            self._handle(session, http, exchange.back_off)
        except BadMessage as error:
            exchange.id_json = error.id_json
            exchange.refuse(error.problem)
            return
        exchange.respond(202, _ACCEPTED, b"text/plain; charset=utf-8")

    def _handle(self, session: SseSession, request: HttpRequest, on_full: Callable[[], None]) -> None:
        if is_batch(request.body) and session.version == BATCH_VERSION:
            transport = ArrayBatchTransport(session.send, session.notify, session.send_request_now)
            Batch(transport, on_full).serve(
                split_batch(request.body),
                partial(self._server.legacy_request, session),
                partial(self._server.legacy_other, session),
            )
            return
        message = parse_message(request.body)
        if message.method is None or message.id is None:
            self._server.legacy_other(session, message)
            return
        copy_trace_headers(message, request.headers)
        self._server.legacy_request(session, message, SseResponder(session, message.id_json, on_full))


class SseResponder(MessageResponder):
    """Responds to one posted message on the stream. `on_full` is called when it is refused with status 429."""

    __slots__ = ("_on_full", "_session")

    def __init__(self, session: SseSession, id_json: bytes, on_full: Callable[[], None]) -> None:
        self._id_json = id_json
        self._open = True
        self._session = session
        self._on_full = on_full

    def error(self, raw: Json, problem: Problem | None) -> None:
        if problem is not None and problem.code.http == TOO_MANY_REQUESTS and self._open:
            self._on_full()
        super().error(raw, problem)

    def notify(self, message: bytes) -> None:
        if self._open:
            self._session.notify(message)

    def send_request(self, message: bytes) -> bool:
        return self._open and self._session.send_request_now(message)

    def cancelled(self, problem: Problem) -> None:
        """A client that cancelled its request expects no response; one whose session the gateway ends does."""
        if self._session.push is None:
            self.error(encode_error(problem), problem)
        self._open = False

    def _respond(self, message: bytes | None) -> None:
        was_open, self._open = self._open, False
        if was_open and message is not None:
            self._session.send(message)
