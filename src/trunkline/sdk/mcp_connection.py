"""One client's connection: its lines are read, its answers leave in the order they are ready."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

from .json_lines import LineSplitter
from .mcp_messages import INVALID_REQUEST, RpcRefusal, refusal
from .mcp_session import McpSession

if TYPE_CHECKING:
    from .mcpserver import Server

LIMIT_BYTES: Final = 16 * 1024 * 1024
_PIECE_BYTES: Final = 256 * 1024
_FULL_BYTES: Final = 4 * 1024 * 1024
"""With so much unread, nothing new is read from this client, and notifications are dropped."""
_LAST_ANSWERS_S: Final = 5.0
"""What is in flight when a client ends its side may still end well, so that a script can be piped in."""
_POLL_S: Final = 0.05
_END_S: Final = 2.0


class Reader(Protocol):
    """What is used of an `asyncio.StreamReader`: no bytes mean the end."""

    async def read(self, n: int, /) -> bytes: ...


class Writer(Protocol):
    """What is used of an `asyncio.StreamWriter`."""

    def write(self, data: bytes, /) -> object: ...
    async def drain(self) -> None: ...
    def close(self) -> object: ...


class SendQueue:
    """Messages on their way to the client: written in order, by one task, at the pace at which the client reads."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._added = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._ending = False

    @property
    def gone(self) -> bool:
        """Whether the client is gone, as far as the stream can tell without being written to."""
        is_closing = getattr(self._writer, "is_closing", None)
        return is_closing is not None and bool(is_closing())

    def send(self, message: bytes) -> None:
        """Queue an answer: it is kept until the client reads it."""
        self._waiting.append(message + b"\n")
        self._waiting_bytes += len(message) + 1
        if self._waiting_bytes > _FULL_BYTES:
            self._room.clear()
        self._added.set()

    def notify(self, message: bytes) -> None:
        """Queue a notification; it is dropped if the client does not read."""
        if self._room.is_set():
            self.send(message)

    async def room(self) -> None:
        """Wait until the client has read enough of the queue."""
        await self._room.wait()

    def end(self) -> None:
        """Queue nothing more: `run` returns once all is written."""
        self._ending = True
        self._added.set()

    async def run(self) -> None:
        """Write messages until the end. Raises OSError if the client is gone."""
        while self._waiting or not self._ending:
            await self._added.wait()
            self._added.clear()
            lines, self._waiting = self._waiting, []
            try:
                self._writer.write(b"".join(lines))
            except RuntimeError as error:  # uvloop's way to report a closed stream; asyncio's is an OSError
                raise ConnectionResetError(str(error)) from None
            await self._writer.drain()
            self._waiting_bytes -= sum(map(len, lines))
            if self._waiting_bytes <= _FULL_BYTES:
                self._room.set()


class McpConnection:
    def __init__(self, server: Server, reader: Reader, writer: Writer, limit_bytes: int) -> None:
        self._reader = reader
        self._writer = writer
        self._limit_bytes = limit_bytes
        self._queue = SendQueue(writer)
        self.session = McpSession(server, self._queue.send, self._queue.notify)

    async def run(self) -> None:
        """Serve until the client ends its side or is gone. On return nothing of it is left."""
        loop = asyncio.get_running_loop()
        reading, writing = loop.create_task(self._read()), loop.create_task(self._queue.run())
        try:
            await asyncio.wait([reading, writing], return_when=asyncio.FIRST_COMPLETED)
            if not writing.done():
                await self._finish(writing)
        finally:
            await _cancel([reading, writing, *self.session.tasks])
            self.session.close()
            self._writer.close()
        for task in (reading, writing):
            error = None if task.cancelled() or not task.done() else task.exception()
            if error is not None and not isinstance(error, OSError):  # a client that is gone is no error
                raise error

    async def _finish(self, writing: asyncio.Task[None]) -> None:
        """The client sends no more: what is ready in time is still sent, the rest is cancelled."""
        self.session.end()
        tasks, loop = self.session.tasks, asyncio.get_running_loop()
        end = loop.time() + _LAST_ANSWERS_S
        while tasks and not (writing.done() or self._queue.gone) and loop.time() < end:
            await asyncio.wait(tasks, timeout=_POLL_S)
        await _cancel(list(tasks))
        self._queue.end()
        await asyncio.wait([writing], timeout=_END_S)

    async def _read(self) -> None:
        lines = LineSplitter(self._limit_bytes)
        with suppress(OSError):
            while data := await self._reader.read(_PIECE_BYTES):
                for line in lines.feed(data):
                    self._handle(line)
                    await self._queue.room()  # after each: short requests can have long answers
        for line in lines.last():
            self._handle(line)

    def _handle(self, line: bytes | None) -> None:
        if line is None:
            too_long = RpcRefusal(INVALID_REQUEST, f"A message has at most {self._limit_bytes:,} bytes")
            self._queue.send(refusal(None, too_long))
        elif line.strip():  # blank lines do no harm
            self.session.handle(line)


async def _cancel(tasks: Collection[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=_END_S)
