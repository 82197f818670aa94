"""Output that makes nobody wait: what is written leaves in a thread, so a reader that does not read holds up no run.

A pipe that is full or a terminal that was stopped would otherwise stop everything: the agent's tools, deadlines, and
also Ctrl+C.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from threading import Condition, Thread
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_MOST_BYTES: Final = 64 << 20
"""What waits for a reader at most; more counts as written to nobody."""


class Aside:
    """One thread for all streams: what goes to the same terminal keeps its order."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._changed = Condition()
        self._queue: deque[tuple[int, bytes]] = deque()
        self._waiting_bytes = 0
        self._ended = False
        self.errors: dict[int, OSError] = {}
        """Why nothing can be written any more, by descriptor."""
        self._thread = Thread(target=self._write_all, name="output", daemon=True)
        self._thread.start()

    def put(self, fd: int, data: bytes) -> None:
        """Raises what went wrong with the descriptor before."""
        with self._changed:
            if self._waiting_bytes + len(data) > self._most_bytes:
                self.errors.setdefault(fd, OSError(errno.ENOBUFS, "nobody reads what is written"))
            if fd in self.errors:
                raise self.errors[fd]
            self._waiting_bytes += len(data)
            self._queue.append((fd, data))
            self._changed.notify_all()

    def finish(self, limit_s: float | None) -> None:
        """Until everything has left, or for so long. Nothing can be written afterwards."""
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting_bytes, limit_s)
            self._ended = True
            self._changed.notify_all()

    def _write_all(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._ended)
                if not self._queue:
                    return
                fd, data = self._queue.popleft()
            self._write(fd, data)
            with self._changed:
                self._waiting_bytes -= len(data)
                self._changed.notify_all()

    def _write(self, fd: int, data: bytes) -> None:
        left = memoryview(data)
        try:
            while left and fd not in self.errors:
                left = left[os.write(fd, left) :]
        except OSError as error:
            self.errors[fd] = error


class _Stream(io.BufferedIOBase):
    """What a text stream writes to in place of its descriptor. Where it does not `matter`, failures pass silently."""

    def __init__(self, aside: Aside, fd: int, *, matters: bool) -> None:
        self.name = f"descriptor {fd}"
        self._aside = aside
        self._fd = fd
        self._matters = matters

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def isatty(self) -> bool:
        return os.isatty(self._fd)

    def write(self, buffer: ReadableBuffer, /) -> int:
        data = bytes(buffer)
        try:
            self._aside.put(self._fd, data)
        except OSError:
            if self._matters:
                raise
        return len(data)


@contextmanager
def streams_aside() -> Generator[Aside, None, None]:
    """While this lasts, stdout and stderr are such streams. Whoever uses it also calls `finish`."""
    aside = Aside()
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _over(aside, sys.stdout, matters=True), _over(aside, sys.stderr, matters=False)
    try:
        yield aside
    finally:
        sys.stdout, sys.stderr = before
        aside.finish(0.0)


def _over(aside: Aside, stream: TextIO, *, matters: bool) -> TextIO:
    try:
        fd = stream.fileno()
    except (OSError, ValueError):
        return stream  # no file at all
    stream.flush()
    return io.TextIOWrapper(
        _Stream(aside, fd, matters=matters), stream.encoding, stream.errors, newline="\n", write_through=True
    )
