"""What a session's streams have said, for a client that lost a connection and comes back for the rest.

Every stream has a number and its events are counted, so an event's id (`3-7`) names both. What is kept is bounded, per
session and for all of them; the oldest goes first, whoever said it. An answer that nobody could fetch in time
becomes an error.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Final, Protocol

from trunkline.core.errors import INTERNAL, Problem
from trunkline.protocol.jsonrpc import encode_error, error_message

MAX_EVENTS: Final = 512
MAX_BYTES: Final = 4 * 1024 * 1024
MAX_TOTAL_BYTES: Final = 64 * 1024 * 1024
_MAX_TRACKS: Final = 1024
_DIGITS: Final = 18


class StreamTransport(Protocol):
    """The connection that carries a stream at the moment."""

    def send_event(self, event_id: bytes, data: bytes, /) -> None: ...
    def end_stream(self) -> None: ...


class ReplayBudget:
    """What all sessions keep together, in the order it was said: a silent session gives way to one that speaks."""

    __slots__ = ("_next", "_order", "size_bytes")

    def __init__(self) -> None:
        self.size_bytes = 0
        self._next = 0
        # Not a plain dict: that one steps over all that went before, each time, to find its first.
        self._order: OrderedDict[int, EventReplay] = OrderedDict()

    def __len__(self) -> int:
        """How many events are kept."""
        return len(self._order)

    def add(self, replay: EventReplay, size_bytes: int) -> int:
        """An event of that session is kept; its place in the order is what `remove` takes."""
        place = self._next
        self._next += 1
        self._order[place] = replay
        self.size_bytes += size_bytes
        return place

    def remove(self, place: int, size_bytes: int) -> None:
        del self._order[place]
        self.size_bytes -= size_bytes

    def drop_surplus(self) -> None:
        """The oldest of all is always the oldest of its own session, too."""
        while self.size_bytes > MAX_TOTAL_BYTES:
            next(iter(self._order.values())).drop_oldest()


class ReplayStream:
    """One stream of a session, whichever connections carry it one after the other."""

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
        """Whether its last event was said."""

    def id_of(self, count: int) -> bytes:
        """The id of its event with this count; 0 is before the first."""
        return b"%d-%d" % (self.number, count)

    def send(self, data: bytes, *, last: bool = False) -> None:
        if self.answered:
            return
        self._count += 1
        self.answered = last
        if self.transport is not None:
            self._hand_over(self._count, data)
        self._replay.keep(self, self._count, data)
        self._end_if_answered()

    def attach(self, transport: StreamTransport, after: int) -> None:
        """Another connection carries it from here on, beginning with what came after that event."""
        before, self.transport = self.transport, transport
        if before is not None and before is not transport:
            before.end_stream()
        if self._is_answer_lost(after):
            transport.send_event(self.id_of(self._count), self._loss())
        for count, data in list(self.events):
            if count > after:
                self._hand_over(count, data)
        self._end_if_answered()

    def detach(self, transport: StreamTransport) -> None:
        if self.transport is transport:
            self.transport = None

    def end(self) -> None:
        """Nothing more comes, without an answer."""
        self.answered = True
        self._fetched = self._count
        self._end_if_answered()

    def _hand_over(self, count: int, data: bytes) -> None:
        assert self.transport is not None
        self._fetched = max(self._fetched, count)
        self.transport.send_event(self.id_of(count), data)

    def _end_if_answered(self) -> None:
        if self.answered and self.transport is not None:
            self.transport.end_stream()

    # -- what is not kept any more --------------------------------------------------------------------------------

    @property
    def is_spent(self) -> bool:
        """Whether nobody can miss it: all was said, and fetched or turned into a loss long ago."""
        return self.answered and not self.events and self._fetched == self._count

    def _is_answer_lost(self, after: int) -> bool:
        return self.answered and not self.events and after < self._count

    def _loss(self) -> bytes:
        problem = Problem(
            code=INTERNAL,
            message="The answer was not fetched in time, and more came than is kept",
            phase="sent",
            executed="unknown",
        )
        return error_message(self._id_json, encode_error(problem))


class EventReplay:
    """All streams of one session. `primes` says whether a stream begins with an id of its own (2025-11-25)."""

    __slots__ = ("_budget", "_closed", "_next", "_order", "_size_bytes", "_streams", "primes")

    def __init__(self, kept: ReplayBudget, *, primes: bool) -> None:
        self.primes = primes
        self._budget = kept
        self._order: deque[tuple[int, ReplayStream]] = deque()
        self._tracks: dict[int, ReplayStream] = {}
        self._size_bytes = 0
        self._next = 0
        self._closed = False

    def open(self, id_json: bytes = b"null") -> ReplayStream:
        """A new stream; `id_json` is the request that it is for."""
        stream = self._tracks[self._next] = ReplayStream(self, self._next, id_json)
        self._next += 1
        if len(self._tracks) > _MAX_TRACKS:
            self._forget_oldest()
        return stream

    def find(self, event_id: bytes) -> tuple[ReplayStream, int] | None:
        """The stream an event id names, and the event's count on it."""
        number, dash, count = event_id.partition(b"-")
        if not (dash and number.isdigit() and count.isdigit() and max(len(number), len(count)) < _DIGITS):
            return None
        stream = self._tracks.get(int(number))
        return None if stream is None else (stream, int(count))

    def transport(self) -> StreamTransport | None:
        """The connection of the latest unanswered stream that has one."""
        for stream in reversed(self._tracks.values()):
            if not stream.answered and stream.transport is not None:
                return stream.transport
        return None

    def forget(self, stream: ReplayStream) -> None:
        """Nobody can come back to it; what it said is dropped in its turn."""
        self._tracks.pop(stream.number, None)

    def keep(self, stream: ReplayStream, count: int, data: bytes) -> None:
        if self._closed:
            return
        stream.events.append((count, data))
        self._order.append((self._budget.add(self, len(data)), stream))
        self._size_bytes += len(data)
        # Its own bound comes first: what is too large for one session costs no other one anything.
        while self._is_too_much:
            self.drop_oldest()
        self._budget.drop_surplus()

    @property
    def _is_too_much(self) -> bool:
        return self._size_bytes > MAX_BYTES or len(self._order) > MAX_EVENTS

    def drop_oldest(self) -> None:
        place, stream = self._order.popleft()
        _, data = stream.events.popleft()
        self._size_bytes -= len(data)
        self._budget.remove(place, len(data))
        if stream.is_spent:
            self._tracks.pop(stream.number, None)

    def _forget_oldest(self) -> None:
        """So many answers were never fetched that nobody will; streams in use are never among them."""
        for number, stream in self._tracks.items():
            if stream.answered and not stream.events:
                del self._tracks[number]
                return

    def close(self) -> None:
        """The session is over; what is still said in it reaches connections that are open, and is not kept."""
        self._closed = True
        while self._order:
            self.drop_oldest()
        self._tracks.clear()
