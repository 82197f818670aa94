"""Reads and writes the pipes of child processes, keeps bounded amounts of their output, and makes it safe to show."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from trunkline.core.errors import SOURCE_LOST, SOURCE_OVER_LIMITS, Code
from trunkline.core.hidden_text import reveal
from trunkline.runtime.fair_reading import FairReader

if TYPE_CHECKING:
    from trunkline.runtime.supervisor_client import Child

_READ_BYTES: Final = 1 << 18
_READS_AT_THE_END: Final = 8  # two mebibytes, more than a pipe holds
_PAUSE_S: Final = 0.002  # after each _READ_BYTES: copying them out of the pipe takes time as well
_WRITE_BYTES: Final = 1 << 16

_KEPT_BYTES: Final = 16 * 1024
_SHOWN_CHARACTERS: Final = 2 * 1024
_FIRST_WORD: Final = re.compile(r"""\A[^\s"'`,;<>()\[\]{}]*""")
"""The word at a cut may be part of a secret, however long."""
_UNPRINTABLE: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def safe_text(text: str, redact: Callable[[str], str]) -> str:
    """A program's text without control characters and secrets, and with hidden characters made visible.

    Secrets are redacted before hidden characters become visible, because a secret may contain some.
    """
    text = redact(_UNPRINTABLE.sub("", text))
    return text if text.isascii() else reveal(text)


def head_text(data: bytes, limit_bytes: int) -> str:
    """The beginning of a text, cut between words: half a secret would not be recognised as one."""
    text = data[:limit_bytes].decode(errors="replace")
    return text if len(data) < limit_bytes else _FIRST_WORD.sub("", text[::-1], count=1)[::-1]


def tail_text(text: str, limit: int) -> str:
    """The end of a text, cut between lines or words."""
    return text if len(text) <= limit else _without_cut_line(text[-limit:])


def _without_cut_line(text: str) -> str:
    """The text without its first line, or if it has only one, its first word: some secrets are several words."""
    lines = text.partition("\n")[2]
    return lines if lines.strip() else _FIRST_WORD.sub("", text, count=1)


class StderrTail:
    """The last of what a program wrote to stderr."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact
        self._kept = HeadTailBuffer(head_bytes=0, tail_bytes=_KEPT_BYTES)

    def add(self, data: bytes) -> None:
        self._kept.add(data)

    def __str__(self) -> str:
        kept = self._kept.tail.decode(errors="replace")
        text = safe_text(_without_cut_line(kept) if self._kept.dropped_bytes else kept, self._redact)
        return text.strip()[-_SHOWN_CHARACTERS:]  # cut after redaction: half a secret would not be recognised


class PipeProtocol(asyncio.Protocol):
    """Passes on what a pipe's transport reads."""

    def __init__(self, on_data: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        self._on_data = on_data
        self._on_end = on_end

    def data_received(self, data: bytes) -> None:
        self._on_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_end()


def stderr_hint(tail: str) -> str:
    return f"its last output on stderr: {tail}" if tail else ""


def describe_exit(child: Child) -> tuple[Code, str]:
    """The error code for a program that has ended, and a description of how it ended."""
    if child.exceeded is not None:
        return SOURCE_OVER_LIMITS, f"was ended because it {child.exceeded}"
    return SOURCE_LOST, "has ended" if child.exited.cancelled() else exit_reason(child.exited.result())


def exit_reason(code: int) -> str:
    return f"was ended by signal {-code}" if code < 0 else f"exited with status {code}"


class HeadTailBuffer:
    """Keeps the first `head_bytes` and the last `tail_bytes` of an output, and counts what is between them."""

    __slots__ = ("_head", "_head_bytes", "_tail", "_tail_bytes", "total_bytes", "total_lines")

    def __init__(self, *, head_bytes: int, tail_bytes: int) -> None:
        self._head_bytes = head_bytes
        self._tail_bytes = tail_bytes
        self._head = bytearray()
        self._tail = bytearray()
        self.total_bytes = 0
        self.total_lines = 0
        """Line ends so far, including those that were dropped."""

    def add(self, data: bytes) -> None:
        self.total_bytes += len(data)
        self.total_lines += data.count(b"\n")
        room = self._head_bytes - len(self._head)
        if room:
            self._head += data[:room]
            data = data[room:]
        self._tail += data[-self._tail_bytes :]
        if len(self._tail) > 2 * self._tail_bytes:  # not every time, because it moves the bytes
            del self._tail[: -self._tail_bytes]

    @property
    def head(self) -> bytes:
        return bytes(self._head)

    @property
    def tail(self) -> bytes:
        """The end of what came after the head."""
        return bytes(self._tail[-self._tail_bytes :])

    @property
    def dropped_bytes(self) -> int:
        """How many bytes are missing between head and tail."""
        return self.total_bytes - len(self._head) - min(len(self._tail), self._tail_bytes)


# The classes below need no tasks or transports. They never wait, so cancelling their owner cannot leak a descriptor.


class PipeReader:
    """Passes on what a pipe brings, with pauses so that other work on the event loop is not held up."""

    def __init__(self, pipe: int, on_data: Callable[[bytes], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._pipe = pipe
        self._on_data = on_data
        self._since_pause = 0
        self._fair_reader = FairReader(self._pass_on, self._set_reading)
        self._set_reading(True)

    def close(self) -> None:
        """Pass on what the pipe still holds, once nobody writes to it any more, and close it."""
        self._set_reading(False)
        try:
            self._fair_reader.finish()
            for _ in range(_READS_AT_THE_END):
                data = self._read()
                if not data:
                    break
                self._on_data(data)
        finally:
            self._fair_reader.close()
            os.close(self._pipe)

    def _readable(self) -> None:
        data = self._read()
        if data:
            self._fair_reader.take(data)
        elif data is not None:
            self._set_reading(False)

    def _pass_on(self, data: bytes) -> None:
        self._since_pause += len(data)
        if self._since_pause >= _READ_BYTES:
            self._since_pause = 0
            self._fair_reader.rest(_PAUSE_S)
        self._on_data(data)

    def _set_reading(self, wanted: bool) -> None:
        if wanted:
            self._loop.add_reader(self._pipe, self._readable)
        else:
            self._loop.remove_reader(self._pipe)

    def _read(self) -> bytes | None:
        """The next data, empty at the end; None when nothing has arrived."""
        try:
            return os.read(self._pipe, _READ_BYTES)
        except BlockingIOError:
            return None


class PipeWriter:
    """Writes all of `data` to a pipe and closes it, early if the other end is closed."""

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
        """Close the pipe; what is not written yet is dropped."""
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
