"""Turns: how much of the event loop one wire gets before the others have theirs.

Whatever a peer sends, a line of it costs us time. A chunk may hold a hundred thousand lines, and the loop hands on many
chunks of one wire before it looks at another: so it is time that is counted, not bytes, chunks or lines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Final
from weakref import WeakKeyDictionary

_SLICE_BYTES: Final = 8192
_FULL_BYTES: Final = 65_536
"""Behind a chunk of this size the next one of the same wire may come at once; a smaller one is the last for now."""
_TURN_S: Final = 0.002
_LONGEST_TURN_S: Final = 0.005
"""For one who brings what others wait for: many answers that leave together cost less than some at a time."""
_IDLE_TURNS: Final = 32
_MOST_RESTS: Final = 4
_LEAST_REST_S: Final = 0.001


class Turns:
    """Feeds what a wire brings to `feed`, in slices that end with a line, and after a turn's work lets others go first.

    While some of it waits for the next turn the wire is not read: `read(False)`, then `read(True)`. `served` counts
    what came of use, such as answers, where that is known: a wire that brings nothing but noise for many turns rests
    between them, up to four times as long as a turn. A large line is not divided.

    Whoever knows that lines end otherwise sets `line_ends`; without any, slices have `slice_bytes` each. However many
    wires wait for their next turn, in one round of the event loop only one of them has it.
    """

    __slots__ = (
        "_at",
        "_data",
        "_feed",
        "_handle",
        "_idle_turns",
        "_line",
        "_open",
        "_read",
        "_rest_s",
        "_served",
        "_served_before",
        "_used_s",
        "line_ends",
        "more",
        "slice_bytes",
        "waiting",
    )

    def __init__(
        self, feed: Callable[[bytes], None], read: Callable[[bool], None], served: Callable[[], int] | None = None
    ) -> None:
        self._feed = feed
        self._read = read
        self._served = served
        self.line_ends: tuple[bytes, ...] = (b"\n",)
        self.slice_bytes = _SLICE_BYTES
        self.more = False
        """Whether something came behind the slice that is being fed."""
        self.waiting = False
        """Whether the wire is left unread until its next turn."""
        self._line = _line_of(asyncio.get_running_loop())
        self._data = b""
        self._at = 0
        self._used_s = 0.0
        self._rest_s = 0.0
        self._idle_turns = 0
        self._served_before = 0
        self._handle: asyncio.TimerHandle | None = None
        self._open = True

    @property
    def held_bytes(self) -> int:
        """What came and was not fed yet."""
        return len(self._data) - self._at

    def take(self, data: bytes) -> None:
        """What the wire brought."""
        if self.waiting:
            self._data = self._data[self._at :] + data
            self._at = 0
        elif len(data) <= self.slice_bytes:
            self._feed(data)
            if self._rest_s:
                self._wait()
        else:
            self._data = data
            self._at = 0
            self._work()

    def rest(self, seconds: float) -> None:
        """Called from `feed`: nothing more of this wire for so long."""
        self._rest_s = seconds

    def finish(self) -> None:
        """The wire is gone: what it left is fed now."""
        self._cancel()
        data, self._data, self._at = self._data[self._at :], b"", 0
        self.more = False
        if data and self._open:
            self._feed(data)

    def close(self) -> None:
        """Nobody wants the rest. The wire is let go of, so that no cycle waits for the collector."""
        self._cancel()
        self._open = False
        self._data, self._at = b"", 0
        self._feed = self._read = _drop
        self._served = None

    def _cancel(self) -> None:
        self.waiting = False
        self._line.leave(self)
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _work(self) -> None:
        began = monotonic() - self._used_s
        over = False
        while self._at < len(self._data) and not over:
            data, at = self._data, self._at
            self._at = cut = self._cut(data, at)
            self.more = cut < len(data)
            self._feed(data[at:cut])
            self._used_s = monotonic() - began
            over = (self._used_s >= _TURN_S and (self._used_s >= _LONGEST_TURN_S or self._idle)) or self._rest_s > 0
        full = len(self._data) >= _FULL_BYTES
        if self._at >= len(self._data):
            self._data, self._at = b"", 0
        if over and self._open:
            self._turn_over()
        elif not full:
            self._used_s = 0.0

    @property
    def _idle(self) -> bool:
        """Whether nothing of use came since the last turn."""
        return self._served is None or self._served() == self._served_before

    def _cut(self, data: bytes, at: int) -> int:
        """Behind the first line that ends a slice or more after `at`."""
        end, cut = at + self.slice_bytes, len(data)
        if not self.line_ends:
            return min(end, cut)
        for line_end in self.line_ends:
            found = data.find(line_end, end, cut)
            cut = cut if found < 0 else found + 1
        return cut

    def _turn_over(self) -> None:
        if self._served is not None:
            self._idle_turns = self._idle_turns + 1 if self._idle else 0
            self._served_before = self._served()
        rest_s = min(self._idle_turns / _IDLE_TURNS, _MOST_RESTS) * self._used_s
        self._rest_s = max(self._rest_s, rest_s)
        self._used_s = 0.0
        self._wait()

    def _wait(self) -> None:
        rest_s, self._rest_s = self._rest_s, 0.0
        self.waiting = True
        self._read(False)
        if rest_s < _LEAST_REST_S:
            self._line.join(self)
        else:
            self._handle = self._line.loop.call_later(rest_s, self._rested)

    def _rested(self) -> None:
        self._handle = None
        self._line.join(self)

    def go_on(self) -> None:
        """It is this wire's turn."""
        self.waiting = False
        try:
            if self._data:
                self._work()
        finally:  # whatever one line did to us, those behind it are read
            if not self.waiting and self._open:
                if self._data:
                    self.waiting = True
                    self._line.join(self)
                else:
                    self._read(True)


class _Line:
    """Those whose last turn is over, in the order in which they get the next one."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._waiting: dict[Turns, None] = {}
        self._moves = False

    def join(self, turns: Turns) -> None:
        self._waiting[turns] = None
        if not self._moves:
            self._moves = True
            self.loop.call_soon(self._move)

    def leave(self, turns: Turns) -> None:
        self._waiting.pop(turns, None)

    def _move(self) -> None:
        first = next(iter(self._waiting), None)
        if first is not None:
            del self._waiting[first]
        self._moves = bool(self._waiting)
        if self._moves:
            self.loop.call_soon(self._move)
        if first is not None:
            first.go_on()


_lines: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, _Line]] = WeakKeyDictionary()


def _line_of(loop: asyncio.AbstractEventLoop) -> _Line:
    line = _lines.get(loop)
    if line is None:
        line = _lines[loop] = _Line(loop)
    return line


def _drop(_: object) -> None:
    """In place of what fed and read a wire that is closed."""
