"""What the feature server tells without being asked: lists that changed, resources that were updated.

An old connection is told on its own stream, and only once that stream is there: over HTTP, what is said before the
client has opened it is lost. A new one is told on each `subscriptions/listen` that asked for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import weakref
from typing import Any

from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http import GET_STREAM_KEY
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ToolsListChanged,
)
from tests.support.interactions.asking import MODERN
from tests.support.waiting import at_most

STREAM_PATIENCE_S = at_most(10)
LOG_LEVELS = ("debug", "info", "warning", "error")
_EVENTS = {"tools": ToolsListChanged, "prompts": PromptsListChanged, "resources": ResourcesListChanged}


class Notifier:
    """Who is connected, who watches what, and how they are told."""

    def __init__(self) -> None:
        self.bus = InMemorySubscriptionBus()
        self.server: Server[Any] | None = None
        self._connections: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._watchers: dict[str, weakref.WeakSet[Connection]] = {}

    def met(self, ctx: ServerRequestContext[Any, Any]) -> None:
        """Somebody asked something: if that is an old connection, it can be told things from now on."""
        if ctx.protocol_version != MODERN:
            self._connections.add(connection_of(ctx))

    def watch(self, ctx: ServerRequestContext[Any, Any], uri: str) -> None:
        self._watchers.setdefault(uri, weakref.WeakSet()).add(connection_of(ctx))

    def unwatch(self, ctx: ServerRequestContext[Any, Any], uri: str) -> None:
        self._watchers.get(uri, weakref.WeakSet()).discard(connection_of(ctx))

    async def changed(self, ctx: ServerRequestContext[Any, Any], kind: str) -> None:
        """One of the lists is not what it was: `tools`, `prompts` or `resources`."""
        await self._until_heard(ctx)
        await self.bus.publish(_EVENTS[kind]())
        for connection in list(self._connections):
            with contextlib.suppress(Exception):  # one that has gone must not keep the others from hearing it
                await connection.notify(f"notifications/{kind}/list_changed", None)

    async def updated(self, ctx: ServerRequestContext[Any, Any], uri: str) -> None:
        await self._until_heard(ctx)
        await self.bus.publish(ResourceUpdated(uri=uri))
        for connection in list(self._watchers.get(uri, ())):
            with contextlib.suppress(Exception):
                await connection.send_resource_updated(uri)

    async def _until_heard(self, ctx: ServerRequestContext[Any, Any]) -> None:
        """Wait until the stream of whoever caused this is open, where it must be opened."""
        if ctx.protocol_version == MODERN or ctx.request is None or self.server is None:
            return
        session_id = ctx.request.headers.get("mcp-session-id", "")
        transports = self.server.session_manager._server_instances
        deadline = time.monotonic() + STREAM_PATIENCE_S
        while session_id in transports and GET_STREAM_KEY not in transports[session_id]._request_streams:
            assert time.monotonic() < deadline, "the client never opened the session's own stream"
            await asyncio.sleep(0.01)


class Levels:
    """From which level on an old connection wants to be told things; a new one says so with each request."""

    def __init__(self) -> None:
        self._chosen: weakref.WeakKeyDictionary[Connection, int] = weakref.WeakKeyDictionary()

    def choose(self, ctx: ServerRequestContext[Any, Any], level: str) -> None:
        self._chosen[connection_of(ctx)] = LOG_LEVELS.index(level)

    def least(self, ctx: ServerRequestContext[Any, Any]) -> int:
        return self._chosen.get(connection_of(ctx), 0)


def connection_of(ctx: ServerRequestContext[Any, Any]) -> Connection:
    return ctx.session._connection
