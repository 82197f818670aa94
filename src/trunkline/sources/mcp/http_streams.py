"""Streams of events that a legacy HTTP server sends on a GET: its own news, and the rest of an answer that broke off.

A stream that ended is asked for again after the pause its server wished for, from the last event that was seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from trunkline.core.call import Request
from trunkline.core.errors import ANSWER_TOO_LARGE, SOURCE_LOST
from trunkline.protocol.sse import SseEvent, SseParser, SseTooLarge
from trunkline.runtime.http_client import Exchange

if TYPE_CHECKING:
    from trunkline.sources.mcp.http_lane import HttpLane

REST_S: Final = 2.0
"""How long a stream may stay open after the answer that it was for."""
_AGAIN_S: Final = 1.0
_AGAIN_AT_LEAST_S: Final = 0.1
_AGAIN_AT_MOST_S: Final = 60.0
_UNSERVED_IN_A_ROW: Final = 3


def pause_s(parser: SseParser) -> float:
    """How long the server wants us to wait before we ask for its stream again."""
    if parser.retry_ms is None:
        return _AGAIN_S
    return min(max(parser.retry_ms / 1000, _AGAIN_AT_LEAST_S), _AGAIN_AT_MOST_S)


def deliver(lane: HttpLane, events: list[SseEvent], request: Request | None) -> None:
    for event in events:
        if event.data:
            lane.received(event.data, request)


class EventStream(Exchange):
    """One GET, from its head to its end. `request` is the one whose answer it brings, if it is for one."""

    __slots__ = ("_lane", "_request", "parser", "status", "too_large")

    def __init__(self, lane: HttpLane, last_event_id: str, request: Request | None = None) -> None:
        super().__init__(lane.stream_head(last_event_id))
        self._lane = lane
        self._request = request
        self.parser = SseParser(lane.limit_bytes)
        self.parser.last_event_id = last_event_id or None
        self.status = 0
        self.too_large = False

    @property
    def served(self) -> bool:
        return self.status == 200

    @property
    def last_event_id(self) -> str:
        return self.parser.last_event_id or ""

    def on_head(self, status: int, headers: Mapping[bytes, bytes]) -> None:
        self.status = status
        if self.served:
            self.unlimited()

    def on_body(self, data: bytes) -> None:
        if not self.served:
            return
        try:
            events = self.parser.feed(data)
        except SseTooLarge as error:
            self.abort()
            self.too_large = True
            deliver(self._lane, error.events, self._request)
            self.ended()
            return
        deliver(self._lane, events, self._request)

    def on_end(self) -> None:
        self.ended()

    def on_fail(self, reason: str, *, too_large: bool = False, malformed: bool = False) -> None:
        self.too_large = too_large
        self.ended()

    def ended(self) -> None:
        """It is over, however it went."""
        raise NotImplementedError


class OwnStream(EventStream):
    """The server's own stream of messages."""

    __slots__ = ("closed", "opened")

    def __init__(self, lane: HttpLane, last_event_id: str) -> None:
        super().__init__(lane, last_event_id)
        loop = asyncio.get_running_loop()
        self.opened: asyncio.Future[None] = loop.create_future()
        """Whether the server has said if it has such a stream."""
        self.closed: asyncio.Future[None] = loop.create_future()

    def on_head(self, status: int, headers: Mapping[bytes, bytes]) -> None:
        super().on_head(status, headers)
        _settle(self.opened)

    def ended(self) -> None:
        _settle(self.opened)
        _settle(self.closed)


class Resumption:
    """The rest of an answer, asked for until it is there, the server refuses, or nobody wants it any more.

    The message itself is never sent again: its tool may be running.
    """

    __slots__ = ("_lane", "_last_event_id", "_pause_s", "_request", "_stream", "_timer", "_unserved")

    written: Final = True

    def __init__(self, lane: HttpLane, request: Request, parser: SseParser) -> None:
        self._lane = lane
        self._request = request
        self._last_event_id = parser.last_event_id or ""
        self._pause_s = pause_s(parser)
        self._stream: _Rest | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._unserved = 0

    def start(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._pause_s, self._connect)

    def _connect(self) -> None:
        self._stream = _Rest(self._lane, self._last_event_id, self._request, self)
        self._lane.pool.send(self._stream)

    def abort(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._stream is not None:
            self._stream.abort()

    def stream_ended(self, stream: _Rest) -> None:
        lane, request = self._lane, self._request
        self._unserved = 0 if stream.served else self._unserved + 1
        if request.done:
            lane.ended(request, ok=True)
        elif stream.too_large:
            lane.ended(request, ok=True)
            lane.fail(request, lane.problem(ANSWER_TOO_LARGE, "an event is too large", request))
        elif stream.status not in (0, 200):
            self._give_up(f"its answer broke off, and asked for the rest it answered HTTP {stream.status}")
        elif self._unserved >= _UNSERVED_IN_A_ROW:
            self._give_up("its answer broke off, and the rest cannot be reached")
        else:
            self._last_event_id = stream.last_event_id
            if stream.parser.retry_ms is not None:
                self._pause_s = pause_s(stream.parser)
            self.start()

    def _give_up(self, reason: str) -> None:
        lane, request = self._lane, self._request
        problem = lane.problem(SOURCE_LOST, reason, request)
        lane.ended(request, ok=False)
        lane.fail(request, problem)


class _Rest(EventStream):
    __slots__ = ("_cut", "_owner")

    def __init__(self, lane: HttpLane, last_event_id: str, request: Request, owner: Resumption) -> None:
        super().__init__(lane, last_event_id, request)
        self._owner = owner
        self._cut: asyncio.TimerHandle | None = None

    def on_body(self, data: bytes) -> None:
        super().on_body(data)
        if self._request is not None and self._request.done and self._cut is None and not self.over:
            self._cut = asyncio.get_running_loop().call_later(REST_S, self._cut_off)

    def _cut_off(self) -> None:
        self.abort()
        self.ended()

    def abort(self) -> None:
        if self._cut is not None:
            self._cut.cancel()
        super().abort()

    def ended(self) -> None:
        if self._cut is not None:
            self._cut.cancel()
        self._owner.stream_ended(self)


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
