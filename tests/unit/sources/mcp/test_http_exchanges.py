from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.waiting import until
from tests.unit.runtime.scripted_server import Peer, Scripted, both_loops, run_on, scripted
from tests.unit.sources.mcp.test_http_session import (
    event,
    failed,
    http,
    outcome,
    parts,
    result,
    sent,
    session_to,
    stream,
)

from trunkline.core.call import Failure, Result
from trunkline.core.errors import ANSWER_TOO_LARGE, CANCELLED, SOURCE_LOST, SOURCE_PROTOCOL, Problem
from trunkline.sources.mcp import http_exchanges

Loop = Callable[[], asyncio.AbstractEventLoop]
PRIMED = b"id: e1\nretry: 10\ndata:\n\n"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_exchanges, "_MIN_PAUSE_S", 0.01)
    monkeypatch.setattr(http_exchanges, "_PAUSE_S", 0.01)


class Poller:
    """A server that ends the stream of each POST with `begin`, and answers GETs one after the other."""

    def __init__(self, begin: bytes, *gets: Callable[[Any], bytes]) -> None:
        self.begin = begin
        self.gets = list(gets)
        self.message: Any = None

    async def __call__(self, peer: Peer) -> None:
        while True:
            first, _, message = parts(await peer.request())
            if first.startswith("POST"):
                if "id" in message:
                    self.message = message
                    await peer.send(self.begin)
                    if not self.begin.endswith(b"0\r\n\r\n"):
                        return
                else:
                    await peer.send(http(status=202))
            elif self.gets:
                await peer.send(self.gets.pop(0)(self.message))
            else:
                return


def rest(message: Any) -> bytes:
    return stream(event(result(message)))


def gets(server: Scripted) -> list[dict[str, str]]:
    return [parts(request)[1] for request in server.requests if request.startswith(b"GET")]


@both_loops
@pytest.mark.parametrize("whole", [True, False])
def test_an_answer_whose_stream_ended_early_is_fetched_from_the_last_event_on(loop_factory: Loop, whole: bool) -> None:
    async def main() -> None:
        async with scripted(Poller(stream(PRIMED, end=whole), rest)) as server, session_to(server.url) as session:
            session.set_version("2025-11-25", modern=False)
            session.session_id = b"abc"
            assert isinstance(await outcome(sent(session)), Result)
            (headers,) = gets(server)
            assert headers["last-event-id"] == "e1"
            assert headers["mcp-session-id"] == "abc"
            assert headers["accept"] == "text/event-stream"
            await until(lambda: not session._posts, "nothing is left of it")
            assert len([r for r in server.requests if r.startswith(b"POST")]) == 1

    run_on(loop_factory, main())


@both_loops
def test_it_is_asked_for_again_and_again_from_where_it_was(loop_factory: Loop) -> None:
    async def main() -> None:
        nothing = lambda message: stream(b": still busy\n\n")  # noqa: E731
        more = lambda message: stream(b"id: e2\n" + event(b'{"jsonrpc":"2.0","method":"news"}'))  # noqa: E731
        async with scripted(Poller(stream(PRIMED), nothing, more, rest)) as server, session_to(server.url) as session:
            heard: list[str] = []
            session.on_notification = lambda method, params: heard.append(method)
            assert isinstance(await outcome(sent(session)), Result)
            assert [headers["last-event-id"] for headers in gets(server)] == ["e1", "e1", "e2"]
            assert heard == ["news"]

    run_on(loop_factory, main())


@both_loops
def test_the_server_says_how_long_to_wait(loop_factory: Loop) -> None:
    async def main() -> None:
        async with (
            scripted(Poller(stream(b"id: 7\nretry: 300\ndata:\n\n"), rest)) as server,
            session_to(server.url) as session,
        ):
            began = asyncio.get_running_loop().time()
            assert isinstance(await outcome(sent(session)), Result)
            assert asyncio.get_running_loop().time() - began >= 0.29

    run_on(loop_factory, main())


@both_loops
@pytest.mark.parametrize("status", [405, 404, 400, 500])
def test_a_server_that_refuses_the_rest_may_have_run_the_call(loop_factory: Loop, status: int) -> None:
    async def main() -> None:
        refusal = lambda message: http(b"", status)  # noqa: E731
        async with scripted(Poller(stream(PRIMED), refusal)) as server, session_to(server.url) as session:
            problem = await failed(sent(session))
            assert (problem.code, problem.executed) == (SOURCE_LOST, "unknown")
            assert str(status) in problem.message
            assert not session._posts

    run_on(loop_factory, main())


@both_loops
def test_a_server_that_cannot_be_reached_for_the_rest_is_given_up(loop_factory: Loop) -> None:
    async def main() -> None:
        async with scripted(Poller(stream(PRIMED))) as server, session_to(server.url) as session:
            problem = await failed(sent(session))
            assert (problem.code, problem.executed) == (SOURCE_LOST, "unknown")
            assert len(gets(server)) == 3

    run_on(loop_factory, main())


@both_loops
def test_a_stream_without_event_ids_is_not_resumed_nor_one_of_a_modern_server(loop_factory: Loop) -> None:
    async def main() -> None:
        async with scripted(Poller(stream(b"retry: 1\n\n"))) as server, session_to(server.url) as session:
            assert (await failed(sent(session))).code is SOURCE_PROTOCOL
            assert not gets(server)
        async with scripted(Poller(stream(PRIMED))) as server, session_to(server.url) as session:
            session.set_version("2026-07-28", modern=True)
            assert (await failed(sent(session))).code is SOURCE_PROTOCOL
            assert not gets(server)

    run_on(loop_factory, main())


@both_loops
def test_a_call_given_up_is_not_asked_for_any_more(loop_factory: Loop) -> None:
    async def main() -> None:
        slow = stream(b"id: 1\nretry: 60000\ndata:\n\n")
        async with scripted(Poller(slow)) as server, session_to(server.url) as session:
            call = sent(session)
            await until(lambda: type(session._posts.get(call.upstream_id)).__name__ == "Resumption", "it waits")
            call.give_up(Failure(Problem(code=CANCELLED, message="no")))
            assert not session._posts
            await until(lambda: len(server.requests) == 2, "the server is told")
            assert b"notifications/cancelled" in server.requests[1]

    run_on(loop_factory, main())


@both_loops
def test_closing_ends_what_still_waits_for_the_rest(loop_factory: Loop) -> None:
    async def main() -> None:
        slow = stream(b"id: 1\nretry: 60000\ndata:\n\n")
        async with scripted(Poller(slow)) as server:
            async with session_to(server.url) as session:
                call = sent(session)
                await until(lambda: type(session._posts.get(call.upstream_id)).__name__ == "Resumption", "it waits")
            assert (await failed(call)).code is SOURCE_LOST

    run_on(loop_factory, main())


@both_loops
def test_a_rest_that_is_too_large_is_said_so(loop_factory: Loop) -> None:
    async def main() -> None:
        huge = lambda message: stream(event(b"x" * 5000))  # noqa: E731
        async with scripted(Poller(stream(PRIMED), huge)) as server, session_to(server.url) as session:
            assert (await failed(sent(session))).code is ANSWER_TOO_LARGE

    run_on(loop_factory, main())


@both_loops
def test_a_resumed_stream_that_stays_open_is_closed_after_the_answer(
    loop_factory: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_exchanges, "LINGER_S", 0.05)

    async def main() -> None:
        endless = lambda message: stream(event(result(message)), end=False)  # noqa: E731
        async with scripted(Poller(stream(PRIMED), endless)) as server, session_to(server.url) as session:
            assert isinstance(await outcome(sent(session)), Result)
            await until(lambda: not session._posts, "it is closed")

    run_on(loop_factory, main())


@both_loops
def test_events_before_one_that_is_too_large_are_delivered(loop_factory: Loop) -> None:
    heard: list[str] = []

    def whole(message: Any) -> bytes:
        notification = b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'
        return stream(event(notification) + event(result(message)) + event(b"x" * 5000))

    async def main() -> None:
        async with scripted(Poller(stream(PRIMED), whole)) as server, session_to(server.url) as session:
            session.on_notification = lambda method, params: heard.append(method)
            assert isinstance(await outcome(sent(session)), Result)
            await until(lambda: not session._posts, "it is closed")

    run_on(loop_factory, main())
    assert heard == ["notifications/tools/list_changed"]


# The server's own stream ---------------------------------------------------------------------------------------------


@both_loops
def test_the_servers_own_stream_goes_on_after_the_last_event(loop_factory: Loop) -> None:
    async def main() -> None:
        first = lambda message: stream(b"id: a1\nretry: 10\n" + event(b'{"jsonrpc":"2.0","method":"one"}'))  # noqa: E731
        forgotten = lambda message: http(b"", 400)  # noqa: E731
        again = lambda message: stream(event(b'{"jsonrpc":"2.0","method":"two"}'), end=False)  # noqa: E731
        async with scripted(Poller(b"", first, forgotten, again)) as server, session_to(server.url) as session:
            heard: list[str] = []
            session.on_notification = lambda method, params: heard.append(method)
            session.session_id = b"abc"
            session.open_stream()
            session.open_stream()
            await session.wait_for_stream()
            await until(lambda: heard == ["one", "two"], "both are heard")
            assert [headers.get("last-event-id") for headers in gets(server)] == [None, "a1", None]
            assert session.usable
            session.session_id = b""

    run_on(loop_factory, main())


@both_loops
def test_a_call_may_wait_until_the_servers_own_stream_is_open_or_refused(
    loop_factory: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trunkline.sources.mcp.http_session._STREAM_OPENS_S", 60)

    async def main() -> None:
        for answer in (http(b"", 405), stream(b"", end=False)[: -len(b"0\r\n\r\n")]):
            async with (
                scripted(Poller(b"", lambda _, answer=answer: answer)) as server,
                session_to(server.url) as session,
            ):
                await session.wait_for_stream()
                assert not gets(server)
                session.open_stream()
                await session.wait_for_stream()
                assert len(gets(server)) == 1

    run_on(loop_factory, main())
