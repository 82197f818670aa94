"""Writes lines to a file descriptor without ever making its caller wait.

Lines go into a bounded queue; a thread of its own wakes up once per batch, joins what is there and writes it at once.
Where nobody reads (a stopped terminal, a full pipe, a full disk, a closed stream), lines are dropped and counted.
"""

from __future__ import annotations

import os
import select
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

_STUCK_MS: Final = 1000
"""How long a non-blocking stream may stay full before the queued lines are dropped."""


class LineWriter:
    """Takes lines (each with its line feed) from one thread, the event loop's.

    The queue is a deque and the counters have one writer each, so there is no lock: `put` may be re-entered, as when
    the garbage collector runs a finaliser that logs.
    """

    def __init__(
        self,
        fd: int,
        *,
        loss_line: Callable[[int], str],
        limit_lines: int = 8192,
        batch_s: float = 0.03,
    ) -> None:
        self._fd = fd
        self._loss_line = loss_line
        self._limit_lines = limit_lines
        self._batch_s = batch_s
        self._queue: deque[str] = deque()
        self._woken = False
        self._work = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._refused = 0  # counted by the caller's thread
        self._lost = 0  # counted by the writing thread
        self._reported = 0
        self._torn = False

    @property
    def dropped(self) -> int:
        """Lines that were never written."""
        return self._refused + self._lost

    def put(self, line: str) -> None:
        queue = self._queue
        if len(queue) >= self._limit_lines:
            self._refused += 1
            return
        queue.append(line)
        if not self._woken:
            self._wake()

    def close(self, deadline_s: float = 1.0) -> bool:
        """Write what is queued, as far as the stream takes it before the deadline; later lines are dropped.

        Returns whether the thread has ended, so that nothing writes to the stream any more.
        """
        self._limit_lines = 0
        self._closing.set()
        self._work.set()
        if self._thread is not None:
            # A thread stuck in write(2) cannot be interrupted. It is a daemon: the process ends without it.
            self._thread.join(deadline_s)
        return self._thread is None or not self._thread.is_alive()

    def _wake(self) -> None:
        self._woken = True
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="log-writer", daemon=True)
            self._thread.start()
        self._work.set()

    def _run(self) -> None:
        closing = False
        while not closing:
            self._work.wait()
            self._closing.wait(self._batch_s)
            # Cleared before we look at anything: a line or a close that comes later wakes us again.
            self._work.clear()
            self._woken = False
            closing = self._closing.is_set()
            self._write_queue()

    def _write_queue(self) -> None:
        lines = [self._queue.popleft() for _ in range(len(self._queue))]
        missing = self.dropped - self._reported
        report = self._loss_line(missing) if missing else ""
        data = ("".join(lines) + report).encode("utf-8", "backslashreplace")
        opening = b"\n" if self._torn else b""  # the last write broke off within a line
        written = self._write_what_fits(opening + data) - len(opening)
        if written > 0:
            self._torn = not data[:written].endswith(b"\n")
        if written == len(data):
            self._reported += missing
        else:
            self._lost += max(0, len(lines) - data[: max(0, written)].count(b"\n"))

    def _write_what_fits(self, data: bytes) -> int:
        """Write as much as the stream takes; returns the number of bytes."""
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._write_some(rest) :]
        except OSError:
            pass
        return len(data) - len(rest)

    def _write_some(self, data: memoryview) -> int:
        try:
            return os.write(self._fd, data)
        except BlockingIOError:
            # Another process that shares our stderr may have made it non-blocking.
            poll = select.poll()
            poll.register(self._fd, select.POLLOUT)
            if poll.poll(_STUCK_MS):
                return 0
            raise
