"""Answers larger than what fits between us and a client, and clients that do not take theirs."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from tests.support.http_wire import Wire, request_bytes
from tests.support.waiting import until
from tests.unit.doors.rig import House, Loop, both_loops, house, run_on

from trunkline.core.call import Call, Result
from trunkline.doors.http import connection as connection_module
from trunkline.doors.http import server as server_module

GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
LARGE = Result(b'{"content":"%b"}' % (b"x" * 24_000_000))


async def call_bytes(here: House, *numbers: int) -> bytes:
    """Calls that ask for progress, of one new session."""
    client = await here.client().open()
    await client.close()
    requests: list[bytes] = []
    for number in numbers:
        params = {"name": "s_t", "arguments": {}, "_meta": {"progressToken": "p"}}
        message = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
        requests.append(request_bytes("POST", "/mcp", client.headers, json.dumps(message).encode()))
    return b"".join(requests)


@both_loops
def test_a_large_answer_at_the_end_of_a_stream_arrives_whole(loop_factory: Loop, tmp_path: Path) -> None:
    async def main() -> None:
        async with house(tmp_path) as here, await Wire.connect(here.port) as wire:
            await wire.send(await call_bytes(here, 1))
            await until(lambda: here.source.held, "the call is on its way")
            call = here.source.held[0]
            assert call.on_notice is not None
            call.on_notice("notifications/progress", b'{"progressToken":1,"progress":1}')
            call.finish(LARGE)
            reply = await wire.read()
            assert reply.streamed
            assert len(reply.events) == 2
            assert json.loads(reply.events[1])["result"] == json.loads(bytes(LARGE.raw))

    run_on(loop_factory, main())


@both_loops
def test_a_client_that_reads_no_answers_gets_no_more_of_them(loop_factory: Loop, tmp_path: Path) -> None:
    async def main() -> None:
        async with house(tmp_path, max_calls=100) as here, await Wire.connect(here.port) as wire:
            asked: list[Call] = []

            def answer_at_once(call: Call) -> None:
                asked.append(call)
                call.finish(LARGE)

            here.source.on_submit = answer_at_once
            await wire.send(await call_bytes(here, *range(1, 9)))
            await until(lambda: asked, "the first is answered")
            for _ in range(20):
                async with await Wire.connect(here.port) as other:
                    assert (await other.ask(GET)).status == 200
            assert len(asked) < 8, "the others wait"
            replies = [await wire.read() for _ in range(8)]
            assert [json.loads(reply.body)["id"] for reply in replies] == list(range(1, 9))

    run_on(loop_factory, main())


@both_loops
def test_a_client_that_reads_slowly_gets_its_whole_answer(
    loop_factory: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "WRITE_S", 0.3)
    monkeypatch.setattr(server_module, "_TICK_S", 0.02)

    async def main() -> None:
        async with house(tmp_path) as here, await Wire.connect(here.port) as wire:
            await wire.send(await call_bytes(here, 1))
            await until(lambda: here.source.held, "the call is on its way")
            here.source.held[0].finish(LARGE)
            received = b""
            while not received.endswith(b'"}}'):
                data = await wire.reader.read(400_000)
                assert data, f"cut after {len(received)} bytes"
                received += data
                await asyncio.sleep(0.02)
            assert len(received) > len(LARGE.raw)

    run_on(loop_factory, main())


@both_loops
@pytest.mark.parametrize("refused", [b"NONSENSE\r\n\r\n"])
def test_a_refused_client_that_goes_on_sending_is_cut(
    loop_factory: Loop, tmp_path: Path, refused: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "LINGER_S", 0.2)
    monkeypatch.setattr(server_module, "_TICK_S", 0.02)

    async def main() -> None:
        async with house(tmp_path) as here, await Wire.connect(here.port) as wire:
            await wire.send(refused)
            while len(here.door):
                try:
                    await wire.send(b"x")
                except ConnectionError:
                    break
                await asyncio.sleep(0.05)

    run_on(loop_factory, main())
