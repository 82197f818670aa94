"""An HTTP server on a real socket in front of a real router; the source behind it does what the test says."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop
from tests.support.answers import Answer
from tests.support.client import HttpClient, ModernClient
from tests.support.http_wire import Reply
from tests.support.pipes import Pipes
from tests.support.waiting import at_most
from tests.unit.router.fakes import FakeSource, RouterRig

from trunkline.config.settings import GatewaySettings, SearchSettings
from trunkline.core.call import Call, Outcome, Result
from trunkline.core.errors import GatewayError
from trunkline.core.events import LogEvent
from trunkline.frontends.http.access import Access
from trunkline.frontends.http.mcp import McpRoute
from trunkline.frontends.http.operator import OperatorApi
from trunkline.frontends.http.pages import PageHandlers
from trunkline.frontends.http.routes import Handlers
from trunkline.frontends.http.server import HttpOptions, HttpServer
from trunkline.frontends.http.sessions import HttpSessions
from trunkline.frontends.http.sse import SseRoute
from trunkline.frontends.mcp.server import McpServer
from trunkline.frontends.rest.tools_api import ToolsApi
from trunkline.frontends.stdio import transport
from trunkline.frontends.stdio.server import StdioServer
from trunkline.protocol.http1_message import HttpLimits
from trunkline.search.discovery import Discovery

# The first loop of uvloop makes a pipe for signals that stays with the process.
uvloop.new_event_loop().close()

both_loops = pytest.mark.parametrize(
    "loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
Loop = Callable[[], asyncio.AbstractEventLoop]


def run_on(loop_factory: Loop, main: Coroutine[Any, Any, None]) -> None:
    async def in_time() -> None:
        async with asyncio.timeout(at_most(30)):
            await main

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(in_time())


class Operations:
    """Does nothing but keep what it was asked to do; `refusal` is raised instead, once one is set."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.refusal: GatewayError | None = None

    def reload(self) -> dict[str, object]:
        return self._done("reload")

    def add_server(self, body: bytes, *, persist: bool) -> dict[str, object]:
        return self._done("add", body, persist)

    def remove_server(self, name: str) -> dict[str, object]:
        return self._done("remove", name)

    def reconnect(self, name: str) -> dict[str, object]:
        return self._done("reconnect", name)

    def register_service(self, name: str, body: bytes) -> tuple[dict[str, object], bool]:
        return self._done("register", name, body), b"renew" not in body

    def leave_service(self, name: str) -> dict[str, object]:
        return self._done("leave", name)

    def put_session_token(self, session: str, body: bytes) -> dict[str, object]:
        return self._done("put", session, body)

    def drop_session_token(self, session: str) -> dict[str, object]:
        return self._done("drop", session)

    def _done(self, *asked: Any) -> dict[str, object]:
        if self.refusal is not None:
            raise self.refusal
        self.asked.append(asked)
        return {"done": asked[0]}


class House:
    """Everything behind one port. `source` has the tools `t` and `u` under the prefix `s`."""

    def __init__(
        self, folder: Path, *, token: str = "", operator_token: str = "", max_calls: int = 8, **options: Any
    ) -> None:
        self.rig = RouterRig(folder / "definitions", in_flight_per_source=100, queue_per_source=100)
        self.source: FakeSource = self.rig.add("s", "t", "u")
        self.notes: list[LogEvent] = []
        self.rig.events.noted.append(self.notes.append)
        asyncio.get_running_loop().set_exception_handler(self._stray_error)  # as the gateway does
        server_request_timeout_s = options.pop("server_request_timeout_s", 600.0)
        settings = {"disclosure": "all", "search": SearchSettings(semantic=False), "state_dir": folder / "state"}
        self.discovery = Discovery(self.rig.router, GatewaySettings(**settings | options.pop("gateway", {})))
        self.server = McpServer(
            self.rig.router,
            self.discovery,
            max_calls_per_client=max_calls,
            max_calls=options.pop("all_calls", max_calls),
            server_request_timeout_s=server_request_timeout_s,
        )
        self.sessions = HttpSessions(
            self.server, limit=options.pop("sessions", 10), idle_s=options.pop("idle_s", 1000.0)
        )
        self.pages = PageHandlers(self.rig.router, lambda: b"metric 1\n")
        limits = HttpLimits(header_bytes=4096, body_bytes=options.pop("body_bytes", 100_000))
        http_options = HttpOptions(
            host="127.0.0.1",
            port=0,
            limits=limits,
            max_connections=options.pop("connections", 50),
            socket=options.pop("socket", None),
        )
        self.access = Access("127.0.0.1", [], token, operator_token)
        self.operator = Operations()
        operator = OperatorApi(self.rig.router, self.operator)
        tools = ToolsApi(self.rig.router, self.discovery, self.server.calls_of)
        self.handlers = Handlers(self.pages, operator, SseRoute(self.server, self.sessions), tools)
        route = McpRoute(self.server, self.sessions)
        self.http_server = HttpServer(http_options, self.access, route, self.handlers, self.sessions, self.rig.events)
        self.port = 0
        self._later_s = 0.0
        assert not options

    def _stray_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.rig.events.note("error", "internal", f"{context['message']} {context.get('exception')!r}")

    def client(self, **headers: str) -> HttpClient:
        return HttpClient(self.port, headers=headers)

    def modern(self) -> ModernClient:
        return ModernClient(self.port)

    def later(self, seconds: float) -> None:
        """The server looks at its clock, on which so much time has passed meanwhile."""
        self._later_s += seconds
        now = asyncio.get_running_loop().time() + self._later_s
        for connection in list(self.http_server._connections):
            connection.tick(now)

    def break_connections(self) -> None:
        for connection in list(self.http_server._connections):
            connection.abort()

    def session(self, client: HttpClient | None = None) -> Any:
        """The session of a client, or the only one."""
        if client is not None:
            return self.sessions._sessions[str(client.session).encode()]
        (session,) = self.sessions._sessions.values()
        return session


@contextlib.asynccontextmanager
async def house(folder: Path, **options: Any) -> AsyncIterator[House]:
    """Open for business; afterwards closed, and no bug of ours was noted."""
    here = House(folder, **options)
    _, here.port = await here.http_server.start()
    try:
        yield here
    finally:
        here.server.close()
        await here.http_server.close()
        here.rig.router.registry.close()
    assert not [note for note in here.notes if note.event == "internal"], here.notes
    assert len(here.http_server) == 0


@contextlib.asynccontextmanager
async def at_pipe(here: House, *, limit_bytes: int = 100_000) -> AsyncIterator[tuple[Pipes, asyncio.Task[None]]]:
    """A client at a pipe, and the task that serves it; at the end it goes, and no bug of ours was noted."""
    pipes = Pipes()
    await pipes.start()
    stdio_server = StdioServer(
        here.server, limit_bytes=limit_bytes, stdin_fd=pipes.server_stdin, stdout_fd=pipes.server_stdout
    )
    serving = asyncio.get_running_loop().create_task(stdio_server.serve())
    try:
        yield pipes, serving
        pipes.end_input()
        pipes.close_output()  # a client that is gone: what it asked is not waited for
        await asyncio.wait_for(serving, at_most(15))
    finally:
        serving.cancel()
        await asyncio.wait([serving])
        here.server.close()
        here.rig.router.registry.close()
        await pipes.close()
    assert not [note for note in here.notes if note.event == "internal"], here.notes


def wait_for_last_answers(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """How long a client that closed its end of the line is still served."""
    monkeypatch.setattr(transport, "LAST_ANSWERS_S", seconds)


def code(reply: Reply) -> Any:
    """The number of the JSON-RPC error in a reply."""
    return json.loads(reply.body)["error"]["code"]


async def answered(here: House, client: HttpClient, outcome: Outcome, *, tool: str = "s_t", **arguments: Any) -> Answer:
    """A call whose source answers like this."""
    here.source.on_submit = lambda call: call.finish(outcome) and None
    return await client.call(tool, arguments)


def echo(call: Call) -> None:
    call.finish(Result(bytes(call.params)))
