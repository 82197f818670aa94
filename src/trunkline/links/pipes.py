"""A child's pipes without tasks or transports: read as they fill, written as they empty, closed in one step.

Nothing here waits, so a cancelled owner cannot leave a descriptor behind that nobody has.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Final

_READ_BYTES: Final = 1 << 18
_READS_AT_THE_END: Final = 8  # two mebibytes, more than a pipe holds
_BREATHER_S: Final = 0.002  # after each _READ_BYTES: a flood must not keep the event loop busy
_WRITE_BYTES: Final = 1 << 16


class PipeReading:
    """Hands on what comes out of a pipe, and never so fast that others have to wait."""

    def __init__(self, pipe: int, on_data: Callable[[bytes], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._pipe = pipe
        self._on_data = on_data
        self._since_breather = 0
        self._breather: asyncio.TimerHandle | None = None
        self._loop.add_reader(pipe, self._readable)

    def close(self) -> None:
        """Read what the pipe still holds, as nobody writes any more, and close it."""
        if self._breather is not None:
            self._breather.cancel()
        self._loop.remove_reader(self._pipe)
        try:
            for _ in range(_READS_AT_THE_END):
                if self._read() <= 0:
                    break
        finally:
            os.close(self._pipe)

    def _readable(self) -> None:
        size = self._read()
        if size == 0:
            self._loop.remove_reader(self._pipe)
        self._since_breather += max(size, 0)
        if self._since_breather >= _READ_BYTES:
            self._since_breather = 0
            self._loop.remove_reader(self._pipe)
            self._breather = self._loop.call_later(_BREATHER_S, self._go_on)

    def _go_on(self) -> None:
        self._breather = None
        self._loop.add_reader(self._pipe, self._readable)

    def _read(self) -> int:
        """How much there was; 0 at the end, -1 where nothing has come."""
        try:
            data = os.read(self._pipe, _READ_BYTES)
        except BlockingIOError:
            return -1
        if data:
            self._on_data(data)
        return len(data)


class PipeFeeding:
    """Writes all of `data` into a pipe and closes it; a reader that goes away ends it sooner."""

    def __init__(self, pipe: int, data: bytes) -> None:
        self._loop = asyncio.get_running_loop()
        self._pipe = pipe
        self._left = memoryview(data)
        self._open = True
        if data:
            self._loop.add_writer(pipe, self._writable)
        else:
            self.close()

    def close(self) -> None:
        """What was not written yet is dropped."""
        if self._open:
            self._open = False
            self._loop.remove_writer(self._pipe)
            os.close(self._pipe)

    def _writable(self) -> None:
        try:
            written = os.write(self._pipe, self._left[:_WRITE_BYTES])
        except BlockingIOError:
            return
        except OSError:
            self.close()
            return
        self._left = self._left[written:]
        if not self._left:
            self.close()
