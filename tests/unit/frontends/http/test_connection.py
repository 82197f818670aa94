from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.http_wire import Reply, Wire, request_bytes
from tests.support.waiting import until
from tests.unit.frontends.rig import House, Loop, both_loops, house, run_on
from tests.unit.router.fakes import OK

GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


def post(message: dict[str, Any], **headers: str) -> bytes:
    given = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **headers}
    return request_bytes("POST", "/mcp", given, json.dumps({"jsonrpc": "2.0", **message}).encode())


async def opened(here: House) -> dict[str, str]:
    """The header of a session."""
    client = await here.client().open()
    await client.close()
    assert client.session is not None
    return {"Mcp-Session-Id": client.session}


def call(number: int, session: dict[str, str], tool: str = "s_t") -> bytes:
    return post({"id": number, "method": "tools/call", "params": {"name": tool, "arguments": {}}}, **session)


def ids(replies: list[Reply]) -> list[Any]:
    return [json.loads(reply.body)["id"] for reply in replies]


# Order ---------------------------------------------------------------------------------------------------------------


@both_loops
def test_pipelined_requests_are_answered_in_their_order(loop_factory: Loop, tmp_path: Path) -> None:
    async def main() -> None:
        async with house(tmp_path) as here, await Wire.connect(here.port) as wire:
            session = await opened(here)
            await wire.send(b"".join(call(number, session) for number in range(1, 6)) + GET)
            for number in range(5):
                await until(lambda number=number: len(here.source.held) == number + 1, "the next is on its way")
                assert len(here.source.held) == number + 1, "one at a time"
                here.source.held[number].finish(OK)
            replies = [await wire.read() for _ in range(6)]
            assert ids(replies[:5]) == [1, 2, 3, 4, 5]
            assert replies[5].body == b'{"status":"ok"}'

    run_on(loop_factory, main())


@both_loops
def test_any_number_of_pipelined_requests_is_answered(loop_factory: Loop, tmp_path: Path) -> None:
    async def main() -> None:
        async with house(tmp_path) as here, await Wire.connect(here.port) as wire:
            sending = asyncio.ensure_future(wire.send(GET * 1000))
            for _ in range(1000):
                assert (await wire.read()).status == 200
            await sending

    run_on(loop_factory, main())


@both_loops
@pytest.mark.parametrize("waiting", [1, 15, 16, 40])
def test_a_client_that_leaves_is_noticed_however_many_of_its_requests_wait(
    loop_factory: Loop, tmp_path: Path, waiting: int
) -> None:
    async def main() -> None:
        async with house(tmp_path) as here:
            session = await opened(here)
            async with await Wire.connect(here.port) as patient, await Wire.connect(here.port) as leaving:
                for number, wire in enumerate((leaving, patient)):
                    await wire.send(call(number, session) + GET * waiting)
                await until(lambda: len(here.source.held) == 2, "both calls are on their way")
                await leaving.close()
                await until(lambda: len(here.http_server) == 1, "the one that left is noticed")
                for held in here.source.held:
                    held.finish(OK)
                for _ in range(1 + waiting):
                    assert (await patient.read()).status == 200

    run_on(loop_factory, main())


@both_loops
def test_a_body_in_single_bytes_is_not_read_in_one_go(loop_factory: Loop, tmp_path: Path) -> None:
    async def main() -> None:
        async with house(tmp_path) as here, await Wire.connect(here.port) as wire:
            head = request_bytes("POST", "/mcp", {"Content-Type": "application/json", "Transfer-Encoding": "chunked"})
            await wire.send(head)
            await until(
                lambda: any(one._parser.mid_message for one in here.http_server._connections), "its head was read"
            )
            (connection,) = here.http_server._connections
            connection.data_received(b"1\r\n \r\n" * 40_000)
            assert connection._fair_reader is not None
            assert connection._fair_reader.waiting, "others have their turn"
            connection.data_received(b"0\r\n\r\n" + GET)
            assert [(await wire.read()).status for _ in range(2)] == [400, 200], "and all of it is read in the end"

    run_on(loop_factory, main())


@both_loops
def test_a_connection_is_kept_for_the_next_request(loop_factory: Loop, tmp_path: Path) -> None:
    async def main() -> None:
        async with house(tmp_path) as here, await Wire.connect(here.port) as wire:
            for _ in range(5):
                reply = await wire.ask(GET)
                assert reply.status == 200
                assert "connection" not in reply.headers
            assert len(here.http_server) == 1

    run_on(loop_factory, main())


@both_loops
def test_a_client_that_wants_no_more_is_closed(loop_factory: Loop, tmp_path: Path) -> None:
    async def main() -> None:
        async with house(tmp_path) as here:
            for last in (GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), GET.replace(b"/1.1", b"/1.0")):
                async with await Wire.connect(here.port) as wire:
                    reply = await wire.ask(last)
                    assert (reply.status, reply.headers["connection"]) == (200, "close"), last
                    assert await wire.read_to_end() == b"", last

    run_on(loop_factory, main())


@both_loops
def test_http_1_0_keeps_its_connection_only_where_it_asks_and_is_told(loop_factory: Loop, tmp_path: Path) -> None:
    async def main() -> None:
        async with house(tmp_path) as here, await Wire.connect(here.port) as wire:
            session = await opened(here)
            asked = {"Connection": "keep-alive", **session}
            for number in range(3):
                request = post({"id": number, "method": "ping"}, **asked).replace(b"HTTP/1.1", b"HTTP/1.0")
                reply = await wire.ask(request)
                assert reply.headers["connection"] == "keep-alive"
                assert json.loads(reply.body)["id"] == number
            keeping = GET.replace(b"HTTP/1.1", b"HTTP/1.0").replace(b"\r\n\r\n", b"\r\nConnection: keep-alive\r\n\r\n")
            assert (await wire.ask(keeping)).headers["connection"] == "keep-alive"
            assert (await wire.ask(GET.replace(b"HTTP/1.1", b"HTTP/1.0"))).headers["connection"] == "close"

    run_on(loop_factory, main())


@both_loops
def test_requests_may_come_byte_by_byte(loop_factory: Loop, tmp_path: Path) -> None:
    async def main() -> None:
        async with house(tmp_path) as here, await Wire.connect(here.port) as wire:
            session = await opened(here)
            for byte in post({"id": 1, "method": "ping"}, **session) + GET:
                await wire.send(bytes([byte]))
            assert ids([await wire.read()]) == [1]
            assert (await wire.read()).status == 200

    run_on(loop_factory, main())


# What cannot be read -------------------------------------------------------------------------------------------------


UNREADABLE = [
    (b"nonsense\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\n\r\n", 400),
    (b"GET / HTTP/2.0\r\nHost: localhost\r\n\r\n", 505),
    (b"GET http://localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 10_000 + b"\r\n\r\n", 431),
    (b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n", 413),
    (b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
]


@pytest.mark.law
@both_loops
def test_a_request_that_cannot_be_read_is_answered_and_ends_the_connection(loop_factory: Loop, tmp_path: Path) -> None:
    async def main() -> None:
        async with house(tmp_path) as here:
            for bad, status in UNREADABLE:
                async with await Wire.connect(here.port) as wire:
                    reply = await wire.ask(bad + GET)
                    assert (reply.status, reply.headers["connection"]) == (status, "close"), bad
                    assert json.loads(reply.body)["error"]["data"]["executed"] == "no", bad
                    assert await wire.read_to_end() == b"", bad

    run_on(loop_factory, main())


@pytest.mark.law
@both_loops
def test_nonsense_behind_good_requests_is_answered_after_them(loop_factory: Loop, tmp_path: Path) -> None:
    """Or the client would take the refusal for the answer to its call, and believe that it did not run."""

    async def main() -> None:
        async with house(tmp_path) as here:
            session = await opened(here)
            for waiting in range(2):
                async with await Wire.connect(here.port) as wire:
                    await wire.send(call(1, session) + call(2, session) * waiting + b"nonsense\r\n\r\n")
                    for number in range(waiting + 1):
                        await until(lambda: here.source.held, "the call is on its way")
                        here.source.held.pop().finish(OK)
                        answer = json.loads((await wire.read()).body)
                        assert (answer["id"], "result" in answer) == (number + 1, True), waiting
                    assert (await wire.read()).status == 400, waiting
                    assert await wire.read_to_end() == b"", waiting

    run_on(loop_factory, main())


@both_loops
def test_expect_continue_is_answered_before_the_body(loop_factory: Loop, tmp_path: Path) -> None:
    async def main() -> None:
        async with house(tmp_path) as here, await Wire.connect(here.port) as wire:
            session = await opened(here)
            head, _, body = post({"id": 1, "method": "ping"}, Expect="100-continue", **session).partition(b"\r\n\r\n")
            await wire.send(head + b"\r\n\r\n")
            assert await wire.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            assert ids([await wire.ask(body)]) == [1]

    run_on(loop_factory, main())


# Clients that leave, or do not ---------------------------------------------------------------------------------------


@both_loops
def test_a_legacy_client_that_leaves_does_not_cancel_its_call(loop_factory: Loop, tmp_path: Path) -> None:
    async def main() -> None:
        async with house(tmp_path) as here:
            session = await opened(here)
            wire = await Wire.connect(here.port)
            await wire.send(call(1, session))
            await until(lambda: here.source.held, "the call is on its way")
            await wire.abort()
            await until(lambda: len(here.http_server) == 0, "the connection is gone")
            assert not here.source.held[0].done
            here.source.held[0].finish(OK)

    run_on(loop_factory, main())


@both_loops
def test_a_modern_client_that_leaves_cancels_its_call(loop_factory: Loop, tmp_path: Path) -> None:
    async def main() -> None:
        async with house(tmp_path) as here:
            client = await here.modern().open()
            async with client.start_call("s_t", {}):
                await until(lambda: here.source.held, "the call is on its way")
            await until(lambda: here.source.held[0].done, "it is cancelled")
            assert here.rig.router.in_flight == 0

    run_on(loop_factory, main())


@both_loops
def test_more_connections_than_allowed_are_closed_at_once(loop_factory: Loop, tmp_path: Path) -> None:
    async def main() -> None:
        async with house(tmp_path, connections=2) as here:
            replay_budget = [await Wire.connect(here.port) for _ in range(2)]
            for wire in replay_budget:
                assert (await wire.ask(GET)).status == 200
            surplus = await Wire.connect(here.port)
            with contextlib.suppress(ConnectionError):
                await surplus.send(GET)
            assert await surplus.read_to_end() == b"", "it is not served"
            await surplus.close()
            assert (await replay_budget[0].ask(GET)).status == 200
            await replay_budget[0].close()
            await until(lambda: len(here.http_server) == 1, "a place is free")
            async with await Wire.connect(here.port) as wire:
                assert (await wire.ask(GET)).status == 200
            await replay_budget[1].close()

    run_on(loop_factory, main())


@both_loops
def test_a_slow_sender_is_told_and_cut(loop_factory: Loop, tmp_path: Path) -> None:
    async def main() -> None:
        async with house(tmp_path) as here:
            for start in (b"GET / HT", b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nhalf"):
                async with await Wire.connect(here.port) as wire:
                    assert (await wire.ask(GET + start)).status == 200
                    here.later(16)
                    assert (await wire.read()).status == 408, start
                    assert await wire.read_to_end() == b""

    run_on(loop_factory, main())


@both_loops
def test_a_silent_or_idle_connection_is_closed(loop_factory: Loop, tmp_path: Path) -> None:
    async def main() -> None:
        async with house(tmp_path) as here, await Wire.connect(here.port) as silent:
            await until(lambda: len(here.http_server) == 1, "it is connected")
            here.later(16)
            assert await silent.read_to_end() == b""
            async with await Wire.connect(here.port) as idle:
                assert (await idle.ask(GET)).status == 200
                here.later(16)
                assert (await idle.ask(GET)).status == 200, "who has asked something may take longer"
                here.later(76)
                assert await idle.read_to_end() == b""

    run_on(loop_factory, main())


@both_loops
def test_a_quiet_call_becomes_a_stream_that_is_kept_alive(loop_factory: Loop, tmp_path: Path) -> None:
    async def main() -> None:
        async with house(tmp_path) as here, await Wire.connect(here.port) as wire:
            session = await opened(here)
            await wire.send(call(1, session))
            await until(lambda: here.source.held, "the call is on its way")
            here.later(11)
            reply = await wire.read_head()
            assert reply.streamed
            parts = wire.body_parts(reply)
            for _ in range(2):
                here.later(16)
                assert await anext(parts) == b":\n\n"
            here.source.held[0].finish(OK)
            rest = b"".join([part async for part in parts])
            assert b'data: {"jsonrpc":"2.0","id":1,"result":{"content":[]}}\n\n' in rest
            assert (await wire.ask(GET)).status == 200, "the connection is still good"

    run_on(loop_factory, main())


# The end -------------------------------------------------------------------------------------------------------------


@both_loops
def test_closing_the_http_server_ends_streams_in_order_and_drops_nobody_silently(
    loop_factory: Loop, tmp_path: Path
) -> None:
    async def main() -> None:
        async with house(tmp_path) as here:
            client = await here.client().open()
            async with client.listen() as stream, await Wire.connect(here.port) as idle:
                await idle.ask(GET)
                closing = asyncio.ensure_future(here.http_server.close())
                assert [event async for event in stream] == []
                assert await idle.read_to_end() == b""
                await closing
            await client.close()

    run_on(loop_factory, main())


# What is kept ---------------------------------------------------------------------------------------------------------


@both_loops
def test_nothing_is_kept_of_the_requests_of_those_who_were_not_let_in(loop_factory: Loop, tmp_path: Path) -> None:
    async def main() -> None:
        token = {"Authorization": "Bearer s3cret"}
        cases = (
            (request_bytes("GET", "/metrics", token), 200, 1),
            (request_bytes("GET", "/mcp", token), 400, 1),
            (request_bytes("GET", "/metrics"), 401, 0),
            (request_bytes("GET", "/mcp"), 401, 0),
            (request_bytes("GET", "/healthz"), 200, 0),
            (request_bytes("GET", "/register"), 404, 0),
            (request_bytes("GET", "/metrics", token, host="evil.example"), 421, 0),
            (request_bytes("GET", "/mcp", {**token, "Origin": "http://evil.example"}), 403, 0),
        )
        async with house(tmp_path, token="s3cret") as here:
            for request, status, cached in cases:
                async with await Wire.connect(here.port) as wire:
                    for _ in range(3):
                        assert (await wire.ask(request)).status == status
                    (connection,) = here.http_server._connections
                    assert len(connection._parser._cached_heads) == cached, request
                await until(lambda: len(here.http_server) == 0, "it is closed")

    run_on(loop_factory, main())


# Rests ---------------------------------------------------------------------------------------------------------------


class Clock:
    """A loop's clock that a test moves; it keeps how long somebody wanted to wait."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.waits: list[float] = []

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, then: Callable[[], None]) -> asyncio.TimerHandle:
        self.waits.append(seconds)
        self.now += seconds
        return asyncio.get_running_loop().call_later(0, then)


@both_loops
@pytest.mark.parametrize(
    ("pause_s", "rests"),
    [
        (1.0, [0.05] * 6),
        (0.95, [0.05] * 6),
        (0.5, [0.05, 0.1, 0.2, 0.4, 0.8, 1.0]),
        (0.0, [0.05, 0.1, 0.2, 0.4, 0.8, 1.0]),
    ],
)
def test_only_who_comes_back_sooner_than_it_was_told_rests_longer_each_time(
    loop_factory: Loop, tmp_path: Path, pause_s: float, rests: list[float]
) -> None:
    async def main() -> None:
        async with house(tmp_path) as here, await Wire.connect(here.port) as wire:
            await wire.ask(GET)
            (connection,) = here.http_server._connections
            clock: Any = Clock()
            loop, connection._loop = connection._loop, clock
            for _ in rests:
                connection.back_off()
                await until(lambda: connection._backoff_timer is None, "it is read again")
                clock.now += pause_s
            assert clock.waits == pytest.approx(rests)
            connection._loop = loop

    run_on(loop_factory, main())
