"""A server of chat completions for tests of our own client: it follows a script, misbehaves as it is told, and keeps
what it was sent."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.models.chat import PATH, ModelRequest, chunks, event, stream, whole_answer
from tests.support.models.script import Turn, says

_READ_BYTES = 65536


@dataclass(frozen=True)
class Received:
    """One request, and when it came by the clock of the loop."""

    path: str
    headers: dict[str, str]
    request: ModelRequest
    at: float


@dataclass
class Reply:
    """What an answer is made of: the turn that the script has next, and the way back to the client."""

    received: Received
    turn: Turn
    style: str
    writer: asyncio.StreamWriter
    left: asyncio.Event
    """The client has closed the connection."""

    @property
    def stream(self) -> bytes:
        return stream(self.turn, self.received.request.turn, self.style)

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def head(self, status: int = 200, content_type: str = "text/event-stream", **headers: str) -> None:
        """The head of an answer that is sent piece by piece."""
        lines = [f"HTTP/1.1 {status} Scripted", f"content-type: {content_type}", "transfer-encoding: chunked"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        await self.send("\r\n".join([*lines, "", ""]).encode())

    async def piece(self, data: bytes) -> None:
        await self.send(b"%x\r\n%b\r\n" % (len(data), data))

    async def end(self) -> None:
        await self.send(b"0\r\n\r\n")

    def hang_up(self) -> None:
        self.writer.transport.abort()


Manner = Callable[[Reply], Awaitable[None]]


# Manners --------------------------------------------------------------------------------------------------------------


async def streams(reply: Reply) -> None:
    """As it should be, an event at a time."""
    await reply.head()
    for chunk in chunks(reply.turn, reply.received.request.turn, reply.style):
        await reply.piece(event(chunk))
    await reply.piece(event("[DONE]"))
    await reply.end()


async def answers_whole(reply: Reply) -> None:
    """The request's wish for a stream is ignored."""
    await reply.head(content_type="application/json")
    await reply.piece(json.dumps(whole_answer(reply.turn, reply.received.request.turn)).encode())
    await reply.end()


async def hangs_up(reply: Reply) -> None:
    reply.hang_up()


def refuses(status: int, message: str = "scripted refusal", **headers: str) -> Manner:
    async def refuse(reply: Reply) -> None:
        await reply.head(status, "application/json", **headers)
        await reply.piece(json.dumps({"error": {"message": message, "type": "scripted"}}).encode())
        await reply.end()

    return refuse


def sends(body: bytes, content_type: str = "text/event-stream") -> Manner:
    async def send(reply: Reply) -> None:
        await reply.head(content_type=content_type)
        await reply.piece(body)
        await reply.end()

    return send


def drops(after_bytes: int) -> Manner:
    """The connection is lost in the middle of the stream."""

    async def drop(reply: Reply) -> None:
        await reply.head()
        if after_bytes:
            await reply.piece(reply.stream[:after_bytes])
        reply.writer.close()  # what was written still arrives

    return drop


def stalls(after_bytes: int) -> Manner:
    """Nothing more comes, and the connection stays, until the client leaves."""

    async def stall(reply: Reply) -> None:
        await reply.head()
        if after_bytes:
            await reply.piece(reply.stream[:after_bytes])
        await reply.left.wait()

    return stall


async def never_answers(reply: Reply) -> None:
    await reply.left.wait()


# The server -----------------------------------------------------------------------------------------------------------


@dataclass
class ChatServer:
    """Listens from `async with` to its end. The first request is answered in the first of `manners`, and so on; when
    there are no more, everything is as it should be. Which turn is next is read off each request."""

    turns: Sequence[Turn]
    style: str = "openai"
    manners: Sequence[Manner] = ()
    received: list[Received] = field(default_factory=list)
    connections: int = 0
    _server: asyncio.Server | None = None
    _talks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"

    @property
    def open(self) -> int:
        """How many connections there are."""
        return len(self._talks)

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [received.request.body for received in self.received]

    async def __aenter__(self) -> ChatServer:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, limit=_READ_BYTES)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for talk in self._talks:
            talk.cancel()
        await asyncio.gather(*self._talks, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        talk = asyncio.get_running_loop().create_task(self._talk(reader, writer))
        self._talks.add(talk)
        talk.add_done_callback(self._talks.discard)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while not writer.is_closing():
                received = await _receive(reader)
                self.received.append(received)
                await self._answer(received, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            return  # the client left, as it may
        finally:
            writer.close()

    async def _answer(self, received: Received, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        place = len(self.received) - 1
        manner = self.manners[place] if place < len(self.manners) else streams
        left = asyncio.Event()
        watch = asyncio.get_running_loop().create_task(_leaving(reader, left))
        try:
            await manner(Reply(received, self._turn(received.request), self.style, writer, left))
        finally:
            watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watch

    def _turn(self, request: ModelRequest) -> Turn:
        return self.turns[request.turn] if request.turn < len(self.turns) else says("The script has no more turns.")


async def _leaving(reader: asyncio.StreamReader, left: asyncio.Event) -> None:
    """Our client sends nothing while it waits for an answer, so whatever can be looked for is the end."""
    while not reader.at_eof() and reader.exception() is None:
        await asyncio.sleep(0.01)
    left.set()


async def _receive(reader: asyncio.StreamReader) -> Received:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.rstrip().split("\r\n")
    _, path, _ = first.split(" ")
    assert path.partition("?")[0].endswith(PATH), path
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers["content-length"]))
    return Received(path, headers, ModelRequest(json.loads(body)), asyncio.get_running_loop().time())
