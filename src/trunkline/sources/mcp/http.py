"""MCP servers that are reached over HTTP: Streamable HTTP of any version, or the older HTTP+SSE."""

from __future__ import annotations

from collections.abc import Callable

from trunkline.core.errors import SOURCE_AUTH_REQUIRED, SOURCE_PROTOCOL, GatewayError, Problem
from trunkline.core.source import Source, SourceKind
from trunkline.protocol.mcp.versions import Era
from trunkline.runtime.http_client import HttpPool, Target
from trunkline.runtime.source_context import Parts
from trunkline.sources.mcp.handshake import Session, shake_hands
from trunkline.sources.mcp.http_lane import HttpLane
from trunkline.sources.mcp.source import McpSource, Tuning
from trunkline.sources.mcp.sse_lane import SseLane
from trunkline.sources.sections import McpHttpSection


class _Dialer:
    """Opens sessions with one server, and remembers which transport it turned out to speak."""

    def __init__(self, name: str, section: McpHttpSection, parts: Parts) -> None:
        self._name = name
        self._section = section
        self._limit_bytes = parts.message_bytes
        self._redact = parts.redact
        self._transport = section.transport

    async def open(self, era: Era | None, capabilities: bytes, count: Callable[[str], None]) -> Session:
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

    async def _try_sse(self, refusal: Problem, capabilities: bytes, count: Callable[[str], None]) -> Session:
        """A server of 2024-11-05 refuses our POST. If the older way fails too, the first refusal tells more, unless
        the second one asks for a login: then there is such a server."""
        try:
            return await self._open_sse(capabilities, count)
        except GatewayError as error:
            tells_more = error.problem.code is SOURCE_AUTH_REQUIRED
            raise GatewayError(error.problem if tells_more else refusal) from None

    async def _open_streamable(self, era: Era | None, capabilities: bytes, count: Callable[[str], None]) -> Session:
        lane = HttpLane(self._name, count, self._pool(), self._section.headers, self._limit_bytes)
        lane.redact = self._redact
        try:
            return await shake_hands(lane, era, capabilities, self._section.start_timeout)
        except BaseException:
            await lane.close()
            raise

    async def _open_sse(self, capabilities: bytes, count: Callable[[str], None]) -> Session:
        lane = SseLane(self._name, count, self._pool(), self._section.headers, self._limit_bytes)
        lane.redact = self._redact
        try:
            await lane.connect(self._section.start_timeout)
            return await shake_hands(lane, "legacy", capabilities, self._section.start_timeout)
        except BaseException:
            await lane.close()
            raise

    def _pool(self) -> HttpPool:
        return HttpPool(
            Target(self._section.url),
            connect_timeout_s=self._section.connect_timeout,
            limit_bytes=self._limit_bytes,
        )


def build(name: str, section: McpHttpSection, parts: Parts) -> Source:
    tuning = Tuning(
        shared=section.sessions == "shared",
        max_sessions=parts.sessions_per_source,
        session_idle_s=parts.session_idle_s,
    )
    return McpSource(name, _Dialer(name, section, parts).open, tuning)


KIND = SourceKind(section=McpHttpSection, build=build)
