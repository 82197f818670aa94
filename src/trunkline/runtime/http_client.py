"""HTTP/1.1 client for one origin, with a pool of kept-alive connections.

An exchange gets the response as it arrives; nothing is followed, retried or cached here. Each exchange records whether
any of its request was written, which decides whether a call may have run.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Mapping
from functools import lru_cache
from socket import SOCK_STREAM
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, cast
from urllib.parse import urlsplit

from trunkline.protocol.http1_message import HttpProblem
from trunkline.protocol.http1_response import ResponseParser
from trunkline.runtime.deadlines import TimeLimit
from trunkline.runtime.fair_reading import SLICE_BYTES, FairReader

ExchangeFailure = Literal["connection", "too_large", "malformed"]
"""Why an exchange failed: no connection or a lost one, a response over the limit, or one that is not HTTP."""
IDLE_S: Final = 4.0
"""Shorter than the 5 s after which common servers close: a call on a connection they just closed would be lost."""
MAX_WAITING: Final = 1000
_CODED_SLICE_BYTES: Final = 64
"""For compressed streams of events, of which a few bytes may stand for thousands of lines."""


@lru_cache(maxsize=1)
def _tls_context() -> ssl.SSLContext:
    """The shared TLS context: building one reads every certificate authority, which takes about 20 ms."""
    return ssl.create_default_context()


class HttpTarget:
    """Where requests go: the parts of a URL, and the Unix socket to connect to, if any."""

    __slots__ = ("authority", "host", "path", "port", "socket", "tls", "url")

    def __init__(self, url: str, *, socket: str = "") -> None:
        parts = urlsplit(url)
        self.url = url
        self.socket = socket
        self.tls = parts.scheme == "https"
        self.host = parts.hostname or ""
        self.port = parts.port or (443 if self.tls else 80)
        host = f"[{self.host}]" if ":" in self.host else self.host
        default = self.port == (443 if self.tls else 80)
        self.authority = (host if default else f"{host}:{self.port}").encode()
        self.path = (parts.path or "/").encode() + (b"?" + parts.query.encode() if parts.query else b"")

    @property
    def address(self) -> str:
        """The address to connect to, for messages."""
        return self.socket or self.authority.decode()

    def same_origin(self, other: HttpTarget) -> bool:
        return (self.tls, self.host, self.port, self.socket) == (other.tls, other.host, other.port, other.socket)


class Exchange:
    """One request and its response, which subclasses handle. An exchange ends exactly once: with `on_end`, with
    `on_fail`, or, without either, because its owner calls `abort`.

    It waits, then is `written`, then `over`, or over at once. `over` is set before `on_end` or `on_fail`, so these may
    start another exchange.
    """

    __slots__ = ("connection", "over", "queue", "request_bytes", "written")

    def __init__(self, request_bytes: bytes) -> None:
        self.request_bytes = request_bytes
        self.queue: dict[Exchange, None] | None = None
        """The exchanges among which this one waits, or has waited, for a connection."""
        self.connection: _Connection | None = None
        """Set while the request is being written and the response read."""
        self.written = False
        """Whether any of the request may have reached the server. Stays set when the exchange is over."""
        self.over = False
        """Whether the exchange has ended; nothing more is called."""

    def on_head(self, status: int, headers: Mapping[bytes, bytes]) -> None: ...
    def on_body(self, data: bytes) -> None: ...
    def on_end(self) -> None: ...
    def on_fail(self, reason: str, failure: ExchangeFailure = "connection") -> None: ...

    def expect_events(self) -> None:
        """Called from `on_head`: the body is a stream of events, which has no limit, but each event has one."""
        if self.connection is not None:
            self.connection.expect_events()

    def abort(self) -> None:
        """Drop the rest of the response and close the connection, which tells the server. After `abort` nothing more is
        called."""
        self.over = True
        if self.connection is not None:
            self.connection.drop()
        elif self.queue is not None:
            self.queue.pop(self, None)


class HttpPool:
    """Connections to one target, kept alive between exchanges. At most `max_connections`; further exchanges wait."""

    def __init__(
        self, target: HttpTarget, *, connect_timeout_s: float, limit_bytes: int, max_connections: int = 512
    ) -> None:
        self.target = target
        self.limit_bytes = limit_bytes
        self.connect_timeout_s = connect_timeout_s
        self._max_connections = max_connections
        self._idle: list[_Connection] = []
        self._open: set[_Connection] = set()
        self._opening: set[asyncio.Task[None]] = set()
        self._waiting: dict[Exchange, None] = {}
        """In the order in which they came. An exchange that is aborted leaves it."""
        self._sweep: asyncio.TimerHandle | None = None
        self._closed = False
        self.reading = True
        self.served: Callable[[], int] | None = None
        """Counts the useful results that came over these connections, if known (see `FairReader`)."""
        self._loop = asyncio.get_running_loop()

    def send(self, exchange: Exchange) -> None:
        """Send on an idle connection or a new one, or wait for one; a failure is reported by `exchange.on_fail`."""
        connection = self._reusable()
        if connection is not None:
            connection.start(exchange)
            return
        if self._closed:
            exchange.over = True
            exchange.on_fail("the connection pool is closed")
            return
        self._waiting[exchange] = None
        exchange.queue = self._waiting
        self._dial()

    @property
    def at_capacity(self) -> bool:
        """Whether so many requests wait that only callers that can be told to wait should send more."""
        return len(self._waiting) >= MAX_WAITING

    def _dial(self) -> None:
        """Start an attempt to connect for an exchange that waits, within the limit of connections."""
        room = len(self._open) + len(self._opening) < self._max_connections
        if room and len(self._opening) < len(self._waiting) and not self._closed:
            task = self._loop.create_task(self._connect())
            self._opening.add(task)
            task.add_done_callback(self._on_dialed)

    def _on_dialed(self, task: asyncio.Task[None]) -> None:
        self._opening.discard(task)
        self._dial()

    def _reusable(self) -> _Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if self._loop.time() - connection.idle_since < IDLE_S and connection.usable:
                return connection
            connection.drop()
        return None

    async def _connect(self) -> None:
        target, timeout_s = self.target, self.connect_timeout_s
        try:
            async with TimeLimit(timeout_s):
                protocol = await self._open_connection(target)
        except TimeoutError:
            self._fail_next(f"no connection within {timeout_s:g} seconds")
        except OSError as error:
            self._fail_next(f"cannot connect to {target.address}: {error.strerror or error}")
        except ValueError:
            self._fail_next(f"cannot connect: `{target.socket or target.host}` is not an address")
        else:
            self.released(protocol)

    async def _open_connection(self, target: HttpTarget) -> _Connection:
        due = self._loop.time() + self.connect_timeout_s
        tls = _tls_context() if target.tls else None
        if target.socket:
            _, protocol = await self._loop.create_unix_connection(
                lambda: _Connection(self), target.socket, ssl=tls, server_hostname=target.host if tls else None
            )
            return protocol
        # Looked up separately: uvloop does not cancel the lookup of a cancelled connection, and logs its failure later.
        found = await self._loop.getaddrinfo(target.host, target.port, type=SOCK_STREAM)
        addresses = list(dict.fromkeys(str(address[0]) for *_, address in found))
        if not addresses:
            raise OSError("the host has no address")
        while len(addresses) > 1:
            # An address that is silent must not use up the time of those after it.
            share_s = (due - self._loop.time()) / len(addresses)
            with contextlib.suppress(OSError):
                async with TimeLimit(share_s):
                    return await self._connect_to(addresses[0], target, tls)
            del addresses[0]
        return await self._connect_to(addresses[0], target, tls)

    async def _connect_to(self, address: str, target: HttpTarget, tls: ssl.SSLContext | None) -> _Connection:
        name = target.host if tls else None
        _, protocol = await self._loop.create_connection(
            lambda: _Connection(self), address, target.port, ssl=tls, server_hostname=name
        )
        return protocol

    def _next_waiting(self) -> Exchange:
        """Take the exchange that has waited longest."""
        exchange = next(iter(self._waiting))
        del self._waiting[exchange]
        return exchange

    def _fail_next(self, reason: str) -> None:
        """Fail one exchange after one failed attempt: the others have attempts of their own, or get one."""
        if self._waiting:
            exchange = self._next_waiting()
            exchange.over = True
            exchange.on_fail(reason)

    def _drop_idle(self) -> None:
        self._sweep = None  # first, so that the next released connection schedules it again even if this fails
        horizon = self._loop.time() - IDLE_S
        for connection in [c for c in self._idle if c.idle_since <= horizon]:
            self._idle.remove(connection)
            connection.drop()
        if self._idle:
            self._sweep = self._loop.call_later(IDLE_S, self._drop_idle)

    def set_reading(self, wanted: bool) -> None:
        """Read from all connections or from none. Unread data stays with the servers while there is no room for it."""
        self.reading = wanted
        for connection in self._open:
            connection.set_reading(wanted)

    async def close(self) -> None:
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        for task in list(self._opening):
            task.cancel()
        if self._opening:
            await asyncio.wait(self._opening)
        for connection in list(self._open):
            connection.drop()
        while self._waiting:
            self._fail_next("the connection pool is closed")
        self.served = None

    # -- called by connections ------------------------------------------------------------------------------------

    def opened(self, connection: _Connection) -> None:
        self._open.add(connection)

    def released(self, connection: _Connection) -> None:
        """Give a free connection to the next exchange, or keep it for later."""
        if self._waiting:
            connection.start(self._next_waiting())
            return
        if self._closed:
            connection.drop()
            return
        connection.idle_since = self._loop.time()
        self._idle.append(connection)
        if self._sweep is None:
            self._sweep = self._loop.call_later(IDLE_S, self._drop_idle)

    def lost(self, connection: _Connection) -> None:
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        self._dial()


class _Connection(asyncio.Protocol):
    """One connection, one exchange at a time."""

    def __init__(self, pool: HttpPool) -> None:
        self._pool = pool
        self._transport: asyncio.Transport | None = None
        self._exchange: Exchange | None = None
        self.idle_since = 0.0
        self.parser = ResponseParser(pool.limit_bytes, self._on_head, self._on_body, self._on_end)
        self._fair_reader = FairReader(self._feed, self._apply_reading, pool.served)
        self._coded = False

    @property
    def usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def start(self, exchange: Exchange) -> None:
        if self._transport is None:
            exchange.over = True
            exchange.on_fail("the connection was closed")
            return
        self._exchange = exchange
        exchange.connection = self
        exchange.written = True
        self._transport.write(exchange.request_bytes)
        if not self._pool.reading:
            self.set_reading(False)

    def expect_events(self) -> None:
        """Treat the response as a stream of events: its size has no limit, and its lines may end in CR."""
        self.parser.expect_events()
        self._fair_reader.line_ends = (b"\n", b"\r")
        if self._coded:
            self._fair_reader.line_ends, self._fair_reader.slice_bytes = (), _CODED_SLICE_BYTES

    def set_reading(self, wanted: bool) -> None:
        if not self._fair_reader.waiting:
            self._apply_reading(wanted)

    def _apply_reading(self, wanted: bool) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if wanted and self._pool.reading:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def drop(self) -> None:
        """Close the connection at once; nothing more is reported to its exchange by the parser."""
        self._fair_reader.close()
        self.parser.close()
        if self._transport is not None:
            self._transport.abort()

    # -- asyncio --------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._pool.opened(self)

    def data_received(self, data: bytes) -> None:
        self._fair_reader.take(data)

    def _feed(self, data: bytes) -> None:
        if self._exchange is None:
            self.drop()  # data without a request: what follows could not be trusted
            return
        try:
            self.parser.feed(data)
        except HttpProblem as problem:
            self._fail(problem)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fair_reader.finish()
        self._fair_reader.close()
        self._transport = None
        self._pool.lost(self)
        exchange = self._exchange
        if exchange is None:
            self.parser.close()
            return
        with contextlib.suppress(HttpProblem):  # a truncated body is reported as a lost connection
            self.parser.eof()
        if exchange is self._exchange:
            self._fail(None, f"the connection was lost{f': {exc}' if exc else ''}")

    def _fail(self, problem: HttpProblem | None, reason: str = "") -> None:
        exchange, self._exchange = self._exchange, None
        self.drop()
        if exchange is None or exchange.over:
            return
        exchange.over = True
        exchange.connection = None
        if problem is None:
            exchange.on_fail(reason)
        else:
            exchange.on_fail(problem.reason, "too_large" if problem.too_large else "malformed")

    # -- the parser -----------------------------------------------------------------------------------------------

    def _on_head(self, status: int, headers: Mapping[bytes, bytes]) -> None:
        if b"content-encoding" in headers:
            self._coded = True
        if self._exchange is not None:
            self._exchange.on_head(status, headers)

    def _on_body(self, data: bytes) -> None:
        if self._exchange is not None:
            self._exchange.on_body(data)

    def _on_end(self) -> None:
        exchange, self._exchange = self._exchange, None
        if self._coded:
            self._coded = False
            self._fair_reader.line_ends, self._fair_reader.slice_bytes = (b"\n",), SLICE_BYTES
        # First, so that a request which `on_end` sends finds the connection free, and those that wait are before it.
        if self.parser.keep_alive and self.usable and not self._fair_reader.more:
            self._pool.released(self)
        else:
            self.drop()
        if exchange is not None and not exchange.over:
            exchange.over = True
            exchange.connection = None
            exchange.on_end()


class HttpResponse(NamedTuple):
    """A whole response."""

    status: int
    body: bytes
    headers: Mapping[bytes, bytes] = MappingProxyType({})


class RequestFailed(Exception):
    """A request without a response. `sent` says whether any of the request was written."""

    def __init__(self, reason: str, *, sent: bool, failure: ExchangeFailure = "connection") -> None:
        super().__init__(reason)
        self.sent = sent
        self.failure = failure


class _WholeExchange(Exchange):
    """Collects a whole response for a future."""

    __slots__ = ("_headers", "_parts", "_status", "reply")

    def __init__(self, request_bytes: bytes) -> None:
        super().__init__(request_bytes)
        self.reply: asyncio.Future[HttpResponse] = asyncio.get_running_loop().create_future()
        self._status = 0
        self._headers: Mapping[bytes, bytes] = {}
        self._parts: list[bytes] = []

    def on_head(self, status: int, headers: Mapping[bytes, bytes]) -> None:
        self._status = status
        self._headers = headers

    def on_body(self, data: bytes) -> None:
        self._parts.append(data)

    def on_end(self) -> None:
        if not self.reply.done():
            self.reply.set_result(HttpResponse(self._status, b"".join(self._parts), self._headers))

    def on_fail(self, reason: str, failure: ExchangeFailure = "connection") -> None:
        if not self.reply.done():
            self.reply.set_exception(RequestFailed(reason, sent=self.written, failure=failure))


async def send_request(pool: HttpPool, request: bytes, timeout_s: float) -> HttpResponse:
    """Send a request and return its response; raises RequestFailed. Cancelling this closes the connection."""
    exchange = _WholeExchange(request)
    pool.send(exchange)
    try:
        async with TimeLimit(timeout_s):
            return await exchange.reply
    except TimeoutError:
        raise RequestFailed(f"no answer within {timeout_s:g} seconds", sent=exchange.written) from None
    finally:
        if not exchange.over:
            exchange.abort()
