"""The HTTP server: accepts connections, checks access, and hands each request to its route."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, cast

from trunkline.core.errors import HOST_REFUSED, LISTEN_FAILED, ORIGIN_REFUSED, UNAUTHORIZED, GatewayError, Problem
from trunkline.core.events import Events
from trunkline.core.unfinished_bytes import UnfinishedBytes
from trunkline.frontends.http.access import UNAUTHENTICATED, Access, Denied
from trunkline.frontends.http.connection import Connection
from trunkline.frontends.http.exchange import HttpExchange
from trunkline.frontends.http.mcp import TOO_MANY_OPEN, McpRoute
from trunkline.frontends.http.requests import RouteRequest, problem_document, respond_with_problem
from trunkline.frontends.http.routes import MCP, Handlers, RouteTable
from trunkline.frontends.http.sessions import HttpSessions
from trunkline.protocol.http1 import HttpRequest
from trunkline.protocol.http1_message import HttpLimits
from trunkline.protocol.jsonrpc import encode
from trunkline.runtime.deadlines import Deadline
from trunkline.runtime.listener import UnixSocket
from trunkline.runtime.safe_callbacks import call_safely, internal_problem

_TICK_S: Final = 1.0
_CLOSE_S: Final = 2.0
_NEARLY_FULL: Final = 0.9
_IDLE_S: Final = 5.0
"""How long a connection must have been idle to be closed when the limit is near."""
_LOG_EVERY_S: Final = 60.0
_SEARCH_EVERY_S: Final = 0.1
_MAX_CANDIDATES: Final = 1024
_SILENT_S: Final = 1.0
"""A connection without a request for so long is evicted first. One that has just come was not read from yet."""
_ACCESS_DENIED: Final = (HOST_REFUSED, ORIGIN_REFUSED, UNAUTHORIZED)
_MCP_SPELLINGS: Final = (MCP.encode(), f"{MCP}/".encode())
"""The two spellings of one path: some clients add a slash, and a redirect would lose their POST."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpOptions:
    host: str
    port: int
    limits: HttpLimits
    max_connections: int
    socket: Path | None = None
    """A Unix socket to listen on besides the port."""
    unfinished: UnfinishedBytes = field(default_factory=UnfinishedBytes)


class HttpServer:
    """Owns the listening sockets and all connections."""

    def __init__(
        self,
        options: HttpOptions,
        access: Access,
        mcp: McpRoute,
        handlers: Handlers,
        sessions: HttpSessions,
        events: Events,
    ) -> None:
        self._options = options
        self._access = access
        self._mcp = mcp
        self._sessions = sessions
        self._events = events
        self._routes = RouteTable(handlers)
        self.responding = 0
        """How many connections have a request without a complete response."""
        self._max_responding = max(1, options.max_connections * 7 // 8)
        """So many may wait or stream at once: there is always a connection that can be evicted for a new one."""
        self._connections: set[Connection] = set()
        self._silent: dict[Connection, float] = {}
        """Connections without a request yet, the oldest first, and when they came."""
        self._candidates: list[Connection] = []
        self._searched_at = 0.0
        self._has_more_candidates = False
        self._evicted = 0
        self._logged_at = -_LOG_EVERY_S
        self._server: asyncio.Server | None = None
        self._unix_server: asyncio.Server | None = None
        self._unix_socket: UnixSocket | None = None
        self._ticking: Deadline | None = None
        self._loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        return len(self._connections)

    async def start(self) -> tuple[str, int]:
        """Listen; returns the host and the port, which a configured port 0 leaves to the system."""
        options = self._options
        try:
            self._server = await self._loop.create_server(
                self._connected, options.host, options.port, backlog=1024, start_serving=True
            )
        except OSError as error:
            where = f"{options.host}:{options.port}"
            problem = Problem(
                code=LISTEN_FAILED,
                message=f"Cannot listen on {where}: {os.strerror(error.errno) if error.errno else error}",
                hint="another program may hold it: choose another port with `gateway.listen` or `--port`",
            )
            raise GatewayError(problem) from None
        if options.socket is not None:
            try:
                self._unix_socket = UnixSocket(options.socket, "gateway.socket")
            except GatewayError:
                self.stop_listening()
                raise
            self._unix_server = await self._loop.create_unix_server(
                self._connected, sock=self._unix_socket.socket, backlog=1024, start_serving=True
            )
        self._tick()
        address = self._server.sockets[0].getsockname()
        return options.host, address[1]

    # -- connections ----------------------------------------------------------------------------------------------

    def _connected(self) -> asyncio.Protocol:
        if len(self._connections) >= self._options.max_connections and not self._make_room():
            self._events.count("connections_refused")
            self._evicted += 1
            return _RefusedConnection()
        connection = Connection(self, self._options.limits, self._options.unfinished)
        self._connections.add(connection)
        self._silent[connection] = self._loop.time()
        return connection

    def _make_room(self) -> bool:
        """Evict the oldest connection without a request, as honest clients send one at once; then the most expendable;
        and only then one that has just come."""
        connection = self._oldest_silent(_SILENT_S) or self._most_expendable() or self._oldest_silent(0.0)
        if connection is None:
            return False
        self.closed(connection)
        connection.abort()
        self._events.count("connections_evicted")
        self._evicted += 1
        return True

    def _oldest_silent(self, seconds: float) -> Connection | None:
        connection, since = next(iter(self._silent.items()), (None, 0.0))
        return connection if self._loop.time() - since >= seconds else None

    def _most_expendable(self) -> Connection | None:
        """Search all connections now and then only, or a crowd of new ones would take all the time.

        Where there were more candidates than are kept, the next search is worth its time.
        """
        now = self._loop.time()
        connection = self._next_candidate(now)
        if connection is None and (self._has_more_candidates or now - self._searched_at > _SEARCH_EVERY_S):
            self._searched_at = now
            found = [connection for connection in self._connections if connection.expendable(now)[1] > _SEARCH_EVERY_S]
            self._has_more_candidates = len(found) > _MAX_CANDIDATES
            self._candidates = sorted(found, key=lambda connection: connection.expendable(now))[-_MAX_CANDIDATES:]
            connection = self._next_candidate(now)
        return connection

    def _next_candidate(self, now: float) -> Connection | None:
        while self._candidates:
            connection = self._candidates.pop()
            if connection in self._connections and connection.expendable(now)[1] > _SEARCH_EVERY_S:
                return connection
        return None

    def first_request(self, connection: Connection) -> None:
        """The connection has sent its first complete request."""
        self._silent.pop(connection, None)

    def closed(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._silent.pop(connection, None)

    def _close_idle(self, now: float) -> None:
        """Close idle connections, the idlest first, before new ones have to be refused."""
        surplus = len(self._connections) - int(self._options.max_connections * _NEARLY_FULL)
        if surplus <= 0:
            return
        idle = [connection for connection in self._connections if connection.idle_s(now) > _IDLE_S]
        idle.sort(key=lambda connection: connection.idle_s(now), reverse=True)
        for connection in idle[:surplus]:
            connection.close()

    def _log_evicted(self, now: float) -> None:
        if not self._evicted or now - self._logged_at < _LOG_EVERY_S:
            return
        evicted, self._evicted, self._logged_at = self._evicted, 0, now
        message = (
            f"All {self._options.max_connections} connections were in use: {evicted} were closed or refused "
            "(`limits.connections`)"
        )
        self._events.note("warning", "connections_full", message, closed=evicted)

    # -- requests -------------------------------------------------------------------------------------------------

    def handle(self, exchange: HttpExchange, request: HttpRequest) -> None:
        """Handle a request. A bug of ours costs that one request, which gets status 500."""
        path, rest = request.path, False
        exchange.too_many_open = self.responding > self._max_responding
        try:
            if path in _MCP_SPELLINGS:
                self._mcp.handle(exchange, request, self._access.check(request))
                return
            route, path_parameters = self._routes.find(path)
            rest = route.rest
            principal = self._access.check(request, route.credential)
            if principal is UNAUTHENTICATED:
                exchange.forget_headers()
            handler = route.handler(request.method)
            route_request = RouteRequest(exchange, request, principal, path_parameters)
            if not (exchange.too_many_open and route.waits):
                handler(route_request)
                return
            self._events.count("requests_refused", TOO_MANY_OPEN.code.id)
            if rest:
                respond_with_problem(route_request, TOO_MANY_OPEN)
            else:
                exchange.refuse(TOO_MANY_OPEN)
        except GatewayError as error:
            self._refuse(exchange, error, rest=rest)
        except Exception as error:
            self._events.note("error", "internal", f"{type(error).__name__}: {error}", path=path.decode("latin-1"))
            self._refuse(exchange, GatewayError(internal_problem()), rest=rest)

    def check_head(self, request: HttpRequest) -> GatewayError | None:
        """Check a request before its body has come; returns why it is refused."""
        try:
            if request.path in _MCP_SPELLINGS:
                self._access.check(request)
            else:
                route, _ = self._routes.find(request.path)
                self._access.check(request, route.credential)
                route.handler(request.method)
        except GatewayError as error:
            return error
        return None

    def refuse(self, exchange: HttpExchange, request: HttpRequest, error: GatewayError) -> None:
        """Refuse a request whose body has not come."""
        path = request.path
        self._refuse(exchange, error, rest=path not in _MCP_SPELLINGS and self._routes.find(path)[0].rest)

    def _refuse(self, exchange: HttpExchange, error: GatewayError, *, rest: bool) -> None:
        problem = error.problem
        self._events.count("requests_refused", problem.code.id)
        if problem.code in _ACCESS_DENIED:
            exchange.forget_headers()
        if problem.code is UNAUTHORIZED:
            exchange.add_header(b"www-authenticate", b'Bearer realm="trunkline"')
        if isinstance(error, Denied) and error.allow:
            exchange.add_header(b"allow", error.allow)
        if rest:
            exchange.respond(problem.code.http, encode(problem_document(problem, error.details)))
        else:
            exchange.refuse(problem)

    # -- time and the end -----------------------------------------------------------------------------------------

    def _tick(self) -> None:
        """Check the timeouts of all connections and sessions, once a second; an error in one must not stop it."""
        self._ticking = Deadline(_TICK_S, self._tick)
        now = self._loop.time()
        for connection in list(self._connections):
            if not call_safely("a connection's timeout", connection.tick, now):
                connection.abort()
        if now - self._searched_at > _TICK_S:
            self._candidates.clear()
        call_safely("idle connections", self._close_idle, now)
        call_safely("the timeouts of sessions", self._sessions.tick, now)
        call_safely("the log of evictions", self._log_evicted, now)

    def stop_listening(self) -> None:
        for server in (self._server, self._unix_server):
            if server is not None:
                server.close()
        if self._unix_socket is not None:
            self._unix_socket.remove()

    async def close(self) -> None:
        """Stop listening, end all streams, and close the connections."""
        self.stop_listening()
        if self._ticking is not None:
            self._ticking.cancel()
        self._sessions.close()
        for connection in list(self._connections):
            connection.close()
        end = self._loop.time() + _CLOSE_S
        while self._connections and self._loop.time() < end:
            await asyncio.sleep(0.01)
        for connection in list(self._connections):
            connection.abort()


class _RefusedConnection(asyncio.Protocol):
    """Aborts a connection beyond the limit."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).abort()
