from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.http_wire import Reply, Wire, request_bytes
from tests.support.waiting import until
from tests.unit.doors.rig import House, Loop, both_loops, house, run_on
from tests.unit.router.fakes import OK

from trunkline.doors.http import connection as connection_module
from trunkline.doors.http import server as server_module

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
            sending = asyncio.ensure_future(wire.send(GET * 2000))
            for _ in range(2000):
                assert (await wire.read()).status == 200
            await sending

    run_on(loop_factory, main())


@both_loops
def test_a_connection_is_kept_for_the_next_request(loop_factory: Loop, tmp_path: Path) -> None:
    async def main() -> None:
        async with house(tmp_path) as here, await Wire.connect(here.port) as wire:
            for _ in range(5):
                reply = await wire.ask(GET)
                assert reply.status == 200
                assert "connection" not in reply.headers
            assert len(here.door) == 1

    run_on(loop_factory, main())


@both_loops
@pytest.mark.parametrize(
    "request_line",
    [
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n",
    ],
    ids=["close", "HTTP/1.0"],
)
def test_a_client_that_wants_no_more_is_closed(loop_factory: Loop, tmp_path: Path, request_line: bytes) -> None:
    async def main() -> None:
        async with house(tmp_path) as here, await Wire.connect(here.port) as wire:
            reply = await wire.ask(request_line)
            assert (reply.status, reply.headers["connection"]) == (200, "close")
            assert await wire.read_to_end() == b""

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


@both_loops
@pytest.mark.parametrize(
    ("bad", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\nHost: localhost\r\n\r\n", 505),
        (b"GET http://localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 10_000 + b"\r\n\r\n", 431),
        (b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n", 413),
        (b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
    ],
    ids=["nonsense", "no host", "HTTP/2", "absolute", "large head", "large body", "two lengths"],
)
def test_a_request_that_cannot_be_read_is_answered_and_ends_the_connection(
    loop_factory: Loop, tmp_path: Path, bad: bytes, status: int
) -> None:
    async def main() -> None:
        async with house(tmp_path) as here, await Wire.connect(here.port) as wire:
            reply = await wire.ask(bad + GET)
            assert reply.status == status
            assert reply.headers["connection"] == "close"
            assert json.loads(reply.body)["error"]["data"]["executed"] == "no"
            assert await wire.read_to_end() == b""

    run_on(loop_factory, main())


@both_loops
@pytest.mark.parametrize("waiting", [0, 1])
def test_nonsense_behind_good_requests_is_answered_after_them(loop_factory: Loop, tmp_path: Path, waiting: int) -> None:
    """Or the client would take the refusal for the answer to its call, and believe that it did not run."""

    async def main() -> None:
        async with house(tmp_path) as here, await Wire.connect(here.port) as wire:
            session = await opened(here)
            await wire.send(call(1, session) + call(2, session) * waiting + b"nonsense\r\n\r\n")
            for number in range(waiting + 1):
                await until(lambda number=number: len(here.source.held) > number, "the call is on its way")
                here.source.held[number].finish(OK)
                reply = await wire.read()
                assert json.loads(reply.body)["id"] == number + 1
                assert "result" in json.loads(reply.body)
            refusal = await wire.read()
            assert refusal.status == 400
            assert await wire.read_to_end() == b""

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
            await until(lambda: len(here.door) == 0, "the connection is gone")
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
            assert here.desk.router.in_flight == 0

    run_on(loop_factory, main())


@both_loops
def test_more_connections_than_allowed_are_closed_at_once(loop_factory: Loop, tmp_path: Path) -> None:
    async def main() -> None:
        async with house(tmp_path, connections=2) as here:
            kept = [await Wire.connect(here.port) for _ in range(2)]
            for wire in kept:
                assert (await wire.ask(GET)).status == 200
            surplus = await Wire.connect(here.port)
            with contextlib.suppress(ConnectionError):
                await surplus.send(GET)
            assert await surplus.read_to_end() == b"", "it is not served"
            await surplus.close()
            assert (await kept[0].ask(GET)).status == 200
            await kept[0].close()
            await until(lambda: len(here.door) == 1, "a place is free")
            async with await Wire.connect(here.port) as wire:
                assert (await wire.ask(GET)).status == 200
            await kept[1].close()

    run_on(loop_factory, main())


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every limit of time is short, and looked at often."""
    for name in ("READ_S", "IDLE_S", "WRITE_S", "LINGER_S"):
        monkeypatch.setattr(connection_module, name, 0.2)
    monkeypatch.setattr(connection_module, "STREAM_AFTER_S", 0.1)
    monkeypatch.setattr(connection_module, "KEEP_ALIVE_S", 0.1)
    monkeypatch.setattr(server_module, "_TICK_S", 0.02)


@both_loops
@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    "start", [b"GET / HT", b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nhalf"]
)
def test_a_slow_sender_is_told_and_cut(loop_factory: Loop, tmp_path: Path, start: bytes) -> None:
    async def main() -> None:
        async with house(tmp_path) as here, await Wire.connect(here.port) as wire:
            reply = await wire.ask(start)
            assert reply.status == 408
            assert await wire.read_to_end() == b""

    run_on(loop_factory, main())


@both_loops
@pytest.mark.usefixtures("impatient")
def test_a_silent_or_idle_connection_is_closed(loop_factory: Loop, tmp_path: Path) -> None:
    async def main() -> None:
        async with house(tmp_path) as here:
            async with await Wire.connect(here.port) as silent:
                assert await silent.read_to_end() == b""
            async with await Wire.connect(here.port) as idle:
                await idle.ask(GET)
                assert await idle.read_to_end() == b""

    run_on(loop_factory, main())


@both_loops
@pytest.mark.usefixtures("impatient")
def test_a_client_that_reads_nothing_is_cut(loop_factory: Loop, tmp_path: Path) -> None:
    async def main() -> None:
        async with house(tmp_path) as here:
            wire = await Wire.connect(here.port)
            wire.writer.transport.pause_reading()  # type: ignore[attr-defined]
            wire.writer.write(GET * 100_000)
            await until(lambda: len(here.door) == 1, "it is connected")
            await until(lambda: len(here.door) == 0, "it is cut")
            await wire.abort()

    run_on(loop_factory, main())


@both_loops
@pytest.mark.usefixtures("impatient")
def test_a_quiet_call_becomes_a_stream_that_is_kept_alive(loop_factory: Loop, tmp_path: Path) -> None:
    async def main() -> None:
        async with house(tmp_path) as here, await Wire.connect(here.port) as wire:
            session = await opened(here)
            await wire.send(call(1, session))
            reply = await wire.read_head()
            assert reply.streamed
            parts = wire.body_parts(reply)
            assert [await anext(parts) for _ in range(2)] == [b":\n\n", b":\n\n"]
            here.source.held[0].finish(OK)
            rest = b"".join([part async for part in parts])
            assert b'data: {"jsonrpc":"2.0","id":1,"result":{"content":[]}}\n\n' in rest
            assert (await wire.ask(GET)).status == 200, "the connection is still good"

    run_on(loop_factory, main())


# The end -------------------------------------------------------------------------------------------------------------


@both_loops
def test_closing_the_door_ends_streams_in_order_and_drops_nobody_silently(loop_factory: Loop, tmp_path: Path) -> None:
    async def main() -> None:
        async with house(tmp_path) as here:
            client = await here.client().open()
            async with client.listen() as stream, await Wire.connect(here.port) as idle:
                await idle.ask(GET)
                closing = asyncio.ensure_future(here.door.close())
                assert [event async for event in stream] == []
                assert await idle.read_to_end() == b""
                await closing
            await client.close()

    run_on(loop_factory, main())
