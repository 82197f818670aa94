"""The kind `mcp_http`: servers over Streamable HTTP, or over the older HTTP+SSE, which is implemented here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import urljoin

from trunkline.core.call import Failure, Request
from trunkline.core.errors import (
    SOURCE_AUTH_REQUIRED,
    SOURCE_LOST,
    SOURCE_PROTOCOL,
    SOURCE_START_FAILED,
    Code,
    GatewayError,
    Problem,
)
from trunkline.core.source import Source, SourceKind
from trunkline.protocol.http1 import request_head
from trunkline.protocol.mcp.versions import Era
from trunkline.protocol.sse import SseEvent, SseParser, SseTooLarge
from trunkline.runtime.deadlines import TimeLimit
from trunkline.runtime.http_client import Exchange, HttpPool, HttpTarget
from trunkline.runtime.source_context import SourceContext
from trunkline.sources.mcp.http_session import HttpUpstreamSession
from trunkline.sources.mcp.initialize import initialize_session
from trunkline.sources.mcp.session import Count, UpstreamSession
from trunkline.sources.mcp.source import McpSource, Tuning
from trunkline.sources.sections import McpHttpSection

_ACCEPT_S: Final = 10.0
"""How long a server may take to accept a message whose answer nobody waits for."""


class SseUpstreamSession(UpstreamSession):
    """A session over HTTP+SSE: one long GET brings every message, and POSTs carry ours."""

    def __init__(self, source: str, count: Count, pool: HttpPool, headers: Mapping[str, str], limit_bytes: int) -> None:
        super().__init__(source, count)
        self.pool = pool
        pool.served = lambda: self.served
        self.limit_bytes = limit_bytes
        self._own_headers = [(name.encode(), value.encode()) for name, value in headers.items()]
        self._post_head = b""
        self._endpoint: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._stream = _Stream(self, self._build_head(b"GET", pool.target.path, b"text/event-stream") + b"\r\n")

    async def connect(self, timeout_s: float) -> None:
        """Open the stream and wait for the `endpoint` to post to."""
        self.pool.send(self._stream)
        try:
            async with TimeLimit(timeout_s):
                endpoint = await self._endpoint
        except TimeoutError:
            raise GatewayError(self.problem(SOURCE_START_FAILED, "sent no `endpoint` event")) from None
        try:
            target = HttpTarget(urljoin(self.pool.target.url, endpoint))
            self._post_head = self._build_head(b"POST", target.path, b"application/json, text/event-stream")
        except ValueError as error:
            raise GatewayError(
                self.problem(SOURCE_PROTOCOL, f"its `endpoint` event is not a valid URL: {error}")
            ) from None
        if not target.same_origin(self.pool.target):
            # Our headers may hold a credential, which goes only to the configured origin.
            raise GatewayError(self.problem(SOURCE_PROTOCOL, "its `endpoint` event has another origin"))

    def _build_head(self, verb: bytes, path: bytes, accept: bytes) -> bytes:
        headers = [
            (b"host", self.pool.target.authority),
            (b"accept", accept),
            (b"accept-encoding", b"identity"),
            (b"content-type", b"application/json"),
            (b"user-agent", b"trunkline"),
        ]
        return request_head(verb, path, headers + self._own_headers)[:-2]

    def _write(self, request: Request | None, message: bytes) -> None:
        out = b"%bcontent-length: %d\r\n\r\n%b" % (self._post_head, len(message), message)
        self.pool.send(_Post(self, request, out))

    def _write_answer(self, message: bytes) -> None:
        """Drop answers that a server requests without reading them, which would fill our memory."""
        if self.pool.crowded:
            self._count("unread_messages_dropped")
        else:
            super()._write_answer(message)

    def event(self, event: SseEvent) -> None:
        if event.event == "endpoint":
            if not self._endpoint.done():
                self._endpoint.set_result(event.data.decode(errors="replace"))
        elif event.data:
            self.received(event.data)

    def stream_ended(self, problem: Problem) -> None:
        if not self._endpoint.done():
            self._endpoint.set_exception(GatewayError(problem))
        self.lose(problem)

    async def close(self) -> None:
        self._stream.abort()
        self._endpoint.cancel()
        self.lose(self.problem(SOURCE_LOST, "was disconnected"))
        await self.pool.close()


class _Stream(Exchange):
    __slots__ = ("_session", "_sse", "_status")

    def __init__(self, session: SseUpstreamSession, out: bytes) -> None:
        super().__init__(out)
        self._session = session
        self._sse = SseParser(session.limit_bytes)
        self._status = 0

    def on_head(self, status: int, headers: Mapping[bytes, bytes]) -> None:
        self._status = status
        if status == 200:
            self.unlimited()

    def on_body(self, data: bytes) -> None:
        if self._status != 200:
            return
        try:
            events = self._sse.feed(data)
        except SseTooLarge:
            self.abort()
            self.on_fail("an event is too large")
            return
        for event in events:
            self._session.event(event)

    def on_end(self) -> None:
        if self._status in (401, 403):
            self._session.stream_ended(self._session.login_problem(self._status))
            return
        reason = "the event stream ended" if self._status == 200 else f"answered HTTP {self._status}"
        self._session.stream_ended(self._session.problem(SOURCE_LOST, reason))

    def on_fail(self, reason: str, *, too_large: bool = False, malformed: bool = False) -> None:
        self._session.stream_ended(self._session.problem(SOURCE_LOST, reason))


class _Post(Exchange):
    """The POST of one message. The answer comes on the stream, maybe before the POST has ended."""

    __slots__ = ("_request", "_session", "_status", "_timer")

    def __init__(self, session: SseUpstreamSession, request: Request | None, out: bytes) -> None:
        super().__init__(out)
        self._session = session
        self._request = request
        self._status = 0
        self._timer = asyncio.get_running_loop().call_later(_ACCEPT_S, self._check)

    def _check(self) -> None:
        """Give up a POST that is not accepted once nobody waits for the answer: it would keep a connection."""
        if self._request is None or self._request.done or self._session.lost.done():
            self.abort()
        else:
            self._timer = asyncio.get_running_loop().call_later(_ACCEPT_S, self._check)

    def on_head(self, status: int, headers: Mapping[bytes, bytes]) -> None:
        self._status = status

    def on_end(self) -> None:
        self._timer.cancel()
        if self._status >= 300:
            self._fail(SOURCE_PROTOCOL, f"answered HTTP {self._status} to a message")

    def on_fail(self, reason: str, *, too_large: bool = False, malformed: bool = False) -> None:
        self._timer.cancel()
        self._fail(SOURCE_LOST if self.written else SOURCE_START_FAILED, reason)

    def _fail(self, code: Code, reason: str) -> None:
        request = self._request
        if request is None or self._session.pending.pop(request.upstream_id, None) is None:
            return
        if not self.written:
            request.upstream = None
        request.finish(Failure(self._session.problem(code, reason, request)))


class _Connector:
    """Opens sessions with one server, and remembers the transport that worked."""

    def __init__(self, name: str, section: McpHttpSection, context: SourceContext) -> None:
        self._name = name
        self._section = section
        self._limit_bytes = context.message_bytes
        self._redact = context.redact
        self._transport = section.transport

    async def open(self, era: Era | None, capabilities: bytes, count: Callable[[str], None]) -> UpstreamSession:
        if self._transport == "sse":
            return await self._open_sse(capabilities, count)
        try:
            session = await self._open_streamable(era, capabilities, count)
        except GatewayError as error:
            if self._transport != "auto" or error.problem.code is not SOURCE_PROTOCOL:
                raise
            session = await self._try_sse(error.problem, capabilities, count)
            self._transport = "sse"
            return session
        self._transport = "streamable"
        return session

    async def _try_sse(self, refusal: Problem, capabilities: bytes, count: Callable[[str], None]) -> UpstreamSession:
        """Try HTTP+SSE after a refused POST. If it fails too, the first refusal tells more, unless the second one asks
        for a login."""
        try:
            return await self._open_sse(capabilities, count)
        except GatewayError as error:
            needs_login = error.problem.code is SOURCE_AUTH_REQUIRED
            raise GatewayError(error.problem if needs_login else refusal) from None

    async def _open_streamable(
        self, era: Era | None, capabilities: bytes, count: Callable[[str], None]
    ) -> UpstreamSession:
        session = HttpUpstreamSession(self._name, count, self._pool(), self._section.headers, self._limit_bytes)
        session.redact = self._redact
        try:
            return await initialize_session(session, era, capabilities, self._section.start_timeout)
        except BaseException:
            await session.close()
            raise

    async def _open_sse(self, capabilities: bytes, count: Callable[[str], None]) -> UpstreamSession:
        session = SseUpstreamSession(self._name, count, self._pool(), self._section.headers, self._limit_bytes)
        session.redact = self._redact
        try:
            await session.connect(self._section.start_timeout)
            return await initialize_session(session, "legacy", capabilities, self._section.start_timeout)
        except BaseException:
            await session.close()
            raise

    def _pool(self) -> HttpPool:
        return HttpPool(
            HttpTarget(self._section.url),
            connect_timeout_s=self._section.connect_timeout,
            limit_bytes=self._limit_bytes,
        )


def build(name: str, section: McpHttpSection, context: SourceContext) -> Source:
    tuning = Tuning(
        shared=section.sessions == "shared",
        max_sessions=context.sessions_per_source,
        session_idle_s=context.session_idle_s,
    )
    return McpSource(name, _Connector(name, section, context).open, tuning)


KIND = SourceKind(section=McpHttpSection, build=build)
