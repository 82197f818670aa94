"""What a child process writes: its pipes as callbacks, and the end of its stderr, safe to show."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from trunkline.core.errors import SOURCE_LOST, SOURCE_OVER_LIMITS, Code
from trunkline.core.hidden_text import reveal

if TYPE_CHECKING:
    from trunkline.runtime.children import Child
import os

from trunkline.runtime.fair_reading import Turns

_KEPT_BYTES: Final = 16 * 1024
_SHOWN_CHARACTERS: Final = 2 * 1024
_FIRST_WORD: Final = re.compile(r"""\A[^\s"'`,;<>()\[\]{}]*""")
"""What is cut may be a part of a secret, however long that is."""
_UNPRINTABLE: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def harmless(text: str, redact: Callable[[str], str]) -> str:
    """Text of a program that others may see: nothing in it drives a terminal, no secret of ours is in it, and a model
    reads in it what people see. A secret may have hidden characters in it, so they are shown last."""
    text = redact(_UNPRINTABLE.sub("", text))
    return text if text.isascii() else reveal(text)


def beginning(data: bytes, limit_bytes: int) -> str:
    """The first of a text that may be long. What was cut ends at a border between words: half a secret would not be
    recognised as one."""
    text = data[:limit_bytes].decode(errors="replace")
    return text if len(data) < limit_bytes else _FIRST_WORD.sub("", text[::-1], count=1)[::-1]


def end(text: str, limit: int) -> str:
    """The last of a text; it too begins at a border."""
    return text if len(text) <= limit else _from_border(text[-limit:])


def _from_border(text: str) -> str:
    """A line is better than a word: some secrets are several words."""
    lines = text.partition("\n")[2]
    return lines if lines.strip() else _FIRST_WORD.sub("", text, count=1)


class StderrTail:
    """The last of what a program wrote to stderr."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact
        self._kept = bytearray()
        self._is_cut = False

    def add(self, data: bytes) -> None:
        self._kept += data[-_KEPT_BYTES:]
        self._is_cut |= len(data) > _KEPT_BYTES
        if len(self._kept) > 2 * _KEPT_BYTES:
            del self._kept[:-_KEPT_BYTES]
            self._is_cut = True

    def __str__(self) -> str:
        """Half a secret would not be recognised as one, so it is cut last."""
        kept = self._kept.decode(errors="replace")
        text = harmless(_from_border(kept) if self._is_cut else kept, self._redact)
        return text.strip()[-_SHOWN_CHARACTERS:]


class PipeProtocol(asyncio.Protocol):
    def __init__(self, on_data: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        self._on_data = on_data
        self._on_end = on_end

    def data_received(self, data: bytes) -> None:
        self._on_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_end()


def stderr_hint(tail: str) -> str:
    return f"its last output on stderr: {tail}" if tail else ""


def end_of(child: Child) -> tuple[Code, str]:
    """How a program ended that has: the code for calls that it carried, and the reason."""
    if child.exceeded is not None:
        return SOURCE_OVER_LIMITS, f"was ended because it {child.exceeded}"
    return SOURCE_LOST, "has ended" if child.exited.cancelled() else exit_reason(child.exited.result())


def exit_reason(code: int) -> str:
    return f"was ended by signal {-code}" if code < 0 else f"exited with status {code}"


# The beginning and the end of a long output, in bounded memory: what lies between is counted and dropped.


class HeadAndTail:
    """Keeps the first `head_bytes` and the last `tail_bytes` of what is added, and never much more than that."""

    __slots__ = ("_head", "_head_bytes", "_tail", "_tail_bytes", "total_bytes", "total_lines")

    def __init__(self, *, head_bytes: int, tail_bytes: int) -> None:
        self._head_bytes = head_bytes
        self._tail_bytes = tail_bytes
        self._head = bytearray()
        self._tail = bytearray()
        self.total_bytes = 0
        self.total_lines = 0
        """Line ends so far, those in what was dropped included."""

    def add(self, data: bytes) -> None:
        self.total_bytes += len(data)
        self.total_lines += data.count(b"\n")
        room = self._head_bytes - len(self._head)
        if room:
            self._head += data[:room]
            data = data[room:]
        self._tail += data[-self._tail_bytes :]
        if len(self._tail) > 2 * self._tail_bytes:  # not at every step: moving the bytes costs
            del self._tail[: -self._tail_bytes]

    @property
    def head(self) -> bytes:
        return bytes(self._head)

    @property
    def tail(self) -> bytes:
        """What came after the head, or the end of it."""
        return bytes(self._tail[-self._tail_bytes :])

    @property
    def dropped_bytes(self) -> int:
        """How much is missing between head and tail."""
        return self.total_bytes - len(self._head) - min(len(self._tail), self._tail_bytes)


# A child's pipes without tasks or transports: read as they fill, written as they empty, closed in one step.
#
# Nothing here waits, so a cancelled owner cannot leave a descriptor behind that nobody has.

_READ_BYTES: Final = 1 << 18
_READS_AT_THE_END: Final = 8  # two mebibytes, more than a pipe holds
_BREATHER_S: Final = 0.002  # after each _READ_BYTES: copying them out of the pipe takes time as well
_WRITE_BYTES: Final = 1 << 16


class PipeReader:
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


class PipeWriter:
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
