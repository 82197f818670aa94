"""A client's messages as lines of JSON: its lines in, messages out, and neither faster than the other side takes."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable
from typing import Final, Protocol

from trunkline.core.call import Json
from trunkline.core.errors import REQUEST_TOO_LARGE, Problem
from trunkline.protocol.framing import LineFramer, LineTooLong
from trunkline.protocol.jsonrpc import encode_error, error_message, readable_id
from trunkline.runtime.fair_reading import FairReader

LAST_ANSWERS_S: Final = 5.0
"""How long a client that closed its end is still served, if it reads: a script may close it right after asking."""
STOP_S: Final = 1.0
"""The same when the gateway is to end."""
_CROWDED_BYTES: Final = 1024 * 1024


class LineHandler(Protocol):
    """Who gets the client's messages."""

    def line(self, line: bytes) -> None: ...

    def unread(self, size_bytes: int) -> None:
        """The client does not read, and this much waits for it."""

    def room(self) -> None:
        """It reads again."""


class LineTransport:
    """What the ways that lines come by have in common: pipes and sockets set `_in` and `_out` to their transports."""

    def __init__(self, lines: LineHandler, *, limit_bytes: int) -> None:
        self._lines = lines
        self._framer = LineFramer(limit_bytes)
        self._limit_bytes = limit_bytes
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._in: asyncio.ReadTransport | None = None
        self._out: asyncio.WriteTransport | None = None
        self._parts: list[Json] = []
        self._unread = False
        self._held = False
        self._hurried = False
        self._fair_reader = FairReader(self._feed, self._turn)
        self._others_turn = False
        self._may_go_on = asyncio.Event()
        self._may_go_on.set()
        self.out_gone = False
        """Whether the client has closed the end it reads from."""

    async def serve(self) -> None:
        """Until the client closes its end, or `stop`."""
        await self._over

    async def finish(self, owed: Callable[[], object]) -> None:
        """The client closed its end: wait while answers are owed to it, it reads, and time is left."""
        # The limit is looked at each time: many clients close their end first, and send a signal when that takes long.
        since = self._loop.time()
        while owed() and not self._is_gone() and self._loop.time() < since + self._patience_s:
            await asyncio.sleep(0.01)

    async def close(self) -> None:
        """Everything written leaves, as far as the client takes it in time."""
        if self._out is None:
            return
        self._flush()
        await self.finish(self._out.get_write_buffer_size)
        if not self.out_gone:
            self._out.abort()

    def _is_gone(self) -> bool:
        """Whether the client will not read what is owed to it."""
        return self.out_gone

    @property
    def _patience_s(self) -> float:
        return STOP_S if self._hurried else LAST_ANSWERS_S

    def hurry(self) -> None:
        """The gateway is to end."""
        self._hurried = True
        self.stop()

    def stop(self) -> None:
        self._fair_reader.close()
        self._stop_reading()
        self._may_go_on.set()
        if not self._over.done():
            self._over.set_result(None)

    def _stop_reading(self) -> None:
        if self._in is not None:
            self._in.close()

    def output_closed(self) -> None:
        """The client reads no more."""
        self.out_gone = True
        self.stop()

    # -- in -------------------------------------------------------------------------------------------------------

    def received(self, data: bytes) -> None:
        self._fair_reader.take(data)

    def _turn(self, ours: bool) -> None:
        self._others_turn = not ours
        self._read_or_wait()

    def _feed(self, data: bytes) -> None:
        while True:
            try:
                self._take(self._framer.feed(data))
                return
            except LineTooLong as error:
                self._take(error.lines)
                self._too_long(error.head)
                data = b""

    def _take(self, lines: list[bytes]) -> None:
        for line in lines:
            self._lines.line(line)

    def _too_long(self, head: bytes) -> None:
        """That one message is refused, under its id where that can be read; the rest of its line is skipped."""
        reason = f"A message is larger than {self._limit_bytes} bytes (`limits.request_bytes`)"
        request_id = readable_id(head)
        id_json = b"null" if request_id is None else b"%d" % request_id
        self.write(error_message(id_json, encode_error(Problem(code=REQUEST_TOO_LARGE, message=reason))))

    def hold(self, held: bool) -> None:
        """Whether to leave further messages with the client for now."""
        if held != self._held:
            self._held = held
            self._read_or_wait()

    def pressure(self, high: bool) -> None:
        """A client that does not read is not read from either."""
        self._unread = high
        self._read_or_wait()
        if not high:
            self._lines.room()

    def _read_or_wait(self) -> None:
        wait = self._held or self._unread or self._others_turn
        if wait:
            self._may_go_on.clear()
        else:
            self._may_go_on.set()
        if self._in is None or self._in.is_closing() or self._over.done():
            return
        if wait:
            self._in.pause_reading()
        else:
            self._in.resume_reading()

    # -- out ------------------------------------------------------------------------------------------------------

    def write(self, *parts: Json) -> None:
        """One message, in parts. All that happens in one turn of the loop leaves in one write."""
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts += parts
        self._parts.append(b"\n")

    def _flush(self) -> None:
        parts, self._parts = self._parts, []
        # uvloop raises on a write to a pipe that is already lost
        if self._out is not None and parts and not self._out.is_closing():
            self._out.write(b"".join(parts))
            if self._unread:
                self._lines.unread(self.unread_bytes)

    @property
    def unread_bytes(self) -> int:
        """What was written and the client has not taken yet."""
        return 0 if self._out is None else self._out.get_write_buffer_size()

    @property
    def backlogged(self) -> bool:
        return self.unread_bytes > _CROWDED_BYTES


# One client on standard input and output.

_READ_BYTES: Final = 256 * 1024


class StdioTransport(LineTransport):
    def __init__(self, lines: LineHandler, *, limit_bytes: int, stdin_fd: int = 0, stdout_fd: int = 1) -> None:
        super().__init__(lines, limit_bytes=limit_bytes)
        self._stdin_fd = stdin_fd
        self._stdout_fd = stdout_fd

    async def serve(self) -> None:
        """Until the client closes its end, or `stop`."""
        self._out, _ = await _writer(self._loop, _Output(self), self._stdout_fd)
        if _never_waits(self._stdin_fd):
            await self._read_file()
        else:
            stdin = os.fdopen(os.dup(self._stdin_fd), "rb", 0)
            self._in, _ = await self._loop.connect_read_pipe(lambda: _Input(self), stdin)
            self._read_or_wait()
            await super().serve()

    async def _read_file(self) -> None:
        """Requests from what no event loop can watch."""
        while not self._over.done() and (data := os.read(self._stdin_fd, _READ_BYTES)):
            self.received(data)
            await asyncio.sleep(0)
            await self._may_go_on.wait()


class _Input(asyncio.Protocol):
    def __init__(self, transport: StdioTransport) -> None:
        self._pipes = transport

    def data_received(self, data: bytes) -> None:
        self._pipes.received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._pipes.stop()


class _Output(asyncio.BaseProtocol):
    def __init__(self, transport: StdioTransport) -> None:
        self._pipes = transport

    def pause_writing(self) -> None:
        self._pipes.pressure(True)

    def resume_writing(self) -> None:
        self._pipes.pressure(False)

    def connection_lost(self, exc: Exception | None) -> None:
        self._pipes.output_closed()


class _FileWriter(asyncio.WriteTransport):
    """Stdout that is a file or a device: writes never wait."""

    def __init__(self, fd: int) -> None:
        super().__init__()
        self._fd = fd

    def write(self, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def abort(self) -> None:
        pass


def _never_waits(fd: int) -> bool:
    """Files and devices like /dev/null: always ready, so no event loop can watch them."""
    mode = os.fstat(fd).st_mode
    return stat.S_ISREG(mode) or (stat.S_ISCHR(mode) and not os.isatty(fd))


async def _writer(
    loop: asyncio.AbstractEventLoop, protocol: _Output, fd: int
) -> tuple[asyncio.WriteTransport, asyncio.BaseProtocol]:
    if _never_waits(fd):
        return _FileWriter(fd), protocol
    return await loop.connect_write_pipe(lambda: protocol, os.fdopen(os.dup(fd), "wb", 0))
