"""What worked for a client that has left is freed at once.

As a cycle it would stay until the collector comes by, which is seldom: each session and crash would cost memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from tests.support.servers import HttpFaults, StdioFaults
from tests.support.waiting import at_most, until
from tests.unit.sources.mcp.memory_session import new_call
from tests.unit.sources.mcp.source_rig import Book, ready, submitted

from trunkline.protocol.mcp.versions import Era
from trunkline.runtime.children import Children
from trunkline.runtime.http_client import HttpPool, HttpTarget
from trunkline.sources.mcp.http_session import HttpUpstreamSession
from trunkline.sources.mcp.initialize import initialize_session
from trunkline.sources.mcp.session import UpstreamSession
from trunkline.sources.mcp.source import McpSource
from trunkline.sources.mcp.stdio import open_stdio_session

LIMIT = 1_000_000
Sessions = list[weakref.ref[UpstreamSession]]


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class Opener:
    """Opens sessions with a real server and keeps none of them alive."""

    def __init__(self, open_session: Callable[[], object]) -> None:
        self._open_session = open_session
        self.sessions: Sessions = []

    async def open(self, era: Era | None, capabilities: bytes, count: Callable[[str], None]) -> UpstreamSession:
        opened = self._open_session()
        session = opened if isinstance(opened, UpstreamSession) else await opened  # type: ignore[misc]
        assert isinstance(session, UpstreamSession)
        self.sessions.append(weakref.ref(session))
        return await initialize_session(session, era, capabilities, at_most(20))


@contextlib.asynccontextmanager
async def at_work(opener: Opener) -> AsyncIterator[McpSource]:
    source, book = McpSource("s", opener.open, shared=False, max_sessions=4, session_idle_s=1000.0), Book()
    life = asyncio.get_running_loop().create_task(source.run(book))
    try:
        await ready(book)
        yield source
    finally:
        life.cancel()
        await asyncio.wait([life])


async def is_freed_with_its_client(opener: Opener) -> None:
    async with at_work(opener) as source:
        for session in ("one", "two"):
            call = submitted(source, new_call(session))
            await until(lambda call=call: call.done, "the client has a session of its own")
            del call
            source.forget(session)
            await until(lambda: opener.sessions[-1]() is None, "the session is freed")
        assert [session() is None for session in opener.sessions] == [False, True, True]


@pytest.mark.usefixtures("no_collector")
async def test_a_process_that_worked_for_a_client_that_left_is_freed(tmp_path: Path) -> None:
    children, command = Children(), StdioFaults(tmp_path, "s").command

    def open_session() -> object:
        return open_stdio_session("s", str, children, command, env={}, cwd=None, limit_bytes=LIMIT, redact=str)

    try:
        await is_freed_with_its_client(Opener(open_session))
    finally:
        await children.close()


@pytest.mark.usefixtures("no_collector")
async def test_a_session_over_http_that_was_for_a_client_that_left_is_freed(tmp_path: Path) -> None:
    with HttpFaults(tmp_path, "h") as server:

        def open_session() -> object:
            pool = HttpPool(HttpTarget(server.url), connect_timeout_s=at_most(10), limit_bytes=LIMIT)
            return HttpUpstreamSession("s", str, pool, {})

        await is_freed_with_its_client(Opener(open_session))
