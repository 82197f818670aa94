"""One client connection: requests in, in order; answers out, in the same order; cut when either side is too slow."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, Protocol, cast

from trunkline.core.call import Json
from trunkline.core.errors import BAD_HTTP, NO_ROOM, REQUEST_TOO_LARGE, GatewayError, Problem
from trunkline.core.unfinished_bytes import UnfinishedBytes
from trunkline.frontends.http.exchange import HttpExchange
from trunkline.frontends.http.requests import unparsed_request_body
from trunkline.protocol.http1 import CONTINUE, HttpRequest, RequestParser, head_size, response_head
from trunkline.protocol.http1_message import HttpLimits, HttpProblem
from trunkline.runtime.fair_reading import FairReader
from trunkline.runtime.listener import peer_has_hung_up

READ_S: Final = 15.0
IDLE_S: Final = 75.0
WRITE_S: Final = 10.0
STREAM_AFTER_S: Final = 10.0
KEEP_ALIVE_S: Final = 15.0
LINGER_S: Final = 2.0
_FIRST_REST_S: Final = 0.05
_LONGEST_REST_S: Final = 1.0
_FORGIVEN_S: Final = 0.9
"""Whoever waits as long as our refusals say (`retryAfterMs`, 1000 at least) is not slowed down a second time."""
_MAX_PIPELINED: Final = 16
_AT_ONCE: Final = 4
"""Of requests that came together, so many are begun at once; then it is the others' turn after each."""
_REQUEST_BYTES: Final = 1024
"""What a request that waits costs besides its head and its body."""
_LARGE_BYTES: Final = 4096
"""Of more that comes at once so much is read at a time, and after a turn's work others have theirs."""
_SLOW_S: Final = 2.0
"""A client that has not read for so long may have to give way to one that asks for a connection."""
_MAX_UNREAD_EVENTS_BYTES: Final = 1024 * 1024
_MAX_UNREAD_ANSWERS_BYTES: Final = 32 * 1024 * 1024
_MIN_READ_BYTES: Final = 64 * 1024
"""What a client must take of a large answer every `WRITE_S` seconds, or it does not read."""


class ConnectionHandler(Protocol):
    """Who answers the requests of a connection."""

    responding: int
    """How many connections wait for an answer, or have one that has not ended."""

    def handle(self, exchange: HttpExchange, request: HttpRequest, /) -> None: ...

    def check_head(self, request: HttpRequest, /) -> GatewayError | None:
        """Why a request is refused whose body has not come yet; None where the body is worth waiting for."""
        ...

    def refuse(self, exchange: HttpExchange, error: GatewayError, /) -> None: ...

    def first_request(self, connection: Connection, /) -> None:
        """It has sent its first whole request."""
        ...

    def closed(self, connection: Connection, /) -> None: ...


class Connection(asyncio.Protocol):
    __slots__ = (
        "_aborted",
        "_begun",
        "_closing",
        "_exchange",
        "_fair_reader",
        "_held_bytes",
        "_loop",
        "_parser",
        "_queue",
        "_queued_bytes",
        "_refusal",
        "_rest_ends_at",
        "_rest_s",
        "_resting",
        "_served",
        "_server",
        "_since",
        "_stuck_bytes",
        "_stuck_since",
        "_transport",
        "_turned_away",
        "_unfinished",
    )

    def __init__(self, server: ConnectionHandler, limits: HttpLimits, unfinished: UnfinishedBytes) -> None:
        self._server = server
        self._unfinished = unfinished
        self._parser = RequestParser(limits, self._requested, self._continue, self._awaits_body)
        self._queue: deque[HttpRequest] = deque()
        self._queued_bytes = 0
        self._held_bytes = 0
        self._begun = 0
        self._fair_reader: FairReader | None = None
        self._turned_away = False
        self._aborted = False
        self._exchange: HttpExchange | None = None
        self._transport: asyncio.Transport | None = None
        self._closing = False
        self._refusal: tuple[int, Problem] | None = None
        self._rest_ends_at = -_FORGIVEN_S
        self._rest_s = 0.0
        self._resting: asyncio.TimerHandle | None = None
        self._served = False
        self._loop = asyncio.get_running_loop()
        self._since = self._loop.time()
        self._stuck_since = 0.0
        self._stuck_bytes = 0

    # -- asyncio --------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._aborted:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._begun = 0
        turns = self._fair_reader
        if turns is not None and turns.waiting:
            turns.take(data)
        elif len(data) <= _LARGE_BYTES or self._parser.takes_whole(data):
            self._feed(data)
        else:
            self._feed_in_turns(data)

    def _feed_in_turns(self, data: bytes) -> None:
        """Many requests, or chunks of a byte each, take long to read. A body behind its head does not."""
        self._feed(data[:_LARGE_BYTES])
        rest = data[_LARGE_BYTES:]
        if self._parser.takes_whole(rest):
            self._feed(rest)
            return
        if self._fair_reader is None:
            self._fair_reader = FairReader(self._feed, self._read)
            self._fair_reader.line_ends, self._fair_reader.slice_bytes = (), _LARGE_BYTES
        self._fair_reader.take(rest)

    def _feed(self, data: bytes) -> None:
        parser = self._parser
        if self._exchange is None and not parser.held_bytes and not self._closing:
            self._since = self._loop.time()
        try:
            parser.feed(data)
        except HttpProblem as problem:
            self._refuse(problem.status, _unreadable(problem.status, problem.reason))
        held_bytes = parser.held_bytes + self._queued_bytes
        if self._fair_reader is not None:
            held_bytes += self._fair_reader.held_bytes
        if held_bytes != self._held_bytes:
            self._hold(held_bytes)

    def _read(self, wanted: bool) -> None:
        if wanted:
            self._read_on()
        elif self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def _read_on(self) -> None:
        """Unless something else is in the way: unread answers, requests that wait, a rest, or bytes not read yet."""
        waits = self._stuck_since or self._resting is not None or len(self._queue) >= _MAX_PIPELINED
        if waits or (self._fair_reader is not None and self._fair_reader.waiting):
            return
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def pause_writing(self) -> None:
        self._stuck_since = self._loop.time()
        self._stuck_bytes = self._unread_bytes()

    def resume_writing(self) -> None:
        self._stuck_since = 0.0
        self._since = self._loop.time()
        if self._queue:
            self._loop.call_soon(self._next)
        else:
            self._read_on()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._stop_reading()
        if self._resting is not None:
            self._resting.cancel()
        self._server.closed(self)
        self._leave_exchange()

    # -- requests -------------------------------------------------------------------------------------------------

    def _requested(self, request: HttpRequest) -> None:
        """A client that does not read its answers gets no more of them, and is not read from either."""
        self._begun += 1
        free = self._exchange is None and not self._queue and not self._stuck_since and self._resting is None
        if free and self._begun <= _AT_ONCE:
            self._start(request)
            return
        if free:
            self._loop.call_soon(self._next)
        self._queue.append(request)
        self._queued_bytes += _size_of(request)
        if (self._stuck_since or len(self._queue) >= _MAX_PIPELINED) and self._transport is not None:
            self._transport.pause_reading()

    def _start(self, request: HttpRequest) -> None:
        if not self._served:
            self._served = True
            self._server.first_request(self)
        exchange = self._exchange = HttpExchange(self, request)
        exchange.started_at = self._since
        self._server.responding += 1
        self._server.handle(exchange, request)

    def exchange_over(self, *, keep_alive: bool) -> None:
        self._exchange = None
        self._server.responding -= 1
        self._since = self._loop.time()
        if not keep_alive:
            if self._parser.mid_message or self._turned_away:  # refused before its body came
                self._linger()
            else:
                self._close_after_writing()
        elif self._queue:
            self._loop.call_soon(self._next)
        elif self._refusal is not None:
            self._refuse(*self._refusal)
        elif self._closing:
            self._close_after_writing()

    def _next(self) -> None:
        if self._exchange is None and self._queue and not self._stuck_since and self._resting is None:
            request = self._queue.popleft()
            self._queued_bytes -= _size_of(request)
            self._hold(self._held_bytes - _size_of(request))
            if self._transport is not None and not self._transport.is_closing() and not self._closing:
                self._read_on()
                self._start(request)

    def _continue(self) -> None:
        """Not where it would end up inside the answer to an earlier request; clients go on without it after a while."""
        if self._exchange is None and not self._queue:
            self.write([CONTINUE])

    def rest(self) -> None:
        """It was refused for want of room. A client that asks again at once is read more and more slowly: what it
        costs to refuse it would be missing where others are served."""
        now = self._loop.time()
        again = now - self._rest_ends_at < _FORGIVEN_S
        self._rest_s = min(self._rest_s * 2, _LONGEST_REST_S) if again else _FIRST_REST_S
        self._rest_ends_at = now + self._rest_s
        self._pause(self._rest_s)

    def _pause(self, seconds: float) -> None:
        """Read nothing and begin nothing for so long."""
        if self._resting is None and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()
            self._resting = self._loop.call_later(seconds, self._rested)

    def _rested(self) -> None:
        self._resting = None
        if self._queue:
            self._next()
        else:
            self._read_on()

    # -- requests that nobody will answer -------------------------------------------------------------------------

    def _awaits_body(self, request: HttpRequest) -> None:
        """Whoever may not come in is told before anything of the body is kept."""
        error = self._server.check_head(request)
        if error is None:
            return
        request.keep_alive = False
        if self._exchange is None and not self._queue:
            exchange = self._exchange = HttpExchange(self, request)
            self._server.responding += 1
            self._server.refuse(exchange, error)
        else:  # it is refused once those before it are answered
            self._turned_away = True
            self._parser.close()
            self._queue.append(request)
            self._queued_bytes += _size_of(request)

    def forget_heads(self) -> None:
        self._parser.forget_heads()

    def _hold(self, held_bytes: int) -> None:
        self._held_bytes = held_bytes
        self._unfinished.hold(self, held_bytes)

    def give_way(self) -> None:
        """What has come of requests that are not complete, or that wait for their turn, makes room for others."""
        self._stop_reading()
        message = "The request was given up: too many others are unfinished too (`limits.unfinished_bytes`)"
        self._refuse(503, Problem(code=NO_ROOM, message=message, retryable=True, retry_after_ms=1000))

    def _stop_reading(self) -> None:
        """Keep nothing of what came, or of what will come."""
        self._parser.close()
        if self._fair_reader is not None:
            self._fair_reader.close()
        self._queue.clear()
        self._queued_bytes = 0
        if self._held_bytes:
            self._hold(0)
        self._read_on()  # or nobody would notice that the client has gone

    def _refuse(self, status: int, problem: Problem) -> None:
        """Nothing after a request we cannot read can be trusted: answer, and close once the client has seen it.

        Requests before it are answered first: the client would take this for the answer to one of them.
        """
        if (self._exchange is not None or self._queue) and not self._is_streaming:
            self._refusal = (status, problem)
            return
        if self._exchange is None:
            body = unparsed_request_body(self._parser.target, problem)
            length = b"%d" % len(body)
            headers = [(b"content-type", b"application/json"), (b"content-length", length), (b"connection", b"close")]
            self.write([response_head(status, headers), body])
        self._leave_exchange()
        self._linger()

    def _leave_exchange(self) -> None:
        """Nobody is there any more to be answered."""
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            self._server.responding -= 1
            exchange.gone()

    def _linger(self) -> None:
        """Say no more, and wait a moment for the client to close: doing so while it still sends would reset the
        connection, and it might never read the answer."""
        self._stop_reading()
        self._closing = True
        self._since = self._loop.time()
        if self._transport is not None and not self._transport.is_closing() and self._transport.can_write_eof():
            self._transport.write_eof()

    # -- writing and closing --------------------------------------------------------------------------------------

    def write(self, parts: list[Json]) -> None:
        transport = self._transport
        if transport is None or transport.is_closing() or self._closing:
            return
        if len(parts) == 1:
            transport.write(parts[0])
        else:
            transport.writelines(parts)

    def accepts_notifications(self) -> bool:
        """Whether the client reads what it gets; one that lets events pile up is cut. An answer is never too much."""
        return self._takes(_MAX_UNREAD_EVENTS_BYTES)

    def accepts_responses(self) -> bool:
        """The same for a stream that carries answers to many requests."""
        return self._takes(_MAX_UNREAD_ANSWERS_BYTES)

    def _takes(self, limit_bytes: int) -> bool:
        too_many_open = self._stuck_since > 0 and self._unread_bytes() > limit_bytes
        if too_many_open:
            self.abort()
        return not too_many_open

    def _unread_bytes(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    @property
    def _is_streaming(self) -> bool:
        return self._exchange is not None and self._exchange.streaming

    def _close_after_writing(self) -> None:
        self._closing = True
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        self._aborted = True  # it may have to give way before it was made: many are accepted at once
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """End it now, politely where nothing is being answered."""
        if self._exchange is not None and self._exchange.streaming:
            self._exchange.end_stream()
        self._close_after_writing()

    # -- time -----------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Called about once a second: the only clock of a connection."""
        if self._stuck_since:
            self._tick_stuck(now)
        elif len(self._queue) >= _MAX_PIPELINED and self._has_gone():
            self._close_after_writing()
        elif self._exchange is not None:
            self._tick_exchange(self._exchange, now)
        elif self._closing:
            if now - self._since > LINGER_S:
                self.abort()
        elif self._parser.mid_message:
            if now - self._since > READ_S:
                self._refuse(408, _unreadable(408, f"not complete within {READ_S:g} seconds"))
        elif now - self._since > (IDLE_S if self._served else READ_S):
            self._close_after_writing()

    def _has_gone(self) -> bool:
        """Nobody is told of the end of what is not read."""
        return self._transport is not None and not self._transport.is_closing() and peer_has_hung_up(self._transport)

    def idle_s(self, now: float) -> float:
        """How long nothing was asked or answered on it; 0 while something is."""
        busy = self._exchange is not None or self._queue or self._stuck_since or self._parser.mid_message
        return 0.0 if busy else now - self._since

    def dispensable(self, now: float) -> tuple[int, float]:
        """How little would be lost with it, and for how long that has been so; no time at all while it is answered.

        Least with one that is idle or rests, then one whose request has not come whole, then one that does not read.
        """
        if self._exchange is not None:
            return 0, 0.0
        if self._stuck_since:
            return 0, max(0.0, now - self._stuck_since - _SLOW_S)
        if self._queue and self._resting is None:
            return 0, 0.0
        return (1 if self._parser.mid_message else 2), now - self._since

    def _tick_stuck(self, now: float) -> None:
        """A large answer over a slow line takes its time; a client that takes nothing of it is cut."""
        if now - self._stuck_since <= WRITE_S:
            return
        unread = self._unread_bytes()
        if unread > self._stuck_bytes - _MIN_READ_BYTES:
            self.abort()
        self._stuck_since, self._stuck_bytes = now, unread

    def _tick_exchange(self, exchange: HttpExchange, now: float) -> None:
        if exchange.streaming:
            if now - self._since > KEEP_ALIVE_S:
                self._since = now
                exchange.keep_alive()
        elif exchange.accepts_events and now - exchange.started_at > STREAM_AFTER_S:
            self._since = now
            exchange.stream()


def _size_of(request: HttpRequest) -> int:
    return _REQUEST_BYTES + len(request.body) + head_size(request.path, request.query, request.headers)


def _unreadable(status: int, reason: str) -> Problem:
    code = REQUEST_TOO_LARGE if status in (413, 431) else BAD_HTTP
    return Problem(code=code, message=f"HTTP request refused: {reason}")
