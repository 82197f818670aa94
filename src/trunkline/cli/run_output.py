"""The output of a run: progress and a summary on stderr for people, or events on stdout for programs.

It is written by a thread, so that a reader that does not read holds up no run. A full pipe or a stopped terminal would
otherwise stop everything: the agent's tools, deadlines, and Ctrl+C.
"""

from __future__ import annotations

import errno
import io
import json
import os
import sys
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from threading import Condition, Thread
from typing import TYPE_CHECKING, Final, TextIO

import click

from trunkline.agents.runs.progress import RunProgress, RunSummary
from trunkline.agents.runs.run_events import RunEnded, RunEvent, StepEnded, ToolCallEnded, Warned, as_json
from trunkline.cli.spinner import Spinner
from trunkline.cli.terminal import echo_data

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


_MOST_BYTES: Final = 64 << 20
"""How much output is kept for a reader; beyond that, writing fails."""


class OutputBuffer:
    """Writes to descriptors from one thread, in order, even if several of them are the same terminal."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._changed = Condition()
        self._queue: deque[tuple[int, bytes]] = deque()
        self._waiting_bytes = 0
        self._ended = False
        self.errors: dict[int, OSError] = {}
        """By descriptor, the error after which nothing more is written to it."""
        self._thread = Thread(target=self._write_all, name="output", daemon=True)
        self._thread.start()

    def put(self, fd: int, data: bytes) -> None:
        """Queue data. Raises the descriptor's earlier error, if it had one."""
        with self._changed:
            if self._waiting_bytes + len(data) > self._most_bytes:
                self.errors.setdefault(fd, OSError(errno.ENOBUFS, "nobody reads the output"))
            if fd in self.errors:
                raise self.errors[fd]
            self._waiting_bytes += len(data)
            self._queue.append((fd, data))
            self._changed.notify_all()

    def finish(self, limit_s: float | None) -> None:
        """Wait until everything is written, at most for the given time. Nothing can be written afterwards."""
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
            left = memoryview(data)
            try:
                while left and fd not in self.errors:
                    left = left[os.write(fd, left) :]
            except OSError as error:
                self.errors[fd] = error
            with self._changed:
                self._waiting_bytes -= len(data)
                self._changed.notify_all()


class _BufferedStream(io.BufferedIOBase):
    """Takes the place of a descriptor below a text stream. Errors pass silently unless it is `strict`."""

    def __init__(self, buffer: OutputBuffer, fd: int, *, strict: bool) -> None:
        self.name = f"descriptor {fd}"
        self._buffer = buffer
        self._fd = fd
        self._strict = strict

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def isatty(self) -> bool:
        return os.isatty(self._fd)

    def write(self, buffer: ReadableBuffer, /) -> int:
        data = bytes(buffer)
        try:
            self._buffer.put(self._fd, data)
        except OSError:
            if self._strict:
                raise
        return len(data)


@contextmanager
def buffered_output() -> Generator[OutputBuffer, None, None]:
    """Write stdout and stderr through a buffer inside the block, which should end with `finish`."""
    buffer = OutputBuffer()
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _over(buffer, sys.stdout, strict=True), _over(buffer, sys.stderr, strict=False)
    try:
        yield buffer
    finally:
        sys.stdout, sys.stderr = before
        buffer.finish(0.0)


def _over(buffer: OutputBuffer, stream: TextIO, *, strict: bool) -> TextIO:
    try:
        fd = stream.fileno()
    except (OSError, ValueError):
        return stream  # not a file
    stream.flush()
    return io.TextIOWrapper(
        _BufferedStream(buffer, fd, strict=strict), stream.encoding, stream.errors, newline="\n", write_through=True
    )


# -- what is shown ----------------------------------------------------------------------------------------------------

_COLOURS: Final = {"success": "green", "failure": "red", "interrupted": "yellow"}


class JsonOutput:
    """Prints each event at once as one line of JSON."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        self.spinner = Spinner("")
        self._redact = redact

    def on_event(self, event: RunEvent) -> None:
        members = as_json(event, self._redact)
        members["time"] = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = json.dumps(members)  # ASCII, so that no control character reaches a terminal
        with suppress(OSError):
            sys.stdout.write(f"{line}\n")

    def close(self, ended: RunEnded) -> None:
        """Nothing is left to print."""


class TextOutput:
    """Prints progress with a spinner below it, a summary at the end, and the last output on stdout."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        self.spinner = Spinner("")
        self._progress = RunProgress(redact)
        self._summary = RunSummary(redact)

    def on_event(self, event: RunEvent) -> None:
        self._summary.on_event(event)
        activity = self._progress.activity(event)
        if activity:
            self.spinner.restart(activity)
        for line in self._progress.lines(event):
            self._show(_styled(line, event))

    def close(self, ended: RunEnded) -> None:
        for line in self._summary.lines():
            self._show(line)
        if ended.output:
            with suppress(OSError):
                echo_data(ended.output)

    def _show(self, line: str) -> None:
        self.spinner.clear()
        click.echo(line, err=True)


def _styled(line: str, event: RunEvent) -> str:
    if isinstance(event, Warned):
        return click.style(line, fg="yellow")
    if isinstance(event, StepEnded | RunEnded):
        return click.style(line, fg=_COLOURS[event.status], bold=isinstance(event, RunEnded))
    return click.style(line, dim=True) if isinstance(event, ToolCallEnded) else line
