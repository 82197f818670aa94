"""MCP over stdio: one client, one line of JSON per message, nothing else on stdout."""

from __future__ import annotations

import asyncio
import os
import stat
from typing import Final

from trunkline.core.call import Caller, Json, Result
from trunkline.core.errors import INTERNAL, REQUEST_TOO_LARGE, Problem
from trunkline.doors.mcp.server import Conversation, McpServer
from trunkline.wire.jsonrpc import (
    BadMessage,
    Message,
    encode_error,
    encode_notification,
    error_message,
    parse_message,
    readable_id,
    single_line,
)
from trunkline.wire.lines import LineFramer, LineTooLong
from trunkline.wire.mcp.incoming import PROGRESS, cancelled_id, is_modern

PRINCIPAL: Final = "local"
_LAST_ANSWERS_S: Final = 1.0
_READ_BYTES: Final = 256 * 1024
_MAX_UNREAD_BYTES: Final = 1024 * 1024
_PROGRESS: Final = encode_notification(PROGRESS)[:-1]


class StdioDoor:
    def __init__(self, server: McpServer, *, limit_bytes: int, stdin_fd: int = 0, stdout_fd: int = 1) -> None:
        self._server = server
        self._stdin_fd = stdin_fd
        self._stdout_fd = stdout_fd
        self._framer = LineFramer(limit_bytes)
        self._limit_bytes = limit_bytes
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._conversation = Conversation(Caller(PRINCIPAL), server.max_calls)
        self._conversation.push = self.write
        self._in: asyncio.ReadTransport | None = None
        self._out: asyncio.WriteTransport | None = None
        self._out_gone = False
        self._parts: list[Json] = []
        self.unanswered = 0

    async def serve(self) -> None:
        """Until the client closes its end."""
        out_protocol = _Output(self)
        self._out, _ = await _writer(self._loop, out_protocol, self._stdout_fd)
        if _never_waits(self._stdin_fd):
            await self._read_file()
        else:
            stdin = os.fdopen(os.dup(self._stdin_fd), "rb", 0)
            self._in, _ = await self._loop.connect_read_pipe(lambda: _Input(self), stdin)
            await self._over
        await self._finish()

    async def _read_file(self) -> None:
        """Requests from what no event loop can watch."""
        while data := os.read(self._stdin_fd, _READ_BYTES):
            self.received(data)
            await asyncio.sleep(0)

    async def _finish(self) -> None:
        """What the client already asked gets a moment to be answered: a script may close its end right after asking."""
        self._server.end_subscriptions()
        try:
            async with asyncio.timeout(_LAST_ANSWERS_S):
                while self.unanswered:
                    await asyncio.sleep(0.01)
        except TimeoutError:
            pass
        self._server.end(self._conversation, "the client closed its end")
        if self._out is not None:
            self._flush()
            await self._drained()
            if not self._out_gone:
                self._out.abort()

    async def _drained(self) -> None:
        end = self._loop.time() + _LAST_ANSWERS_S
        while self._out is not None and self._out.get_write_buffer_size() and self._loop.time() < end:
            await asyncio.sleep(0.005)

    def output_closed(self) -> None:
        """The client reads no more."""
        self._out_gone = True
        self.stop()

    def stop(self) -> None:
        if self._in is not None:
            self._in.close()
        if not self._over.done():
            self._over.set_result(None)

    # -- in -------------------------------------------------------------------------------------------------------

    def received(self, data: bytes) -> None:
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
            self._message(line)

    def _too_long(self, head: bytes) -> None:
        """That one message is refused, under its id where that can be read; the rest of its line is skipped."""
        reason = f"A message is larger than {self._limit_bytes} bytes (`limits.request_bytes`)"
        request_id = readable_id(head)
        id_json = b"null" if request_id is None else b"%d" % request_id
        self.write(error_message(id_json, encode_error(Problem(code=REQUEST_TOO_LARGE, message=reason))))

    def _message(self, line: bytes) -> None:
        try:
            message = parse_message(line)
        except BadMessage as error:
            self.write(error_message(error.id_json, encode_error(error.problem)))
            return
        if message.method is None:
            return
        if message.id is None:
            self._notification(message)
            return
        answer = StdioAnswer(self, message.id_json)
        try:
            self._request(message, answer)
        except Exception as error:  # a bug of ours costs one request, not the conversation
            self._server.router.events.note("error", "internal", f"{type(error).__name__}: {error}")
            problem = Problem(code=INTERNAL, message="Internal error", executed="unknown")
            answer.error(encode_error(problem), problem)

    def _request(self, message: Message, answer: StdioAnswer) -> None:
        if is_modern(message):
            self._server.modern_request(message, answer, PRINCIPAL, ("stdio", message.id))
        else:
            self._server.legacy_request(self._conversation, message, answer)

    def _notification(self, message: Message) -> None:
        """`cancelled` may mean a request of either era: ids are unique among what this one client has in flight."""
        self._server.legacy_notification(self._conversation, message)
        request_id = cancelled_id(message)
        if request_id is not None:
            self._server.cancel_modern(PRINCIPAL, ("stdio", request_id), "the client took it back")

    # -- out ------------------------------------------------------------------------------------------------------

    def write(self, *parts: Json) -> None:
        """One message, in parts. All that happens in one turn of the loop leaves in one write."""
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts += parts
        self._parts.append(b"\n")

    def _flush(self) -> None:
        parts, self._parts = self._parts, []
        if self._out is not None and parts:
            self._out.write(b"".join(parts))

    @property
    def crowded(self) -> bool:
        return self._out is not None and self._out.get_write_buffer_size() > _MAX_UNREAD_BYTES

    def pressure(self, high: bool) -> None:
        """A client that does not read is not read from either."""
        if self._in is None or self._in.is_closing():
            return
        if high:
            self._in.pause_reading()
        else:
            self._in.resume_reading()


class StdioAnswer:
    __slots__ = ("_door", "_id_json", "_open")

    def __init__(self, door: StdioDoor, id_json: bytes) -> None:
        self._door = door
        self._id_json = id_json
        self._open = True
        door.unanswered += 1

    def result(self, result: Result) -> None:
        text = result.raw if result.single_line else single_line(result.raw)
        if self._close():
            self._door.write(b'{"jsonrpc":"2.0","id":%b,"result":' % self._id_json, text, b"}")

    def error(self, raw: Json, problem: Problem | None) -> None:
        if self._close():
            self._door.write(error_message(self._id_json, single_line(raw)))

    def notice(self, message: bytes) -> None:
        """A client that does not read gets no progress for now: a server may report more than memory holds."""
        if self._open and not (self._door.crowded and message.startswith(_PROGRESS)):
            self._door.write(message)

    def cancelled(self, problem: Problem) -> None:
        """A client that took its request back expects no answer."""
        self._close()

    def _close(self) -> bool:
        was_open, self._open = self._open, False
        if was_open:
            self._door.unanswered -= 1
        return was_open


class _Input(asyncio.Protocol):
    def __init__(self, door: StdioDoor) -> None:
        self._door = door

    def data_received(self, data: bytes) -> None:
        self._door.received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._door.stop()


class _Output(asyncio.BaseProtocol):
    def __init__(self, door: StdioDoor) -> None:
        self._door = door

    def pause_writing(self) -> None:
        self._door.pressure(True)

    def resume_writing(self) -> None:
        self._door.pressure(False)

    def connection_lost(self, exc: Exception | None) -> None:
        self._door.output_closed()


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
