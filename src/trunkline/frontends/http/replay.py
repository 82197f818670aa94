"""Keeps the events of a session's streams for clients that lost a connection and resume.

Every stream has a number and its events are counted, so an event's id (`3-7`) names both. What is kept is limited per
session and in total; the oldest goes first, whichever session it belongs to. A response that was dropped before the
client fetched it becomes an error.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Final, Protocol

from trunkline.core.errors import INTERNAL, Problem
from trunkline.protocol.jsonrpc import encode_error, error_message

MAX_EVENTS: Final = 512
MAX_BYTES: Final = 4 * 1024 * 1024
MAX_TOTAL_BYTES: Final = 64 * 1024 * 1024
_MAX_STREAMS: Final = 1024
_DIGITS: Final = 18


class StreamTransport(Protocol):
    """The connection that carries a stream at present."""

    def send_event(self, event_id: bytes, data: bytes, /) -> None: ...
    def end_stream(self) -> None: ...


class ReplayBudget:
    """The total of what all sessions keep, in the order it came: the oldest event is dropped first."""

    __slots__ = ("_next", "_order", "size_bytes")

    def __init__(self) -> None:
        self.size_bytes = 0
        self._next = 0
        # Not a plain dict: finding its first entry means stepping over all deleted ones.
        self._order: OrderedDict[int, EventReplay] = OrderedDict()

    def __len__(self) -> int:
        """How many events are kept."""
        return len(self._order)

    def add(self, replay: EventReplay, size_bytes: int) -> int:
        """Count an event of that session; returns its position, for `remove`."""
        position = self._next
        self._next += 1
        self._order[position] = replay
        self.size_bytes += size_bytes
        return position

    def remove(self, position: int, size_bytes: int) -> None:
        del self._order[position]
        self.size_bytes -= size_bytes

    def drop_surplus(self) -> None:
        """Drop the oldest events; the oldest of all is the oldest of its own session too."""
        while self.size_bytes > MAX_TOTAL_BYTES:
            next(iter(self._order.values())).drop_oldest()


class ReplayStream:
    """One stream of a session, carried by one connection after the other."""

    __slots__ = ("_count", "_fetched", "_id_json", "_replay", "answered", "events", "number", "transport")

    def __init__(self, replay: EventReplay, number: int, id_json: bytes) -> None:
        self._replay = replay
        self._id_json = id_json
        self._count = 0
        self._fetched = 0
        self.number = number
        self.events: deque[tuple[int, bytes]] = deque()
        self.transport: StreamTransport | None = None
        self.answered = False
        """Whether its last event was sent."""

    def id_of(self, count: int) -> bytes:
        """The id of the event with this count; 0 is before the first."""
        return b"%d-%d" % (self.number, count)

    def send(self, data: bytes, *, last: bool = False) -> None:
        if self.answered:
            return
        self._count += 1
        self.answered = last
        if self.transport is not None:
            self._send_event(self._count, data)
        self._replay.keep(self, self._count, data)
        self._end_if_answered()

    def attach(self, transport: StreamTransport, after: int) -> None:
        """Send on another connection from now on, beginning after that event."""
        before, self.transport = self.transport, transport
        if before is not None and before is not transport:
            before.end_stream()
        if self.answered and not self.events and after < self._count:
            problem = Problem(
                code=INTERNAL,
                message="The response was not fetched in time, and more events came than are kept",
                phase="sent",
                executed="unknown",
            )
            transport.send_event(self.id_of(self._count), error_message(self._id_json, encode_error(problem)))
        for count, data in list(self.events):
            if count > after:
                self._send_event(count, data)
        self._end_if_answered()

    def detach(self, transport: StreamTransport) -> None:
        if self.transport is transport:
            self.transport = None

    def end(self) -> None:
        """End the stream without a response."""
        self.answered = True
        self._fetched = self._count
        self._end_if_answered()

    def _send_event(self, count: int, data: bytes) -> None:
        assert self.transport is not None
        self._fetched = max(self._fetched, count)
        self.transport.send_event(self.id_of(count), data)

    def _end_if_answered(self) -> None:
        if self.answered and self.transport is not None:
            self.transport.end_stream()

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to resume: the last event was sent, and all were fetched or dropped."""
        return self.answered and not self.events and self._fetched == self._count


class EventReplay:
    """All streams of one session. `primes` says whether a stream begins with an event id and no data (2025-11-25)."""

    __slots__ = ("_budget", "_closed", "_next", "_order", "_size_bytes", "_streams", "primes")

    def __init__(self, budget: ReplayBudget, *, primes: bool) -> None:
        self.primes = primes
        self._budget = budget
        self._order: deque[tuple[int, ReplayStream]] = deque()
        self._streams: dict[int, ReplayStream] = {}
        self._size_bytes = 0
        self._next = 0
        self._closed = False

    def open(self, id_json: bytes = b"null") -> ReplayStream:
        """Open a stream; `id_json` is the id of its request."""
        stream = self._streams[self._next] = ReplayStream(self, self._next, id_json)
        self._next += 1
        if len(self._streams) > _MAX_STREAMS:
            self._forget_oldest()
        return stream

    def find(self, event_id: bytes) -> tuple[ReplayStream, int] | None:
        """The stream an event id names, and the event's count on it."""
        number, dash, count = event_id.partition(b"-")
        if not (dash and number.isdigit() and count.isdigit() and max(len(number), len(count)) < _DIGITS):
            return None
        stream = self._streams.get(int(number))
        return None if stream is None else (stream, int(count))

    def transport(self) -> StreamTransport | None:
        """The connection of the newest unanswered stream that has one."""
        for stream in reversed(self._streams.values()):
            if not stream.answered and stream.transport is not None:
                return stream.transport
        return None

    def forget(self, stream: ReplayStream) -> None:
        """Allow no resuming of this stream; its events are dropped in their turn."""
        self._streams.pop(stream.number, None)

    def keep(self, stream: ReplayStream, count: int, data: bytes) -> None:
        if self._closed:
            return
        stream.events.append((count, data))
        self._order.append((self._budget.add(self, len(data)), stream))
        self._size_bytes += len(data)
        # Its own limit comes first: what is too large for one session costs no other one anything.
        while self._size_bytes > MAX_BYTES or len(self._order) > MAX_EVENTS:
            self.drop_oldest()
        self._budget.drop_surplus()

    def drop_oldest(self) -> None:
        position, stream = self._order.popleft()
        _, data = stream.events.popleft()
        self._size_bytes -= len(data)
        self._budget.remove(position, len(data))
        if stream.is_done:
            self._streams.pop(stream.number, None)

    def _forget_oldest(self) -> None:
        """Forget a stream whose events were dropped before they were fetched; it is never one in use."""
        for number, stream in self._streams.items():
            if stream.answered and not stream.events:
                del self._streams[number]
                return

    def close(self) -> None:
        """Keep nothing more: the session is over. What is still sent reaches open connections only."""
        self._closed = True
        while self._order:
            self.drop_oldest()
        self._streams.clear()
