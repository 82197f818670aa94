"""Clients that come over a socket: each is served by itself, and the end of the listener is the end of them all."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
import uvloop
from tests.support.processes import open_files
from tests.support.waiting import at_most, until

from trunkline.mcpserver import Server

uvloop.new_event_loop().close()  # the first one makes a pipe for signals that stays with the process

GREETING = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}}


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, message: dict) -> dict:
    writer.write(json.dumps(message).encode() + b"\n")
    return json.loads(await asyncio.wait_for(reader.readline(), at_most(10)))


async def closed(*writers: asyncio.StreamWriter) -> None:
    for writer in writers:
        writer.close()
        await writer.wait_closed()


async def test_several_clients_are_served_over_tcp() -> None:
    server = Server("s", "1")
    async with server.listening() as (host, port):
        streams = [await asyncio.open_connection(host, port) for _ in range(3)]
        hellos = await asyncio.gather(*(ask(*stream, GREETING) for stream in streams))
        assert [hello["result"]["serverInfo"]["name"] for hello in hellos] == ["s"] * 3
        await closed(*(writer for _, writer in streams))


async def test_the_end_of_the_listener_cancels_calls_and_hangs_up() -> None:
    server, cancelled, began = Server(), [], asyncio.Event()

    async def wait(arguments):
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    server.register_tool("wait", {}, wait)
    async with server.listening() as (host, port):
        reader, writer = await asyncio.open_connection(host, port)
        await ask(reader, writer, GREETING)
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "wait"}}
        writer.write(json.dumps(call).encode() + b"\n")
        await asyncio.wait_for(began.wait(), at_most(10))
    assert cancelled == [True]
    assert await asyncio.wait_for(reader.read(), at_most(10)) == b""
    await closed(writer)


async def test_a_unix_socket_is_gone_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    async with Server("u", "1").listening(path=path) as address:
        assert address == (str(path), 0)
        reader, writer = await asyncio.open_unix_connection(path)
        assert (await ask(reader, writer, GREETING))["result"]["serverInfo"]["name"] == "u"
        await closed(writer)
    assert not path.exists()


async def test_a_client_that_hangs_up_is_forgotten() -> None:
    server = Server()
    async with server.listening() as (host, port):
        before = len(open_files())
        reader, writer = await asyncio.open_connection(host, port)
        await ask(reader, writer, GREETING)
        assert len(open_files()) == before + 2
        await closed(writer)
        await until(lambda: len(open_files()) == before, "the server lets go of it")
        assert reader.at_eof() or await reader.read() == b""


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_clients_that_vanish_are_no_error_on_any_loop(new_loop) -> None:
    faults: list[dict] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
        server = Server()
        async with server.listening() as (host, port):
            before = len(open_files())
            for _ in range(50):
                _, writer = await asyncio.open_connection(host, port)
                writer.write(b"{\n")
                writer.transport.abort()
            reader, writer = await asyncio.open_connection(host, port)
            assert "result" in await ask(reader, writer, GREETING)
            await closed(writer)
            await until(lambda: len(open_files()) == before, "the server lets go of them")

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())
    assert faults == []
