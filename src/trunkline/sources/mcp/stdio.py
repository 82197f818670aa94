"""MCP servers that are started as a command and spoken to over their standard input and output."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, cast

from trunkline.core.source import Source, SourceKind
from trunkline.protocol.mcp.versions import Era
from trunkline.runtime.children import child_environment
from trunkline.runtime.source_context import Parts
from trunkline.sources.mcp.handshake import Session, shake_hands
from trunkline.sources.mcp.source import McpSource, Tuning
from trunkline.sources.mcp.stdio_lane import open_stdio_lane
from trunkline.sources.process_limits import limits_of
from trunkline.sources.sections import McpStdioSection


def build(name: str, section: McpStdioSection, parts: Parts) -> Source:
    inherit = cast(tuple[str, ...] | Literal["all"], section.inherit_env)
    environment = child_environment(parts.environ, extra=section.env, inherit=inherit)

    async def open_session(era: Era | None, capabilities: bytes, count: Callable[[str], None]) -> Session:
        async with parts.starts.turn():
            lane = await open_stdio_lane(
                name,
                count,
                parts.children,
                [section.command, *section.args],
                env=environment,
                cwd=None if section.cwd is None else str(section.cwd),
                limits=limits_of(section.limits),
                limit_bytes=parts.message_bytes,
                redact=parts.redact,
            )
            try:
                return await shake_hands(lane, era, capabilities, section.start_timeout)
            except BaseException:
                await lane.close()
                raise

    tuning = Tuning(
        shared=section.sessions == "shared",
        max_sessions=parts.sessions_per_source,
        session_idle_s=parts.session_idle_s,
    )
    return McpSource(name, open_session, tuning)


KIND = SourceKind(section=McpStdioSection, build=build)
