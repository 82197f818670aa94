"""A server that does with each connection exactly what a test says."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

import pytest
import uvloop
from tests.support.waiting import at_most

# The first loop of uvloop makes a pipe for signals that stays with the process.
uvloop.new_event_loop().close()

both_loops = pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])


def run_on(loop_factory: Callable[[], asyncio.AbstractEventLoop], main: Coroutine[Any, Any, None]) -> None:
    async def in_time() -> None:
        async with asyncio.timeout(at_most(30)):
            await main

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(in_time())


def http(body: bytes = b"", status: int = 200, **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


class Peer:
    """One accepted connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.requests: list[bytes] = []

    async def request(self) -> bytes:
        """The next request, head and body."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = 0
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        whole = head + await self.reader.readexactly(length)
        self.requests.append(whole)
        return whole

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self, data: bytes) -> bytes:
        request = await self.request()
        await self.send(data)
        return request

    async def wait_closed(self) -> None:
        """Until the other side is gone, however it leaves."""
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(65536):
                pass

    async def reset(self) -> None:
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Script = Callable[[Peer], Awaitable[None]]


class Scripted:
    def __init__(self, script: Script) -> None:
        self._script = script
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.peers: list[Peer] = []
        self.failures: list[BaseException] = []
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    @property
    def open(self) -> int:
        """Connections that neither side has closed."""
        return len(self._tasks)

    @property
    def requests(self) -> list[bytes]:
        return [request for peer in self.peers for request in peer.requests]

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(Peer(reader, writer)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, peer: Peer) -> None:
        self.peers.append(peer)
        try:
            await self._script(peer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client left, as it may
        except Exception as error:
            self.failures.append(error)
        finally:
            peer.writer.close()
            with contextlib.suppress(ConnectionError):
                await peer.writer.wait_closed()

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


@contextlib.asynccontextmanager
async def scripted(script: Script) -> AsyncIterator[Scripted]:
    server = Scripted(script)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
    assert not server.failures, server.failures
