"""Where a run is shown: progress and a summary on stderr for people, or an event a line on stdout for programs.

Both write to streams that take everything at once (`aside.py`), and whose failures are told at the end of the run.
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
from typing import TYPE_CHECKING, Final, Protocol, TextIO

import click

from trunkline.agents.runs.progress import RunProgress, RunSummary
from trunkline.agents.runs.run_events import RunEnded, RunEvent, StepEnded, ToolCallEnded, Warned, as_json
from trunkline.cli.spinner import Spinner
from trunkline.cli.terminal import echo_data

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


# Output that makes nobody wait: what is written leaves in a thread, so a reader that does not read holds up no run.
#
# A pipe that is full or a terminal that was stopped would otherwise stop everything: the agent's tools, deadlines, and
# also Ctrl+C.

_MOST_BYTES: Final = 64 << 20
"""What waits for a reader at most; more counts as written to nobody."""


class OutputBuffer:
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


class _BufferedStream(io.BufferedIOBase):
    """What a text stream writes to in place of its descriptor. Where it does not `matter`, failures pass silently."""

    def __init__(self, aside: OutputBuffer, fd: int, *, matters: bool) -> None:
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
def buffered_output() -> Generator[OutputBuffer, None, None]:
    """While this lasts, stdout and stderr are such streams. Whoever uses it also calls `finish`."""
    aside = OutputBuffer()
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _over(aside, sys.stdout, matters=True), _over(aside, sys.stderr, matters=False)
    try:
        yield aside
    finally:
        sys.stdout, sys.stderr = before
        aside.finish(0.0)


def _over(aside: OutputBuffer, stream: TextIO, *, matters: bool) -> TextIO:
    try:
        fd = stream.fileno()
    except (OSError, ValueError):
        return stream  # no file at all
    stream.flush()
    return io.TextIOWrapper(
        _BufferedStream(aside, fd, matters=matters), stream.encoding, stream.errors, newline="\n", write_through=True
    )


_COLOURS: Final = {"success": "green", "failure": "red", "interrupted": "yellow"}


class Screen(Protocol):
    waiting: Spinner

    def hear(self, event: RunEvent, /) -> None: ...
    def close(self, ended: RunEnded, /) -> None: ...


class JsonScreen:
    """One JSON object a line, at once. Nothing that happens to stdout ends the run."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        self.waiting = Spinner("")
        self._redact = redact

    def hear(self, event: RunEvent) -> None:
        members = as_json(event, self._redact)
        members["time"] = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = json.dumps(members)  # ASCII: nothing in it reaches a terminal as a control character
        with suppress(OSError):
            sys.stdout.write(f"{line}\n")

    def close(self, ended: RunEnded) -> None:
        """Everything has been said."""


class PeopleScreen:
    """Lines as things happen, below them what is waited for; at the end a table, and on stdout the last output."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        self.waiting = Spinner("")
        self._progress = RunProgress(redact)
        self._summary = RunSummary(redact)

    def hear(self, event: RunEvent) -> None:
        self._summary.on_event(event)
        activity = self._progress.activity(event)
        if activity:
            self.waiting.begin(activity)
        for line in self._progress.lines(event):
            self._show(_styled(line, event))

    def close(self, ended: RunEnded) -> None:
        for line in self._summary.lines():
            self._show(line)
        if ended.output:
            with suppress(OSError):
                echo_data(ended.output)

    def _show(self, line: str) -> None:
        self.waiting.clear()
        click.echo(line, err=True)


def _styled(line: str, event: RunEvent) -> str:
    if isinstance(event, Warned):
        return click.style(line, fg="yellow")
    if isinstance(event, StepEnded | RunEnded):
        return click.style(line, fg=_COLOURS[event.status], bold=isinstance(event, RunEnded))
    return click.style(line, dim=True) if isinstance(event, ToolCallEnded) else line
