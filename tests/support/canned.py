"""An HTTP server that gives canned answers by path, and remembers what it was asked."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field


@dataclass
class CannedRequest:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Canned:
    """`pages` has a status and a body for each path; a path without one gets no answer at all."""

    pages: dict[str, tuple[int, bytes]]
    asked: list[CannedRequest] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                await self._answer(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first, *lines = (await reader.readuntil(b"\r\n\r\n"))[:-4].decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        method, path, _ = first.split(" ", 2)
        self.asked.append(CannedRequest(method, path, headers, body))
        if path in self.pages:
            status, page = self.pages[path]
            head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(page)}\r\n\r\n"
            writer.write(head.encode() + page)


@contextlib.asynccontextmanager
async def canned(pages: dict[str, tuple[int, bytes]]) -> AsyncIterator[Canned]:
    made = Canned(pages)
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.get_running_loop().create_task(made.serve(reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await asyncio.sleep(0)  # aborted transports close in the next round of the loop
