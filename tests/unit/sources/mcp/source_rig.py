"""An MCP source on servers that exist only as scripted responses."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol

from tests.support.waiting import until
from tests.unit.sources.mcp.memory_session import HELLO, MemorySession, session_on

from trunkline.core.call import Call, Json, Result
from trunkline.core.errors import SOURCE_PROTOCOL, GatewayError, Problem
from trunkline.core.server_request import ServerRequest
from trunkline.core.source import Health
from trunkline.core.tool import Snapshot
from trunkline.protocol.mcp.versions import Era
from trunkline.sources.mcp.session import UpstreamSession
from trunkline.sources.mcp.source import McpSource


class Connects(Protocol):
    sessions: list[MemorySession]

    async def open(self, era: Era | None, capabilities: bytes, count: Callable[[str], None]) -> UpstreamSession: ...


class Server:
    """A server that exists only as what it answers; every connection to it is a session of its own."""

    def __init__(self, era: Era = "legacy") -> None:
        self.era: Era = era
        self.tools = ["a"]
        self.sessions: list[MemorySession] = []
        self.declared: list[bytes] = []
        self.asked_for: list[Era | None] = []
        self.refusals: list[Problem] = []
        self.silent: set[str] = set()
        self.after_list: Callable[[MemorySession], None] | None = None

    async def open(self, era: Era | None, capabilities: bytes, count: Callable[[str], None]) -> UpstreamSession:
        self.asked_for.append(era)
        await asyncio.sleep(0)
        if self.refusals:
            raise GatewayError(self.refusals.pop(0))
        if era not in (None, self.era):
            raise GatewayError(Problem(code=SOURCE_PROTOCOL, message="Server s: speaks another era", source="s"))
        session = MemorySession(self.respond)
        session.server_requests.declared = capabilities
        self.sessions.append(session)
        self.declared.append(capabilities)
        return session_on(session, self.era, HELLO)

    def respond(self, session: MemorySession, message: dict[str, Any]) -> None:
        method = message.get("method", "")
        if method in self.silent or "id" not in message:
            return
        if method == "tools/list":
            session.answer(message, {"tools": [{"name": name} for name in self.tools]})
            if self.after_list is not None:
                self.after_list(session)
        elif method in ("ping", "server/discover"):
            session.answer(message, {})
        elif method == "tools/call":
            session.answer(message, {"session": self.sessions.index(session)})

    def change(self, *tools: str) -> None:
        self.tools = list(tools)
        for session in self.sessions:
            session.say({"method": "notifications/tools/list_changed"})


class Book:
    """A sink that writes everything down, in order."""

    def __init__(self) -> None:
        self.entries: list[Snapshot | Health] = []
        self.for_clients: list[tuple[str, list[str] | None]] = []
        self.asked: list[tuple[str, ServerRequest]] = []
        self.told: list[tuple[str, str, bytes]] = []

    def forward_request(self, session: str, server_request: ServerRequest) -> None:
        self.asked.append((session, server_request))

    def forward_notification(self, session: str, method: str, params: Json) -> None:
        self.told.append((session, method, bytes(params)))

    def publish_for(self, session: str, snapshot: Snapshot | None) -> None:
        names = None if snapshot is None else [tool.name for tool in snapshot.tools]
        self.for_clients.append((session, names))

    def publish(self, snapshot: Snapshot) -> None:
        self.entries.append(snapshot)

    def health(self, health: Health) -> None:
        self.entries.append(health)

    def count(self, counter: str, amount: int = 1) -> None: ...

    @property
    def healths(self) -> list[Health]:
        return [entry for entry in self.entries if isinstance(entry, Health)]

    @property
    def states(self) -> list[str]:
        return [health.state for health in self.healths]

    @property
    def offered(self) -> list[list[str]]:
        return [[tool.name for tool in entry.tools] for entry in self.entries if isinstance(entry, Snapshot)]


@contextlib.asynccontextmanager
async def living(server: Connects, **options: Any) -> AsyncIterator[tuple[McpSource, Book]]:
    """A source at work; afterwards nothing of it is left."""
    defaults: dict[str, Any] = {"shared": False, "max_sessions": 4, "session_idle_s": 1000.0}
    source = McpSource("s", server.open, **{**defaults, **options})
    book = Book()
    before = asyncio.all_tasks()
    life = asyncio.get_running_loop().create_task(source.run(book))
    try:
        yield source, book
    finally:
        life.cancel()
        await asyncio.wait([life])
        left = asyncio.all_tasks() - before
        assert not left, f"still running: {left}"
        assert all(session.closed == 1 for session in server.sessions)


async def ready(book: Book, times: int = 1) -> None:
    await until(lambda: book.states.count("ready") >= times, f"ready for the {times}. time")


def submitted(source: McpSource, call: Call) -> Call:
    source.submit(call)
    return call


def session_index(call: Call) -> int:
    assert isinstance(call.outcome, Result), call.outcome
    return int(bytes(call.outcome.raw).split(b":")[1].rstrip(b"}"))


@contextlib.asynccontextmanager
async def ready_source(server: Connects, **options: Any) -> AsyncIterator[McpSource]:
    async with living(server, **options) as (source, book):
        await ready(book)
        yield source
