"""One client on standard input and output."""

from __future__ import annotations

import asyncio
import os
import stat
from typing import Final

from trunkline.frontends.stdio.line_connection import Lines, LineWire

_READ_BYTES: Final = 256 * 1024


class StdioPipes(LineWire):
    def __init__(self, lines: Lines, *, limit_bytes: int, stdin_fd: int = 0, stdout_fd: int = 1) -> None:
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
    def __init__(self, pipes: StdioPipes) -> None:
        self._pipes = pipes

    def data_received(self, data: bytes) -> None:
        self._pipes.received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._pipes.stop()


class _Output(asyncio.BaseProtocol):
    def __init__(self, pipes: StdioPipes) -> None:
        self._pipes = pipes

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
