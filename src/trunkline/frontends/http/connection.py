"""One client connection: requests in and responses out in the same order, closed when the client is too slow."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, cast

from trunkline.core.call import Json
from trunkline.core.errors import BAD_HTTP, NO_ROOM, REQUEST_TOO_LARGE, Problem
from trunkline.core.unfinished_bytes import UnfinishedBytes
from trunkline.frontends.http.exchange import HttpExchange
from trunkline.frontends.http.requests import unparsed_request_body
from trunkline.protocol.http1 import CONTINUE, HttpRequest, RequestParser, head_size, response_head
from trunkline.protocol.http1_message import HttpLimits, HttpProblem
from trunkline.runtime.fair_reading import FairReader
from trunkline.runtime.listener import peer_has_hung_up

if TYPE_CHECKING:
    from trunkline.frontends.http.server import HttpServer

READ_S: Final = 15.0
IDLE_S: Final = 75.0
WRITE_S: Final = 10.0
STREAM_AFTER_S: Final = 10.0
KEEP_ALIVE_S: Final = 15.0
LINGER_S: Final = 2.0
_FIRST_BACKOFF_S: Final = 0.05
_MAX_BACKOFF_S: Final = 1.0
_RETRY_S: Final = 0.9
"""A client that waits as long as the refusals say (`retryAfterMs`, at least 1000) is not slowed down again."""
_MAX_PIPELINED: Final = 16
_MAX_STARTED_AT_ONCE: Final = 4
"""Of requests that came together so many are started at once; after each further one other connections run."""
_REQUEST_BYTES: Final = 1024
"""What a queued request costs besides its head and its body."""
_SLICE_BYTES: Final = 4096
"""Of more that comes at once so much is parsed at a time, in turns with other connections."""
_SLOW_S: Final = 2.0
"""A client that has not read for so long may be disconnected to make room for a new one."""
MAX_UNREAD_EVENT_BYTES: Final = 1024 * 1024
_MIN_READ_BYTES: Final = 64 * 1024
"""What a client must read of a large response every `WRITE_S` seconds."""


class Connection(asyncio.Protocol):
    """Parses requests, queues them, and writes the responses."""

    __slots__ = (
        "_aborted",
        "_backoff_ends_at",
        "_backoff_s",
        "_backoff_timer",
        "_blocked_since",
        "_closing",
        "_exchange",
        "_fair_reader",
        "_head_refused",
        "_held_bytes",
        "_loop",
        "_parser",
        "_queue",
        "_queued_bytes",
        "_refusal",
        "_served",
        "_server",
        "_since",
        "_started_now",
        "_transport",
        "_unfinished",
        "_unread_before",
    )

    def __init__(self, server: HttpServer, limits: HttpLimits, unfinished: UnfinishedBytes) -> None:
        self._server = server
        self._unfinished = unfinished
        self._parser = RequestParser(limits, self._requested, self._continue, self._awaits_body)
        self._queue: deque[HttpRequest] = deque()
        self._queued_bytes = 0
        self._held_bytes = 0
        self._started_now = 0
        self._fair_reader: FairReader | None = None
        self._head_refused = False
        self._aborted = False
        self._exchange: HttpExchange | None = None
        self._transport: asyncio.Transport | None = None
        self._closing = False
        self._refusal: tuple[int, Problem] | None = None
        self._backoff_ends_at = -_RETRY_S
        self._backoff_s = 0.0
        self._backoff_timer: asyncio.TimerHandle | None = None
        self._served = False
        self._loop = asyncio.get_running_loop()
        self._since = self._loop.time()
        self._blocked_since = 0.0
        self._unread_before = 0

    # -- asyncio --------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._aborted:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._started_now = 0
        reader = self._fair_reader
        if reader is not None and reader.waiting:
            reader.take(data)
        elif len(data) <= _SLICE_BYTES or self._parser.takes_whole(data):
            self._feed(data)
        else:
            self._feed_in_turns(data)

    def _feed_in_turns(self, data: bytes) -> None:
        """Parse a slice at a time what may take long: many requests, or chunks of a byte each."""
        self._feed(data[:_SLICE_BYTES])
        rest = data[_SLICE_BYTES:]
        if self._parser.takes_whole(rest):
            self._feed(rest)
            return
        if self._fair_reader is None:
            self._fair_reader = FairReader(self._feed, self._read)
            self._fair_reader.line_ends, self._fair_reader.slice_bytes = (), _SLICE_BYTES
        self._fair_reader.take(rest)

    def _feed(self, data: bytes) -> None:
        parser = self._parser
        if self._exchange is None and not parser.held_bytes and not self._closing:
            self._since = self._loop.time()
        try:
            parser.feed(data)
        except HttpProblem as problem:
            self._refuse(problem.status, _parse_problem(problem.status, problem.reason))
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
        """Resume reading unless responses are unread, the queue is full, bytes are unparsed or the client backs off."""
        waits = self._blocked_since or self._backoff_timer is not None or len(self._queue) >= _MAX_PIPELINED
        if waits or (self._fair_reader is not None and self._fair_reader.waiting):
            return
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def pause_writing(self) -> None:
        self._blocked_since = self._loop.time()
        self._unread_before = self._unread_bytes()

    def resume_writing(self) -> None:
        self._blocked_since = 0.0
        self._since = self._loop.time()
        if self._queue:
            self._loop.call_soon(self._next)
        else:
            self._read_on()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._stop_reading()
        if self._backoff_timer is not None:
            self._backoff_timer.cancel()
        self._server.closed(self)
        self._leave_exchange()

    # -- requests -------------------------------------------------------------------------------------------------

    def _requested(self, request: HttpRequest) -> None:
        """Start or queue a request. A client that does not read its responses is not read from either."""
        self._started_now += 1
        free = self._exchange is None and not self._queue and not self._blocked_since and self._backoff_timer is None
        if free and self._started_now <= _MAX_STARTED_AT_ONCE:
            self._start(request)
            return
        if free:
            self._loop.call_soon(self._next)
        self._queue.append(request)
        self._queued_bytes += _size_of(request)
        if (self._blocked_since or len(self._queue) >= _MAX_PIPELINED) and self._transport is not None:
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
            if self._parser.mid_message or self._head_refused:  # it was refused before its body came
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
        if self._exchange is None and self._queue and not self._blocked_since and self._backoff_timer is None:
            request = self._queue.popleft()
            self._queued_bytes -= _size_of(request)
            self._hold(self._held_bytes - _size_of(request))
            if self._transport is not None and not self._transport.is_closing() and not self._closing:
                self._read_on()
                self._start(request)

    def _continue(self) -> None:
        """Send `100 Continue`, but not into the response to an earlier request: clients go on without it in a while."""
        if self._exchange is None and not self._queue:
            self.write([CONTINUE])

    def back_off(self) -> None:
        """Read nothing and start nothing for a moment, after a refusal with status 429.

        A client that sends again at once is read more and more slowly: refusing it would take time from others.
        """
        now = self._loop.time()
        again = now - self._backoff_ends_at < _RETRY_S
        self._backoff_s = min(self._backoff_s * 2, _MAX_BACKOFF_S) if again else _FIRST_BACKOFF_S
        self._backoff_ends_at = now + self._backoff_s
        if self._backoff_timer is None and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()
            self._backoff_timer = self._loop.call_later(self._backoff_s, self._backed_off)

    def _backed_off(self) -> None:
        self._backoff_timer = None
        if self._queue:
            self._next()
        else:
            self._read_on()

    # -- refused requests -----------------------------------------------------------------------------------------

    def _awaits_body(self, request: HttpRequest) -> None:
        """Refuse a request before anything of its body is kept, where its head says enough."""
        error = self._server.check_head(request)
        if error is None:
            return
        request.keep_alive = False
        if self._exchange is None and not self._queue:
            exchange = self._exchange = HttpExchange(self, request)
            self._server.responding += 1
            self._server.refuse(exchange, request, error)
        else:  # once those before it are answered
            self._head_refused = True
            self._parser.close()
            self._queue.append(request)
            self._queued_bytes += _size_of(request)

    def forget_heads(self) -> None:
        self._parser.forget_heads()

    def _hold(self, held_bytes: int) -> None:
        self._held_bytes = held_bytes
        self._unfinished.hold(self, held_bytes)

    def give_way(self) -> None:
        """Drop incomplete and queued requests to make room for those of others."""
        self._stop_reading()
        message = "The request was dropped: too many requests are unfinished (`limits.unfinished_bytes`)"
        self._refuse(503, Problem(code=NO_ROOM, message=message, retryable=True, retry_after_ms=1000))

    def _stop_reading(self) -> None:
        """Drop what came and ignore what will come."""
        self._parser.close()
        if self._fair_reader is not None:
            self._fair_reader.close()
        self._queue.clear()
        self._queued_bytes = 0
        if self._held_bytes:
            self._hold(0)
        self._read_on()  # otherwise a disconnect would go unnoticed

    def _refuse(self, status: int, problem: Problem) -> None:
        """Respond to a request that cannot be parsed, and close: nothing after it can be trusted.

        Requests before it are answered first: the client would take this for the response to one of them.
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
        """Drop the request in progress: the client cannot be answered any more."""
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            self._server.responding -= 1
            exchange.disconnected()

    def _linger(self) -> None:
        """Send nothing more, and wait a moment for the client to close.

        Closing while it still sends would reset the connection, and it might never read the response.
        """
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

    def accepts_more(self, max_unread_bytes: int = MAX_UNREAD_EVENT_BYTES) -> bool:
        """Whether the client reads what it is sent; one that lets more than this pile up is disconnected."""
        has_room = not self._blocked_since or self._unread_bytes() <= max_unread_bytes
        if not has_room:
            self.abort()
        return has_room

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
        self._aborted = True  # it may be evicted before it was made: many are accepted at once
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Close it once what was written has left; a stream gets its end."""
        if self._exchange is not None and self._exchange.streaming:
            self._exchange.end_stream()
        self._close_after_writing()

    # -- time -----------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Check every timeout; called about once a second."""
        if self._blocked_since:
            self._tick_blocked(now)
        elif len(self._queue) >= _MAX_PIPELINED and self._has_hung_up():
            self._close_after_writing()
        elif self._exchange is not None:
            self._tick_exchange(self._exchange, now)
        elif self._closing:
            if now - self._since > LINGER_S:
                self.abort()
        elif self._parser.mid_message:
            if now - self._since > READ_S:
                self._refuse(408, _parse_problem(408, f"not complete within {READ_S:g} seconds"))
        elif now - self._since > (IDLE_S if self._served else READ_S):
            self._close_after_writing()

    def _has_hung_up(self) -> bool:
        """Asks the socket: while reading is paused, asyncio does not report a disconnect."""
        return self._transport is not None and not self._transport.is_closing() and peer_has_hung_up(self._transport)

    def idle_s(self, now: float) -> float:
        """How long it has been idle; 0 while it is in use."""
        busy = self._exchange is not None or self._queue or self._blocked_since or self._parser.mid_message
        return 0.0 if busy else now - self._since

    def expendable(self, now: float) -> tuple[int, float]:
        """How expendable it is, and for how long; no time at all while a response is due.

        Most expendable is one that is idle or backs off, then one with an incomplete request, then one that does not
        read.
        """
        if self._exchange is not None:
            return 0, 0.0
        if self._blocked_since:
            return 0, max(0.0, now - self._blocked_since - _SLOW_S)
        if self._queue and self._backoff_timer is None:
            return 0, 0.0
        return (1 if self._parser.mid_message else 2), now - self._since

    def _tick_blocked(self, now: float) -> None:
        """Disconnect a client that reads nothing of a large response; a slow one gets its time."""
        if now - self._blocked_since <= WRITE_S:
            return
        unread = self._unread_bytes()
        if unread > self._unread_before - _MIN_READ_BYTES:
            self.abort()
        self._blocked_since, self._unread_before = now, unread

    def _tick_exchange(self, exchange: HttpExchange, now: float) -> None:
        if exchange.streaming:
            if now - self._since > KEEP_ALIVE_S:
                self._since = now
                exchange.keep_alive()
        elif exchange.accepts_events and now - exchange.started_at > STREAM_AFTER_S:
            self._since = now
            exchange.stream()


def _size_of(request: HttpRequest) -> int:
    return _REQUEST_BYTES + len(request.body) + head_size(request)


def _parse_problem(status: int, reason: str) -> Problem:
    code = REQUEST_TOO_LARGE if status in (413, 431) else BAD_HTTP
    return Problem(code=code, message=f"HTTP request refused: {reason}")
