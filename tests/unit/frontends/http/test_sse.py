from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.client import CLIENT_INFO, HttpClient
from tests.support.http_wire import Reply, Wire, fetch, request_bytes
from tests.support.waiting import until
from tests.unit.frontends.rig import House, echo, house

from trunkline.frontends.http.sse import SseSession
from trunkline.protocol.jsonrpc import encode

PING = {"jsonrpc": "2.0", "id": 99, "method": "ping"}
JSON = {"Content-Type": "application/json"}


class SseClient:
    """A raw client of HTTP+SSE."""

    def __init__(self, port: int, headers: dict[str, str] | None = None) -> None:
        self.port = port
        self.headers = headers or {}
        self.endpoint = ""
        self._pending = b""

    async def connect(self) -> SseClient:
        self.wire = await Wire.connect(self.port)
        await self.wire.send(request_bytes("GET", "/sse", {"Accept": "text/event-stream", **self.headers}))
        reply = await self.wire.read_head()
        assert reply.streamed, reply
        self._parts = self.wire.body_parts(reply)
        event, self.endpoint = await self.event()
        assert event == "endpoint"
        return self

    async def event(self) -> tuple[str, str]:
        while b"\n\n" not in self._pending:
            self._pending += await anext(self._parts)
        block, _, self._pending = self._pending.partition(b"\n\n")
        fields = dict(line.split(": ", 1) for line in block.decode().split("\n"))
        return fields.get("event", "message"), fields["data"]

    async def post(self, message: Any) -> Reply:
        body = message if isinstance(message, bytes) else encode(message)
        return await fetch(self.port, "POST", self.endpoint, {**JSON, **self.headers}, body)

    async def ask(self, request_id: Any, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params or {}}
        assert (await self.post(message)).status == 202
        return json.loads((await self.event())[1])

    async def open(self, version: str = "2024-11-05") -> SseClient:
        await self.connect()
        params = {"protocolVersion": version, "capabilities": {}, "clientInfo": CLIENT_INFO}
        assert (await self.ask(0, "initialize", params))["result"]["protocolVersion"] == version
        assert (await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})).status == 202
        return self

    async def __aenter__(self) -> SseClient:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.wire.close()


def only_session(here: House) -> SseSession:
    session = here.session()
    assert isinstance(session, SseSession)
    return session


async def test_the_stream_says_where_to_post_and_answers_come_on_it(tmp_path: Path) -> None:
    async with house(tmp_path) as here, SseClient(here.port) as client:
        here.source.on_submit = echo
        assert client.endpoint.startswith("/messages?session=")
        listed = await client.ask("l", "tools/list")
        assert {tool["name"] for tool in listed["result"]["tools"]} == {"s_t", "s_u"}
        called = await client.ask("c", "tools/call", {"name": "s_t", "arguments": {"x": 1}})
        assert called["result"] == {"name": "t", "arguments": {"x": 1}}
        assert (await client.ask(3, "nonsense"))["error"]["code"] == -32601


async def test_progress_and_notifications_come_on_the_stream(tmp_path: Path) -> None:
    async with house(tmp_path) as here, SseClient(here.port) as client:
        params = {"name": "s_t", "_meta": {"progressToken": "p"}}
        await client.post({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        await until(lambda: here.source.held, "the call is on its way")
        here.source.held[0].notify("notifications/progress", b'{"progressToken":1,"progress":1}')
        assert json.loads((await client.event())[1])["params"]["progressToken"] == "p"
        only_session(here).push(b'{"jsonrpc":"2.0","method":"notifications/x"}')
        assert json.loads((await client.event())[1])["method"] == "notifications/x"


async def test_the_end_of_the_stream_is_the_end_of_the_session(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        client = await SseClient(here.port).open()
        await client.post({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "s_t"}})
        await until(lambda: here.source.held, "the call is on its way")
        session = only_session(here).id
        await client.wire.abort()
        await until(lambda: len(here.sessions) == 0, "its session is over")
        assert here.source.held[0].done
        assert here.source.forgotten == [session]
        assert (await client.post({"jsonrpc": "2.0", "id": 2, "method": "ping"})).status == 404


async def test_a_gateway_that_ends_answers_what_is_in_flight(tmp_path: Path) -> None:
    async with house(tmp_path) as here, SseClient(here.port) as client:
        await client.post({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "s_t"}})
        await until(lambda: here.source.held, "the call is on its way")
        here.server.close()
        answer = json.loads((await client.event())[1])
        assert (answer["id"], answer["error"]["data"]["code"]) == (5, "TL310")


@pytest.mark.law
async def test_a_session_of_one_wire_is_unknown_on_the_other(tmp_path: Path) -> None:
    async with house(tmp_path) as here, SseClient(here.port) as client, HttpClient(here.port) as other:
        ping = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
        session_id = client.endpoint.partition("=")[2]
        accept = {"Accept": "application/json, text/event-stream", "Mcp-Session-Id": session_id}
        assert (await fetch(here.port, "POST", "/mcp", {**JSON, **accept}, ping)).status == 404
        assert (await fetch(here.port, "POST", f"/messages?session={other.session}", JSON, ping)).status == 404


@pytest.mark.law
async def test_a_session_belongs_to_whoever_opened_it(tmp_path: Path) -> None:
    async with house(tmp_path, token="s3cret") as here:
        client = await SseClient(here.port, {"Authorization": "Bearer s3cret"}).open()
        ping = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
        assert (await fetch(here.port, "POST", client.endpoint, JSON, ping)).status == 401
        only_session(here).caller = type(only_session(here).caller)("somebody else")
        assert (await client.post(ping)).status == 404
        await client.wire.close()


@pytest.mark.parametrize(
    ("path", "headers", "body", "status"),
    [
        ("/messages", JSON, b"{}", 400),
        ("/messages?session=x&session=y", JSON, b"{}", 400),
        ("/messages?session=nonsense", JSON, b"{}", 404),
        ("/messages?session=nonsense", {"Content-Type": "text/plain"}, b"{}", 415),
    ],
)
async def test_what_names_no_session_is_refused(
    tmp_path: Path, path: str, headers: dict[str, str], body: bytes, status: int
) -> None:
    async with house(tmp_path) as here:
        reply = await fetch(here.port, "POST", path, headers, body)
        assert reply.status == status
        assert "error" in json.loads(reply.body)


async def test_what_is_no_message_is_refused_by_http(tmp_path: Path) -> None:
    async with house(tmp_path) as here, SseClient(here.port) as client:
        for body, number in ((b"{", -32700), (b"[]", -32600), (b'{"jsonrpc":"2.0"}', -32600)):
            reply = await client.post(body)
            assert (reply.status, json.loads(reply.body)["error"]["code"]) == (400, number)


async def test_streams_count_as_sessions(tmp_path: Path) -> None:
    async with house(tmp_path, sessions=1) as here, SseClient(here.port):
        reply = await fetch(here.port, "GET", "/sse", {"Accept": "text/event-stream"})
        assert reply.status == 429


async def test_streams_whose_clients_never_said_hello_refuse_nobody_and_the_oldest_gives_way(tmp_path: Path) -> None:
    async with house(tmp_path, sessions=4) as here, contextlib.AsyncExitStack() as stack:
        initialized = await stack.enter_async_context(SseClient(here.port))
        silent = [await SseClient(here.port).connect() for _ in range(3)]
        for client in silent:
            stack.push_async_callback(client.wire.close)
        here.sessions.tick(asyncio.get_running_loop().time() + 30)
        await stack.enter_async_context(here.client())  # one at /mcp
        with pytest.raises(StopAsyncIteration):
            await silent[0].event()
        assert (await silent[0].post(PING)).status == 404
        await stack.enter_async_context(SseClient(here.port))  # and one at /sse
        with pytest.raises(StopAsyncIteration):
            await silent[1].event()
        healthz = request_bytes("GET", "/healthz")
        assert (await silent[1].wire.ask(healthz)).status == 200, "the stream has ended, and not the connection"
        assert len(here.sessions) == 4
        for client in (initialized, silent[2]):
            assert (await client.post(PING)).status == 202


async def test_a_client_that_never_says_hello_is_cut(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        client = await SseClient(here.port).connect()
        here.sessions.tick(only_session(here).opened_at + 61)
        assert len(here.sessions) == 0
        with pytest.raises(StopAsyncIteration):
            await client.event()
        await client.wire.close()


async def test_batches_of_2025_03_26_are_answered_together(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        client = await SseClient(here.port).open("2025-03-26")
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        assert (await client.post([ping, {**ping, "id": 2}])).status == 202
        assert [answer["id"] for answer in json.loads((await client.event())[1])] == [1, 2]
        await client.wire.close()
