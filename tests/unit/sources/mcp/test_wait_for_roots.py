from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.waiting import until
from tests.unit.sources.mcp.memory_session import MemorySession, new_call, session_on

from trunkline.core.call import Call, Failure
from trunkline.core.errors import SOURCE_LOST
from trunkline.core.server_request import ServerRequest
from trunkline.sources.mcp import initialize
from trunkline.sources.mcp.client_sessions import ClientSessions, session_key
from trunkline.sources.mcp.session import UpstreamSession

ROOTS = b'{"roots":{}}'


class Server:
    """It asks for the client's folders as soon as it is greeted, unless it is told not to."""

    def __init__(self, *, asks: bool = True) -> None:
        self.asks = asks
        self.session = MemorySession(self.respond)
        self.session.server_requests.declared = ROOTS

    def respond(self, session: MemorySession, message: dict[str, Any]) -> None:
        if message.get("method") == "ping":
            if self.asks:
                session.say({"id": "q", "method": "roots/list"})
            session.answer(message, {})
        elif message.get("method") == "tools/call":
            session.answer(message, {"content": []})

    async def open(self, capabilities: bytes) -> UpstreamSession:
        return session_on(self.session)


@contextlib.asynccontextmanager
async def client_sessions(server: Server) -> AsyncIterator[ClientSessions]:
    sessions = ClientSessions("s", server.open, max_sessions=3, idle_s=1000.0)
    try:
        yield sessions
    finally:
        await sessions.close()


def call_on(sessions: ClientSessions, capabilities: bytes = ROOTS) -> tuple[Call, list[ServerRequest]]:
    call, asked = new_call(capabilities=capabilities), list[ServerRequest]()
    call.on_server_request = asked.append
    key = session_key(call.caller)
    assert key is not None
    sessions.submit(call, key)
    return call, asked


async def test_the_first_call_waits_until_its_server_has_the_clients_folders() -> None:
    server = Server()
    async with client_sessions(server) as sessions:
        call, asked = call_on(sessions)
        await until(lambda: asked, "the client of the call is asked")
        assert (asked[0].calls, call.phase, server.session.methods()) == ((call,), "queued", ["ping"])
        asked[0].answer(b'{"roots":[]}')
        await until(lambda: call.done, "the call is answered")
        assert server.session.methods() == ["ping", "", "tools/call"]


async def test_a_client_that_never_answers_does_not_hold_its_call_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(initialize, "_MAX_WAIT_S", 0.05)
    async with client_sessions(Server()) as sessions:
        call, _ = call_on(sessions)
        await until(lambda: call.done, "the call is answered")


async def test_a_server_that_asks_nothing_costs_a_ping() -> None:
    server = Server(asks=False)
    async with client_sessions(server) as sessions:
        call, _ = call_on(sessions)
        await until(lambda: call.done, "the call is answered")
        assert server.session.methods() == ["ping", "tools/call"]


async def test_for_a_client_without_folders_there_is_nothing_to_wait_for() -> None:
    server = Server()
    async with client_sessions(server) as sessions:
        call, _ = call_on(sessions, b'{"elicitation":{}}')
        await until(lambda: call.done, "the call is answered")
        assert server.session.methods() == ["tools/call"]


async def test_a_server_that_is_lost_meanwhile_fails_the_call_that_waits() -> None:
    server = Server()
    async with client_sessions(server) as sessions:
        call, asked = call_on(sessions)
        await until(lambda: asked, "the client of the call is asked")
        server.session.lose(server.session.problem(SOURCE_LOST, "exited"))
        await until(lambda: call.done, "the call has failed")
        assert isinstance(call.outcome, Failure) and call.outcome.problem.retryable
        await until(lambda: server.session.closed and not len(sessions), "nothing is left of the session")


async def test_a_client_that_leaves_meanwhile_takes_its_server_along() -> None:
    server = Server()
    async with client_sessions(server) as sessions:
        call, asked = call_on(sessions)
        await until(lambda: asked, "the client of the call is asked")
        sessions.forget("one")
        await until(lambda: server.session.closed, "the server is closed")
        assert call.done
    assert asyncio.all_tasks() == {asyncio.current_task()}
