"""Standard input and output as a client's streams, kept clean: the program can print, and start others that do.

While they are in use, descriptor 1 leads to stderr and descriptor 0 to nothing, for this process and its children.
"""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, redirect_stdout, suppress
from typing import Final, TextIO

from trunkline.mcpserver.connection import Reader
from trunkline.mcpserver.outgoing import Writer, close_within

_STDIN: Final = 0
_STDOUT: Final = 1
_STDERR: Final = 2
_CLOSE_S: Final = 2.0


@asynccontextmanager
async def stdio_streams() -> AsyncGenerator[tuple[Reader, Writer], None]:
    with _set_aside() as (from_client, to_client):
        if not _is_pipe(to_client):
            yield DescriptorReader(from_client), _PlainWriter(to_client)
            return
        writer = await _pipe_writer(to_client)
        try:
            yield DescriptorReader(from_client), writer
        finally:
            await close_within(writer, _CLOSE_S)


@contextmanager
def _set_aside() -> Generator[tuple[int, int], None, None]:
    """The two descriptors under other numbers, until the end."""
    _flush(sys.stdout)
    from_client, to_client = os.dup(_STDIN), os.dup(_STDOUT)
    blocking = os.get_blocking(to_client)
    try:
        with _leading(_STDIN, os.devnull), _leading(_STDOUT, _STDERR), redirect_stdout(sys.stderr):
            yield from_client, to_client
    finally:
        os.set_blocking(_STDOUT, blocking)
        os.close(from_client)
        os.close(to_client)


@contextmanager
def _leading(number: int, target: str | int) -> Generator[None, None, None]:
    """A descriptor that leads elsewhere for a while."""
    kept = os.dup(number)
    try:
        other = os.dup(target) if isinstance(target, int) else os.open(target, os.O_RDWR)
    except OSError:  # there is no stderr
        other = os.open(os.devnull, os.O_RDWR)
    try:
        os.dup2(other, number)
        yield
    finally:
        _flush(sys.stdout)
        os.dup2(kept, number)
        os.close(kept)
        os.close(other)


def _flush(stream: TextIO | None) -> None:
    with suppress(OSError, ValueError):
        if stream is not None:
            stream.flush()


def _is_pipe(fd: int) -> bool:
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


class DescriptorReader:
    """Reads when there is something to read. The descriptor stays a blocking one: others may hold the same pipe."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._must_wait = _is_pipe(fd) or os.isatty(fd)

    async def read(self, n: int, /) -> bytes:
        while self._must_wait:
            await self._readable()
            with suppress(BlockingIOError):  # somebody else who holds the pipe was faster
                return os.read(self._fd, n)
        return os.read(self._fd, n)

    async def _readable(self) -> None:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        loop.add_reader(self._fd, lambda: ready.done() or ready.set_result(None))
        try:
            await ready
        finally:
            loop.remove_reader(self._fd)


class _PlainWriter:
    """A file or a terminal takes what it is given at once."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def write(self, data: bytes, /) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._fd, rest) :]

    async def drain(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """Whoever opened the descriptor closes it."""


async def _pipe_writer(fd: int) -> asyncio.StreamWriter:
    loop = asyncio.get_running_loop()
    pipe = os.fdopen(os.dup(fd), "wb", buffering=0)
    protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader())
    transport, _ = await loop.connect_write_pipe(lambda: protocol, pipe)
    return asyncio.StreamWriter(transport, protocol, None, loop)
