"""Fairness between connections: limits how long one connection may keep the event loop before the others get a turn.

Each line that a peer sends takes time. A chunk may hold a hundred thousand lines, and the loop reads many chunks of one
connection before it looks at another, so a turn is measured in time rather than bytes, chunks or lines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Final
from weakref import WeakKeyDictionary

SLICE_BYTES: Final = 8192
_FULL_BYTES: Final = 65_536
"""After a chunk of this size the next may follow at once; a smaller one is the last for now."""
_TURN_S: Final = 0.002
_MAX_TURN_S: Final = 0.005
"""For a connection that brings useful data: many responses that leave together cost less than a few at a time."""
_IDLE_TURNS: Final = 32
_MAX_RESTS: Final = 4
_MIN_REST_S: Final = 0.001


class FairReader:
    """Passes data of one connection to `feed` in slices that end with a line, and yields to others after each turn.

    While data waits for the next turn, the connection is not read: `set_reading` is called with False, then with True.
    `served` counts useful results, such as responses, if that is known: a connection that brings none for many turns
    rests between them, up to four times as long as a turn. A large line is not divided.

    `line_ends` may be set for other line ends; if empty, slices have `slice_bytes` each. However many connections wait
    for their next turn, only one of them gets it in each round of the event loop.
    """

    __slots__ = (
        "_at",
        "_data",
        "_feed",
        "_handle",
        "_idle_turns",
        "_open",
        "_queue",
        "_rest_s",
        "_served",
        "_served_before",
        "_set_reading",
        "_used_s",
        "line_ends",
        "more",
        "slice_bytes",
        "waiting",
    )

    def __init__(
        self,
        feed: Callable[[bytes], None],
        set_reading: Callable[[bool], None],
        served: Callable[[], int] | None = None,
    ) -> None:
        self._feed = feed
        self._set_reading = set_reading
        self._served = served
        self.line_ends: tuple[bytes, ...] = (b"\n",)
        self.slice_bytes = SLICE_BYTES
        self.more = False
        """Whether more data follows the slice that is being fed."""
        self.waiting = False
        """Whether the connection is not read until its next turn."""
        loop = asyncio.get_running_loop()
        self._queue = _queues.get(loop) or _queues.setdefault(loop, _TurnQueue(loop))
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
        """How much data was received and not fed yet."""
        return len(self._data) - self._at

    def take(self, data: bytes) -> None:
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
        """Called from `feed`: take nothing more from this connection for so long."""
        self._rest_s = seconds

    def finish(self) -> None:
        """Feed the rest now: the connection has been closed."""
        self._cancel()
        data, self._data, self._at = self._data[self._at :], b"", 0
        self.more = False
        if data and self._open:
            self._feed(data)

    def close(self) -> None:
        """Drop the rest, and the callbacks, so that no reference cycle is left."""
        self._cancel()
        self._open = False
        self._data, self._at = b"", 0
        self._feed = self._set_reading = _drop
        self._served = None

    def _cancel(self) -> None:
        self.waiting = False
        self._queue.leave(self)
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
            over = (self._used_s >= _TURN_S and (self._used_s >= _MAX_TURN_S or self._idle)) or self._rest_s > 0
        full = len(self._data) >= _FULL_BYTES
        if self._at >= len(self._data):
            self._data, self._at = b"", 0
        if over and self._open:
            self._turn_over()
        elif not full:
            self._used_s = 0.0

    @property
    def _idle(self) -> bool:
        """Whether nothing useful came since the last turn."""
        return self._served is None or self._served() == self._served_before

    def _cut(self, data: bytes, at: int) -> int:
        """The end of the first line that ends at least a slice after `at`."""
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
        rest_s = min(self._idle_turns / _IDLE_TURNS, _MAX_RESTS) * self._used_s
        self._rest_s = max(self._rest_s, rest_s)
        self._used_s = 0.0
        self._wait()

    def _wait(self) -> None:
        rest_s, self._rest_s = self._rest_s, 0.0
        self.waiting = True
        self._set_reading(False)
        if rest_s < _MIN_REST_S:
            self._queue.join(self)
        else:
            self._handle = self._queue.loop.call_later(rest_s, self._rested)

    def _rested(self) -> None:
        self._handle = None
        self._queue.join(self)

    def take_turn(self) -> None:
        """Called when it is this connection's turn."""
        self.waiting = False
        try:
            if self._data:
                self._work()
        finally:  # even if one line raised, those after it are read
            if not self.waiting and self._open:
                if self._data:
                    self.waiting = True
                    self._queue.join(self)
                else:
                    self._set_reading(True)


class _TurnQueue:
    """The readers of one event loop that wait for their next turn, in order."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._waiting: dict[FairReader, None] = {}
        self._scheduled = False

    def join(self, reader: FairReader) -> None:
        self._waiting[reader] = None
        if not self._scheduled:
            self._scheduled = True
            self.loop.call_soon(self._next_turn)

    def leave(self, reader: FairReader) -> None:
        self._waiting.pop(reader, None)

    def _next_turn(self) -> None:
        first = next(iter(self._waiting), None)
        if first is not None:
            del self._waiting[first]
        self._scheduled = bool(self._waiting)
        if self._scheduled:
            self.loop.call_soon(self._next_turn)
        if first is not None:
            first.take_turn()


_queues: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, _TurnQueue]] = WeakKeyDictionary()


def _drop(_: object) -> None:
    """Replaces the callbacks of a closed reader."""
