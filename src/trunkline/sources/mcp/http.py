"""The kind `mcp_http`: servers over Streamable HTTP, or over the older HTTP+SSE, which is implemented here."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
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
from trunkline.protocol.mcp.versions import Era
from trunkline.protocol.sse import SseEvent
from trunkline.runtime.deadlines import TimeLimit, settle
from trunkline.runtime.http_client import Exchange, ExchangeFailure, HttpPool, HttpTarget
from trunkline.runtime.source_context import SourceContext
from trunkline.sources.mcp.http_exchanges import EventStream
from trunkline.sources.mcp.http_session import BaseHttpSession, HttpUpstreamSession
from trunkline.sources.mcp.initialize import initialize_session
from trunkline.sources.mcp.session import Count, UpstreamSession
from trunkline.sources.mcp.source import McpSource
from trunkline.sources.sections import McpHttpSection

_ACCEPT_S: Final = 10.0
"""How long a server may take to accept a message whose answer nobody waits for."""


class SseUpstreamSession(BaseHttpSession):
    """A session over HTTP+SSE: one long GET brings every message, and POSTs carry ours."""

    def __init__(self, source: str, count: Count, pool: HttpPool, headers: Mapping[str, str]) -> None:
        super().__init__(source, count, pool, headers)
        self._post_head = b""
        self._endpoint: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._stream = EventStream(self, self._stream_ended)

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
            self._post_head = self._build_head(b"POST", target.path, [])
        except ValueError as error:
            raise GatewayError(
                self.problem(SOURCE_PROTOCOL, f"its `endpoint` event is not a valid URL: {error}")
            ) from None
        if not target.same_origin(self.pool.target):
            # Our headers may hold a credential, which goes only to the configured origin.
            raise GatewayError(self.problem(SOURCE_PROTOCOL, "its `endpoint` event has another origin"))

    def _write(self, request: Request | None, message: bytes) -> None:
        out = b"%bcontent-length: %d\r\n\r\n%b" % (self._post_head, len(message), message)
        self.pool.send(_Post(self, request, out))

    def event(self, event: SseEvent, request: Request | None) -> None:
        if event.event == "endpoint":
            settle(self._endpoint, event.data.decode(errors="replace"))
        else:
            super().event(event, request)

    def _stream_ended(self, stream: EventStream) -> None:
        if stream.status in (401, 403) and not stream.failure:
            problem = self.login_problem(stream.status)
        else:
            ended = "the event stream ended" if stream.status == 200 else f"answered HTTP {stream.status}"
            problem = self.problem(SOURCE_LOST, stream.failure or ended)
        if not self._endpoint.done():
            self._endpoint.set_exception(GatewayError(problem))
        self.lose(problem)

    async def close(self) -> None:
        self._stream.abort()
        self._endpoint.cancel()
        self.lose(self.problem(SOURCE_LOST, "was disconnected"))
        await self.pool.close()


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

    def on_fail(self, reason: str, failure: ExchangeFailure = "connection") -> None:
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
        self._context = context
        self._transport = section.transport

    async def open(self, era: Era | None, capabilities: bytes, count: Count) -> UpstreamSession:
        if self._transport == "sse":
            return await self._open(SseUpstreamSession, "legacy", capabilities, count)
        try:
            session = await self._open(HttpUpstreamSession, era, capabilities, count)
        except GatewayError as error:
            if self._transport != "auto" or error.problem.code is not SOURCE_PROTOCOL:
                raise
            session = await self._try_sse(error.problem, capabilities, count)
            self._transport = "sse"
            return session
        self._transport = "streamable"
        return session

    async def _try_sse(self, refusal: Problem, capabilities: bytes, count: Count) -> UpstreamSession:
        """Try HTTP+SSE after a refused POST. If it fails too, the first refusal tells more, unless the second one asks
        for a login."""
        try:
            return await self._open(SseUpstreamSession, "legacy", capabilities, count)
        except GatewayError as error:
            needs_login = error.problem.code is SOURCE_AUTH_REQUIRED
            raise GatewayError(error.problem if needs_login else refusal) from None

    async def _open(
        self,
        transport: type[HttpUpstreamSession | SseUpstreamSession],
        era: Era | None,
        capabilities: bytes,
        count: Count,
    ) -> UpstreamSession:
        section = self._section
        pool = HttpPool(
            HttpTarget(section.url),
            connect_timeout_s=section.connect_timeout,
            limit_bytes=self._context.message_bytes,
        )
        session = transport(self._name, count, pool, section.headers)
        session.redact = self._context.redact
        try:
            if isinstance(session, SseUpstreamSession):
                await session.connect(section.start_timeout)
            return await initialize_session(session, era, capabilities, section.start_timeout)
        except BaseException:
            await session.close()
            raise


def build(name: str, section: McpHttpSection, context: SourceContext) -> Source:
    return McpSource(
        name,
        _Connector(name, section, context).open,
        shared=section.sessions == "shared",
        max_sessions=context.sessions_per_source,
        session_idle_s=context.session_idle_s,
    )


KIND = SourceKind(section=McpHttpSection, build=build)
