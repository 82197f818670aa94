"""Transports for lines of JSON, with backpressure in both directions: what all have in common, and stdio."""

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
"""How long a client that closed its end is still served while it reads: a script may close right after a request."""
STOP_S: Final = 1.0
"""The same when the gateway shuts down."""
_BACKLOG_BYTES: Final = 1024 * 1024


class LineHandler(Protocol):
    """Handles the client's messages."""

    def line(self, line: bytes) -> None: ...

    def unread(self, size_bytes: int) -> None:
        """The client does not read, and this many bytes wait for it."""

    def room(self) -> None:
        """The client reads again."""


class LineTransport(asyncio.Protocol):
    """Base of the transports for pipes and sockets, which set `_in` and `_out`."""

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
        self._may_read = asyncio.Event()
        self._may_read.set()
        self.out_gone = False
        """Whether the client has closed the end it reads from."""

    async def serve(self) -> None:
        """Wait until the client closes its end, or `stop`."""
        await self._over

    async def finish(self, pending: Callable[[], object]) -> None:
        """Wait while responses are pending, the client reads, and time is left."""
        # The limit is read each time: many clients close their end first, and send a signal when that takes long.
        since = self._loop.time()
        while pending() and not self.is_gone():
            if self._loop.time() >= since + (STOP_S if self._hurried else LAST_ANSWERS_S):
                return
            await asyncio.sleep(0.01)

    async def close(self) -> None:
        """Send everything written, as far as the client reads it in time."""
        if self._out is None:
            return
        self._flush()
        await self.finish(self._out.get_write_buffer_size)
        if not self.out_gone:
            self._out.abort()

    def is_gone(self) -> bool:
        """Whether the client will read nothing more."""
        return self.out_gone

    def hurry(self) -> None:
        """Stop, with less time for pending responses: the gateway shuts down."""
        self._hurried = True
        self.stop()

    def stop(self) -> None:
        self._fair_reader.close()
        self._stop_reading()
        self._may_read.set()
        if not self._over.done():
            self._over.set_result(None)

    def _stop_reading(self) -> None:
        if self._in is not None:
            self._in.close()

    def output_closed(self) -> None:
        """The client closed the end it reads from."""
        self.out_gone = True
        self.stop()

    # -- in -------------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
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
        """Refuse one message, under its id if that can be parsed; the rest of its line is skipped."""
        reason = f"A message is larger than {self._limit_bytes} bytes (`limits.request_bytes`)"
        request_id = readable_id(head)
        id_json = b"null" if request_id is None else b"%d" % request_id
        self.write(error_message(id_json, encode_error(Problem(code=REQUEST_TOO_LARGE, message=reason))))

    def hold(self, held: bool) -> None:
        """Read no further messages for now, or read again."""
        if held != self._held:
            self._held = held
            self._read_or_wait()

    def pause_writing(self) -> None:
        """Stop reading from a client that does not read."""
        self._unread = True
        self._read_or_wait()

    def resume_writing(self) -> None:
        self._unread = False
        self._read_or_wait()
        self._lines.room()

    def _read_or_wait(self) -> None:
        wait = self._held or self._unread or self._others_turn
        if wait:
            self._may_read.clear()
        else:
            self._may_read.set()
        if self._in is None or self._in.is_closing() or self._over.done():
            return
        if wait:
            self._in.pause_reading()
        else:
            self._in.resume_reading()

    # -- out ------------------------------------------------------------------------------------------------------

    def write(self, *parts: Json) -> None:
        """Send one message, in parts. All messages of one turn of the event loop leave in one write."""
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
        """The size of what was written and not read yet."""
        return 0 if self._out is None else self._out.get_write_buffer_size()

    @property
    def backlogged(self) -> bool:
        return self.unread_bytes > _BACKLOG_BYTES


# -- stdio ------------------------------------------------------------------------------------------------------------

_READ_BYTES: Final = 256 * 1024


class StdioTransport(LineTransport):
    """Standard input and output, be they pipes, files or devices."""

    def __init__(self, lines: LineHandler, *, limit_bytes: int, stdin_fd: int = 0, stdout_fd: int = 1) -> None:
        super().__init__(lines, limit_bytes=limit_bytes)
        self._stdin_fd = stdin_fd
        self._stdout_fd = stdout_fd

    async def serve(self) -> None:
        """Serve until the client closes its end, or `stop`."""
        if _never_waits(self._stdout_fd):
            self._out = _FileWriter(self._stdout_fd)
        else:
            stdout = os.fdopen(os.dup(self._stdout_fd), "wb", 0)
            self._out, _ = await self._loop.connect_write_pipe(lambda: _Pipe(self, self.output_closed), stdout)
        if _never_waits(self._stdin_fd):
            while not self._over.done() and (data := os.read(self._stdin_fd, _READ_BYTES)):
                self.data_received(data)
                await asyncio.sleep(0)
                await self._may_read.wait()
        else:
            stdin = os.fdopen(os.dup(self._stdin_fd), "rb", 0)
            self._in, _ = await self._loop.connect_read_pipe(lambda: _Pipe(self, self.stop), stdin)
            self._read_or_wait()
            await super().serve()


class _Pipe(asyncio.Protocol):
    """Standard input or output."""

    def __init__(self, transport: StdioTransport, on_lost: Callable[[], None]) -> None:
        self._transport = transport
        self._on_lost = on_lost

    def data_received(self, data: bytes) -> None:
        self._transport.data_received(data)

    def pause_writing(self) -> None:
        self._transport.pause_writing()

    def resume_writing(self) -> None:
        self._transport.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_lost()


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
    """Whether it is a file or a device like /dev/null: always ready, so no event loop can watch it."""
    mode = os.fstat(fd).st_mode
    return stat.S_ISREG(mode) or (stat.S_ISCHR(mode) and not os.isatty(fd))
