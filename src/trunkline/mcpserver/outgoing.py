"""What is on its way to one client: written in order, by one task, at the pace at which the client reads."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

_FULL_BYTES: Final = 4 * 1024 * 1024
"""With so much unread, nothing new is read from this client, and news that is not an answer is dropped."""


class Writer(Protocol):
    """What of an `asyncio.StreamWriter` is used."""

    def write(self, data: bytes, /) -> object: ...
    async def drain(self) -> None: ...
    def close(self) -> object: ...


async def close_within(writer: asyncio.StreamWriter, seconds: float) -> None:
    """Close it once all is written; where the other side does not read, what is left is dropped."""
    writer.close()
    try:
        async with asyncio.timeout(seconds):
            await writer.wait_closed()
    except (OSError, TimeoutError):
        writer.transport.abort()


class Outgoing:
    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._ending = False

    @property
    def gone(self) -> bool:
        """Whether nobody reads any more, as far as the stream can tell without being written to."""
        is_closing = getattr(self._writer, "is_closing", None)
        return is_closing is not None and bool(is_closing())

    def send(self, message: bytes) -> None:
        """An answer: it waits as long as it takes."""
        self._put(message + b"\n")

    def tell(self, message: bytes) -> None:
        """News that can be lost, and is, where the client does not read."""
        if self._room.is_set():
            self._put(message + b"\n")

    def _put(self, line: bytes) -> None:
        self._waiting.append(line)
        self._waiting_bytes += len(line)
        if self._waiting_bytes > _FULL_BYTES:
            self._room.clear()
        self._news.set()

    async def room(self) -> None:
        """Until the client has read enough of what waits for it."""
        await self._room.wait()

    def end(self) -> None:
        """Nothing more comes: `run` returns once all is written."""
        self._ending = True
        self._news.set()

    async def run(self) -> None:
        """Raises OSError when the client is gone."""
        while self._waiting or not self._ending:
            await self._news.wait()
            self._news.clear()
            lines, self._waiting = self._waiting, []
            self._write(b"".join(lines))
            await self._writer.drain()
            self._waiting_bytes -= sum(map(len, lines))
            if self._waiting_bytes <= _FULL_BYTES:
                self._room.set()

    def _write(self, data: bytes) -> None:
        try:
            self._writer.write(data)
        except RuntimeError as error:  # so uvloop says that the stream is closed; asyncio says it in `drain`
            raise ConnectionResetError(str(error)) from None
