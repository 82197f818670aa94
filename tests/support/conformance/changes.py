"""Changes while the conformance backend runs, with their notifications: a tool and a prompt that come and go."""

from __future__ import annotations

import contextlib
from typing import Any

import anyio
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, PromptsListChanged, ToolsListChanged
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


class Changes:
    """The state that all requests share. Legacy sessions are told one by one, modern listeners over the bus."""

    def __init__(self) -> None:
        self.bus = InMemorySubscriptionBus()
        self.extra_tool = False
        self.extra_prompt = False
        self._sessions: dict[str, ServerSession] = {}
        self._levels: dict[str, str] = {}
        self._watched: set[tuple[str, str]] = set()

    def meet(self, ctx: ServerRequestContext[Any, Any]) -> None:
        """Every request passes here, so that each session of the legacy era is known."""
        if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            self._sessions[session_of(ctx)] = ctx.session

    def set_level(self, ctx: ServerRequestContext[Any, Any], level: str) -> None:
        self._levels[session_of(ctx)] = level

    def wanted(self, ctx: ServerRequestContext[Any, Any], level: str) -> bool:
        """Whether this session of the legacy era is to see messages of a level."""
        return LEVELS.index(level) >= LEVELS.index(self._levels.get(session_of(ctx), "debug"))

    def watch(self, ctx: ServerRequestContext[Any, Any], uri: str) -> None:
        self._watched.add((session_of(ctx), uri))

    def unwatch(self, ctx: ServerRequestContext[Any, Any], uri: str) -> None:
        self._watched.discard((session_of(ctx), uri))

    async def toggle_tool(self) -> None:
        self.extra_tool = not self.extra_tool
        await self.bus.publish(ToolsListChanged())
        await self._tell(lambda session: session.send_tool_list_changed())

    async def toggle_prompt(self) -> None:
        self.extra_prompt = not self.extra_prompt
        await self.bus.publish(PromptsListChanged())
        await self._tell(lambda session: session.send_prompt_list_changed())

    async def _tell(self, send: Any) -> None:
        for key, session in list(self._sessions.items()):
            notified = False
            with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                await send(session)
                notified = True
            if not notified:
                self._sessions.pop(key, None)


def session_of(ctx: ServerRequestContext[Any, Any]) -> str:
    """The session's id over HTTP; a process has one over stdio."""
    return ctx.request.headers.get("mcp-session-id", "") if ctx.request is not None else ""
