"""Responses larger than the socket buffers, and clients that do not read theirs."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path

from tests.support.http_wire import Wire, request_bytes
from tests.support.waiting import until
from tests.unit.frontends.rig import House, Loop, both_loops, house, run_on

from trunkline.core.call import Call, Result

GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
LARGE = Result(b'{"content":"%b"}' % (b"x" * 16_000_000))


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
            assert call.on_notification is not None
            call.on_notification("notifications/progress", b'{"progressToken":1,"progress":1}')
            call.finish(LARGE)
            reply = await wire.read()
            assert reply.streamed
            assert len(reply.events) == 2
            assert json.loads(reply.events[1])["result"] == json.loads(bytes(LARGE.raw))

    run_on(loop_factory, main())


async def narrow(port: int) -> Wire:
    """A connection of which little is read ahead, neither here nor by the system."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 17)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    return Wire(*await asyncio.open_connection(sock=sock, limit=1 << 16))


@both_loops
def test_a_client_that_reads_no_answers_gets_no_more_of_them(loop_factory: Loop, tmp_path: Path) -> None:
    async def main() -> None:
        async with house(tmp_path, max_calls=100) as here, await narrow(here.port) as wire:
            asked: list[Call] = []

            def answer_at_once(call: Call) -> None:
                asked.append(call)
                call.finish(LARGE)

            here.source.on_submit = answer_at_once
            await wire.send(await call_bytes(here, 1, 2, 3))
            await until(lambda: asked, "the first is answered")
            for _ in range(20):
                async with await Wire.connect(here.port) as other:
                    assert (await other.ask(GET)).status == 200
            assert len(asked) < 3, "the others wait"
            replies = [await wire.read() for _ in range(3)]
            assert [json.loads(reply.body)["id"] for reply in replies] == [1, 2, 3]

    run_on(loop_factory, main())


async def stuck(here: House, wire: Wire) -> None:
    """A call has an answer that does not fit between us and its client."""
    await wire.send(await call_bytes(here, 1))
    await until(lambda: here.source.held, "the call is on its way")
    here.source.held[0].finish(LARGE)


@both_loops
def test_a_client_that_reads_slowly_gets_its_whole_answer(loop_factory: Loop, tmp_path: Path) -> None:
    async def main() -> None:
        async with house(tmp_path) as here, await narrow(here.port) as wire:
            await stuck(here, wire)
            reply = await wire.read_head()
            for _ in range(int(reply.headers["content-length"]) // 2_000_000):
                here.later(4)
                await wire.reader.readexactly(2_000_000)
            assert (await wire.reader.readuntil(b'"}}')).strip(b"x") == b'"}}'

    run_on(loop_factory, main())


@both_loops
def test_a_client_that_reads_nothing_is_cut(loop_factory: Loop, tmp_path: Path) -> None:
    async def main() -> None:
        async with house(tmp_path) as here:
            wire = await narrow(here.port)
            await stuck(here, wire)
            await until(lambda: here.later(11) or len(here.http_server) == 0, "it is cut")
            await wire.abort()

    run_on(loop_factory, main())


@both_loops
def test_a_refused_client_that_goes_on_sending_is_cut(loop_factory: Loop, tmp_path: Path) -> None:
    async def main() -> None:
        async with house(tmp_path) as here, await Wire.connect(here.port) as wire:
            assert (await wire.ask(b"NONSENSE\r\n\r\n")).status == 400
            for _ in range(5):
                await wire.send(b"x")
                assert len(here.http_server) == 1, "it may still be reading"
            await until(lambda: here.later(3) or len(here.http_server) == 0, "it is cut")

    run_on(loop_factory, main())
