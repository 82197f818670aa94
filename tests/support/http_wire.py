"""A raw HTTP/1.1 client: sends exactly the bytes a test wants and reads whatever comes back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

LINE_LIMIT = 64 * 1024 * 1024


@dataclass
class Reply:
    """A response; for an event stream `body` is everything up to its end and `events` what it said."""

    status: int
    headers: dict[str, str]
    body: bytes = b""
    events: list[bytes] = field(default_factory=list)

    @property
    def streamed(self) -> bool:
        return self.headers.get("content-type", "").startswith("text/event-stream")


class Wire:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, port: int, host: str = "127.0.0.1") -> Wire:
        return cls(*await asyncio.open_connection(host, port, limit=LINE_LIMIT))

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def ask(self, data: bytes) -> Reply:
        await self.send(data)
        return await self.read()

    async def read(self) -> Reply:
        """One whole response."""
        reply = await self.read_head()
        reply.body = b"".join([part async for part in self.body_parts(reply)])
        if reply.streamed:
            reply.events = list(sse_data(reply.body))
        return reply

    async def read_head(self) -> Reply:
        head = await self.reader.readuntil(b"\r\n\r\n")
        first, *lines = head[:-4].decode("latin-1").split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        return Reply(int(first.split(" ", 2)[1]), headers)

    async def body_parts(self, reply: Reply) -> AsyncIterator[bytes]:
        if reply.headers.get("transfer-encoding", "").lower() == "chunked":
            while size := int((await self.reader.readuntil(b"\r\n")).split(b";")[0], 16):
                yield (await self.reader.readexactly(size + 2))[:-2]
            await self.reader.readuntil(b"\r\n")
        elif "content-length" in reply.headers:
            yield await self.reader.readexactly(int(reply.headers["content-length"]))
        elif reply.status not in (202, 204, 304):
            while part := await self.reader.read(1 << 16):
                yield part

    async def events(self, reply: Reply) -> AsyncIterator[bytes]:
        """The messages of a stream as they come."""
        pending = b""
        async for part in self.body_parts(reply):
            pending += part
            while b"\n\n" in pending:
                block, _, pending = pending.partition(b"\n\n")
                for data in sse_data(block + b"\n\n"):
                    yield data

    async def read_to_end(self) -> bytes:
        """Everything until the peer closes, however roughly it does so."""
        received = bytearray()
        with contextlib.suppress(ConnectionError):
            while part := await self.reader.read(1 << 16):
                received += part
        return bytes(received)

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()

    async def abort(self) -> None:
        self.writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()

    async def __aenter__(self) -> Wire:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def sse_data(stream: bytes) -> list[bytes]:
    """The data of every whole event of a stream; a bare CR ends a line as LF does, so smuggled ones show."""
    events: list[bytes] = []
    data: list[bytes] = []
    for line in stream.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"):
        if line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
        elif not line and data:
            events.append(b"\n".join(data))
            data = []
    return [event for event in events if event]


def request_bytes(
    method: str,
    path: str,
    headers: dict[str, str] | None = None,
    body: bytes | None = None,
    *,
    host: str | None = "127.0.0.1",
) -> bytes:
    lines = [f"{method} {path} HTTP/1.1"]
    if host is not None:
        lines.append(f"Host: {host}")
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")


async def fetch(
    port: int,
    method: str,
    path: str,
    headers: dict[str, str] | None = None,
    body: bytes | None = None,
    *,
    host: str | None = "127.0.0.1",
) -> Reply:
    """One request on a connection of its own."""
    async with await Wire.connect(port) as wire:
        return await wire.ask(request_bytes(method, path, headers, body, host=host))
