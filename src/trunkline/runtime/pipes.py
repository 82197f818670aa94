"""A child's pipes without tasks or transports: read as they fill, written as they empty, closed in one step.

Nothing here waits, so a cancelled owner cannot leave a descriptor behind that nobody has.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Final

from trunkline.runtime.turns import Turns

_READ_BYTES: Final = 1 << 18
_READS_AT_THE_END: Final = 8  # two mebibytes, more than a pipe holds
_BREATHER_S: Final = 0.002  # after each _READ_BYTES: copying them out of the pipe takes time as well
_WRITE_BYTES: Final = 1 << 16


class PipeReading:
    """Hands on what comes out of a pipe, and never so fast that others have to wait."""

    def __init__(self, pipe: int, on_data: Callable[[bytes], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._pipe = pipe
        self._on_data = on_data
        self._since_breather = 0
        self._turns = Turns(self._hand_on, self._read_on)
        self._read_on(True)

    def close(self) -> None:
        """Read what the pipe still holds, as nobody writes any more, and close it."""
        self._read_on(False)
        try:
            self._turns.finish()
            for _ in range(_READS_AT_THE_END):
                data = self._read()
                if not data:
                    break
                self._on_data(data)
        finally:
            self._turns.close()
            os.close(self._pipe)

    def _readable(self) -> None:
        data = self._read()
        if data:
            self._turns.take(data)
        elif data is not None:
            self._read_on(False)

    def _hand_on(self, data: bytes) -> None:
        self._since_breather += len(data)
        if self._since_breather >= _READ_BYTES:
            self._since_breather = 0
            self._turns.rest(_BREATHER_S)
        self._on_data(data)

    def _read_on(self, wanted: bool) -> None:
        if wanted:
            self._loop.add_reader(self._pipe, self._readable)
        else:
            self._loop.remove_reader(self._pipe)

    def _read(self) -> bytes | None:
        """Nothing at the end; None where nothing has come."""
        try:
            return os.read(self._pipe, _READ_BYTES)
        except BlockingIOError:
            return None


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
