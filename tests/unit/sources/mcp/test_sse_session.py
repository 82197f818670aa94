from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.support.ports import free_port
from tests.support.waiting import at_most, until
from tests.unit.runtime.scripted_server import Peer, Scripted, both_loops, http, run_on
from tests.unit.sources.mcp.memory_session import new_call

from trunkline.core.call import Call, Failure, Result
from trunkline.core.errors import (
    SOURCE_AUTH_REQUIRED,
    SOURCE_LOST,
    SOURCE_PROTOCOL,
    SOURCE_START_FAILED,
    Code,
    GatewayError,
    Problem,
)
from trunkline.runtime.http_client import HttpPool, HttpTarget
from trunkline.sources.mcp import http as http_kind
from trunkline.sources.mcp.http import SseUpstreamSession

Loop = Callable[[], asyncio.AbstractEventLoop]
LIMIT = 4096
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


class OldServer(Scripted):
    """HTTP+SSE as of 2024-11-05: answers go to the one stream. What differs is set before it starts."""

    def __init__(self, endpoint: str = "/messages?session=1", *, respond: bool = True) -> None:
        super().__init__(self.serve)
        self.endpoint = endpoint
        self.respond = respond
        self.stream: Peer | None = None
        self.messages: list[Any] = []
        self.post_status = 202

    async def serve(self, peer: Peer) -> None:
        request = await peer.request()
        if request.startswith(b"GET"):
            self.stream = peer
            await peer.send(STREAM + f"event: endpoint\ndata: {self.endpoint}\n\n".encode())
            await peer.wait_closed()
            return
        while True:
            message = json.loads(request.partition(b"\r\n\r\n")[2])
            self.messages.append(message)
            await peer.send(http(b"", self.post_status))
            if self.respond and "id" in message and self.stream is not None:
                await self.say({"id": message["id"], "result": {"n": message["id"]}})
            request = await peer.request()

    async def say(self, message: dict[str, Any]) -> None:
        assert self.stream is not None
        await self.stream.send(b"event: message\ndata: %b\n\n" % json.dumps({"jsonrpc": "2.0", **message}).encode())

    async def __aenter__(self) -> OldServer:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
        assert not self.failures, self.failures


@contextlib.asynccontextmanager
async def session_to(url: str, **headers: str) -> AsyncIterator[SseUpstreamSession]:
    session = SseUpstreamSession(
        "s", lambda _: None, HttpPool(HttpTarget(url), connect_timeout_s=at_most(10), limit_bytes=LIMIT), headers
    )
    try:
        yield session
    finally:
        await session.close()


def sent(session: SseUpstreamSession) -> Call:
    call = new_call()
    session.send(call)
    return call


async def failed(call: Call) -> Problem:
    await until(lambda: call.done, "it is answered")
    assert isinstance(call.outcome, Failure), call.outcome
    return call.outcome.problem


async def refusal(session: SseUpstreamSession, timeout_s: float = at_most(10)) -> Problem:
    with pytest.raises(GatewayError) as refused:
        await session.connect(timeout_s)
    assert refused.value.problem.source == "s"
    return refused.value.problem


@both_loops
def test_messages_are_posted_to_the_endpoint_and_answered_on_the_stream(loop_factory: Loop) -> None:
    async def main() -> None:
        async with OldServer() as server, session_to(server.url, Authorization="Bearer x") as session:
            await session.connect(at_most(10))
            calls = [sent(session) for _ in range(10)]
            for call in calls:
                await until(lambda call=call: call.done, "it is answered")
                assert isinstance(call.outcome, Result)
                assert json.loads(bytes(call.outcome.raw)) == {"n": call.upstream_id}
            get, post = server.requests[0], next(r for r in server.requests if r.startswith(b"POST"))
            assert get.startswith(b"GET /mcp HTTP/1.1\r\n")
            assert b"accept: text/event-stream\r\n" in get
            assert post.startswith(b"POST /messages?session=1 HTTP/1.1\r\n")
            assert b"Authorization: Bearer x\r\n" in get
            assert b"Authorization: Bearer x\r\n" in post

    run_on(loop_factory, main())


@both_loops
@pytest.mark.parametrize(
    ("endpoint", "target"),
    [
        ("messages", b"/messages"),
        ("/a/../messages", b"/messages"),
        ("?session=2", b"/mcp?session=2"),
        ("SAME/deep?x=y&z", b"/deep?x=y&z"),
    ],
)
def test_an_endpoint_is_read_as_a_link_from_the_stream(loop_factory: Loop, endpoint: str, target: bytes) -> None:
    async def main() -> None:
        server = OldServer()
        async with server, session_to(server.url) as session:
            server.endpoint = endpoint.replace("SAME", f"http://127.0.0.1:{server.port}")
            await session.connect(at_most(10))
            sent(session)
            await until(lambda: server.messages, "it arrived")
            assert any(request.startswith(b"POST %b HTTP/1.1" % target) for request in server.requests)

    run_on(loop_factory, main())


@pytest.mark.law
@both_loops
@pytest.mark.parametrize(
    "endpoint",
    [
        "http://localhost:PORT/messages",
        "https://127.0.0.1:PORT/messages",
        "http://127.0.0.1:1/messages",
        "//evil.example/messages",
        "http://evil.example/messages",
        "http://127.0.0.1:PORT@evil.example/messages",
    ],
)
def test_an_endpoint_of_another_origin_is_refused_and_sees_nothing_of_us(loop_factory: Loop, endpoint: str) -> None:
    async def main() -> None:
        server = OldServer()
        async with server, session_to(server.url, Authorization="Bearer x") as session:
            server.endpoint = endpoint.replace("PORT", str(server.port))
            problem = await refusal(session)
            assert problem.code is SOURCE_PROTOCOL
            assert "another origin" in problem.message
            assert server.messages == []

    run_on(loop_factory, main())


@both_loops
@pytest.mark.parametrize(
    "endpoint",
    ["http://[::1/x", "http://127.0.0.1:99999/x", "/with space", "/ünïcode", "/x\x01y", "http://127.0.0.1:x/"],
)
def test_an_endpoint_that_is_no_link_is_a_problem_of_the_server(loop_factory: Loop, endpoint: str) -> None:
    async def main() -> None:
        async with OldServer(endpoint) as server, session_to(server.url) as session:
            assert (await refusal(session)).code is SOURCE_PROTOCOL

    run_on(loop_factory, main())


@both_loops
@pytest.mark.parametrize(
    ("answer", "code", "says"),
    [
        (http(b"", 401), SOURCE_AUTH_REQUIRED, "401"),
        (http(b"", 404), SOURCE_LOST, "404"),
        (http(b"", 307, Location="/x"), SOURCE_LOST, "307"),
        (STREAM, SOURCE_LOST, "ended"),
        (STREAM + b"event: endpoint\ndata: " + b"x" * 5000, SOURCE_LOST, "large"),
        (b"nonsense\r\n\r\n", SOURCE_LOST, ""),
    ],
)
def test_a_stream_that_is_none_fails_at_once_and_says_why(
    loop_factory: Loop, answer: bytes, code: Code, says: str
) -> None:
    async def main() -> None:
        async def script(peer: Peer) -> None:
            await peer.answer(answer)

        server = Scripted(script)
        await server.start()
        async with session_to(server.url) as session:
            problem = await refusal(session)
            assert problem.code is code
            assert says in problem.message
        await server.stop()

    run_on(loop_factory, main())


@both_loops
def test_a_server_that_names_no_endpoint_fails_at_the_deadline(loop_factory: Loop) -> None:
    async def main() -> None:
        async def script(peer: Peer) -> None:
            await peer.answer(STREAM)
            await peer.wait_closed()

        server = Scripted(script)
        await server.start()
        async with session_to(server.url) as session:
            problem = await refusal(session, 0.1)
            assert problem.code is SOURCE_START_FAILED
            assert "endpoint" in problem.message
        await server.stop()

    run_on(loop_factory, main())


@both_loops
def test_a_server_that_is_not_there_fails_at_once(loop_factory: Loop) -> None:
    async def main() -> None:
        async with session_to(f"http://127.0.0.1:{free_port()}/sse") as session:
            assert "cannot connect" in (await refusal(session)).message

    run_on(loop_factory, main())


@both_loops
def test_the_end_of_the_stream_is_the_end_of_everything_in_flight(loop_factory: Loop) -> None:
    async def main() -> None:
        async with OldServer(respond=False) as server, session_to(server.url) as session:
            await session.connect(at_most(10))
            call = sent(session)
            await until(lambda: server.messages, "it arrived")
            assert server.stream is not None
            await server.stream.reset()
            problem = await failed(call)
            assert (problem.code, problem.executed) == (SOURCE_LOST, "unknown")
            assert not session.usable

    run_on(loop_factory, main())


@both_loops
def test_a_message_that_is_refused_fails_that_call_only(loop_factory: Loop) -> None:
    async def main() -> None:
        async with OldServer(respond=False) as server, session_to(server.url) as session:
            await session.connect(at_most(10))
            waiting = sent(session)
            await until(lambda: server.messages, "it arrived")
            server.post_status = 400
            problem = await failed(sent(session))
            assert (problem.code, problem.executed) == (SOURCE_PROTOCOL, "unknown")
            assert "400" in problem.message
            assert session.usable
            await server.say({"id": waiting.upstream_id, "result": {}})
            await until(lambda: waiting.done, "the other is answered")
            assert isinstance(waiting.outcome, Result)

    run_on(loop_factory, main())


@both_loops
def test_a_call_given_up_is_cancelled_by_a_message(loop_factory: Loop) -> None:
    async def main() -> None:
        async with OldServer(respond=False) as server, session_to(server.url) as session:
            await session.connect(at_most(10))
            call = sent(session)
            await until(lambda: server.messages, "it arrived")
            call.cancel("enough")
            await until(lambda: len(server.messages) == 2, "the server is told")
            assert server.messages[1]["params"] == {"requestId": 1}

    run_on(loop_factory, main())


@both_loops
def test_closing_answers_what_is_in_flight_and_leaves_nothing(loop_factory: Loop) -> None:
    async def main() -> None:
        async with OldServer(respond=False) as server:
            async with session_to(server.url) as session:
                await session.connect(at_most(10))
                call = sent(session)
                await until(lambda: server.messages, "it arrived")
            assert (await failed(call)).executed == "unknown"

    run_on(loop_factory, main())


@pytest.mark.slow
@both_loops
def test_a_message_that_is_never_accepted_keeps_its_connection_only_while_someone_waits(
    loop_factory: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_kind, "_ACCEPT_S", at_most(1))

    class Silent(OldServer):
        async def serve(self, peer: Peer) -> None:
            request = await peer.request()
            if request.startswith(b"GET"):
                self.stream = peer
                await peer.send(STREAM + b"event: endpoint\ndata: /messages\n\n")
            else:
                self.messages.append(json.loads(request.partition(b"\r\n\r\n")[2]))
            await peer.wait_closed()

    async def main() -> None:
        async with Silent() as server, session_to(server.url) as session:
            await session.connect(at_most(10))
            session.notify("notifications/initialized")
            call = sent(session)
            await until(lambda: len(server.messages) == 2, "both are on their way")
            await until(lambda: server.open == 2, "the notification's connection is closed")
            assert not call.done
            await server.say({"id": server.messages[-1].get("id", 1), "result": {}})
            await until(lambda: call.done, "the call is answered")
            await until(lambda: server.open == 1, "and its connection closed")

    run_on(loop_factory, main())
