"""The HTTP door: listens, lets in, and hands each request to its route."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, cast

from trunkline.core.errors import (
    HOST_REFUSED,
    INTERNAL,
    LISTEN_FAILED,
    ORIGIN_REFUSED,
    UNAUTHORIZED,
    GatewayError,
    Problem,
)
from trunkline.core.events import Events
from trunkline.core.unfinished_bytes import UnfinishedBytes
from trunkline.frontends.http.access import UNAUTHENTICATED, Access, Denied
from trunkline.frontends.http.connection import Connection
from trunkline.frontends.http.exchange import HttpExchange
from trunkline.frontends.http.mcp import TOO_MANY_OPEN, McpRoute
from trunkline.frontends.http.requests import RouteRequest, problem_document, respond_with_problem
from trunkline.frontends.http.route_table import RouteTable
from trunkline.frontends.http.routes import MCP, Handlers
from trunkline.frontends.http.sessions import HttpSessions
from trunkline.protocol.http1 import HttpRequest
from trunkline.protocol.http1_message import HttpLimits
from trunkline.protocol.jsonrpc import encode
from trunkline.runtime.deadlines import Deadline
from trunkline.runtime.listener import UnixSocket
from trunkline.runtime.safe_calls import call_safely

_TICK_S: Final = 1.0
_CLOSE_S: Final = 2.0
_NEARLY_FULL: Final = 0.9
_IDLE_S: Final = 5.0
"""How long a connection must have been idle to be closed when there are nearly too many."""
_TOLD_EVERY_S: Final = 60.0
_LOOK_EVERY_S: Final = 0.1
_AT_A_LOOK: Final = 1024
_SILENT_S: Final = 1.0
"""Whoever has asked nothing for so long does not mean to. One that has just come was not read from yet."""
_NOT_LET_IN: Final = (HOST_REFUSED, ORIGIN_REFUSED, UNAUTHORIZED)
_MCP_PATHS: Final = (MCP.encode(), f"{MCP}/".encode())
"""Some clients write a slash at the end, and a redirect would lose their POST."""


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
        self._most_answering = max(1, options.max_connections * 7 // 8)
        """So many may wait or stream at once: newcomers always find a connection that can give way to them."""
        self._connections: set[Connection] = set()
        self._silent: dict[Connection, float] = {}
        """Those that have not asked anything yet, the oldest first, and when they came."""
        self._dispensable: list[Connection] = []
        self._looked_at = 0.0
        self._more_to_find = False
        self._turned_away = 0
        self._told_at = -_TOLD_EVERY_S
        self._server: asyncio.Server | None = None
        self._unix_server: asyncio.Server | None = None
        self._unix_socket: UnixSocket | None = None
        self._ticking: Deadline | None = None
        self._loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        return len(self._connections)

    async def start(self) -> tuple[str, int]:
        """Listen; the address that was bound (a configured port 0 picks a free one)."""
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
            await self._listen_on_socket(options.socket)
        self._tick()
        address = self._server.sockets[0].getsockname()
        return options.host, address[1]

    async def _listen_on_socket(self, path: Path) -> None:
        try:
            self._unix_socket = UnixSocket(path, "gateway.socket")
        except GatewayError:
            self.stop_listening()
            raise
        self._unix_server = await self._loop.create_unix_server(
            self._connected, sock=self._unix_socket.socket, backlog=1024, start_serving=True
        )

    # -- connections ----------------------------------------------------------------------------------------------

    def _connected(self) -> asyncio.Protocol:
        if len(self._connections) >= self._options.max_connections and not self._make_room():
            self._events.count("connections_refused")
            self._turned_away += 1
            return _RefusedConnection()
        connection = Connection(self, self._options.limits, self._options.unfinished)
        self._connections.add(connection)
        self._silent[connection] = self._loop.time()
        return connection

    def _make_room(self) -> bool:
        """Whoever connected first and has asked nothing since gives way: honest clients ask at once. Then whoever can
        best be done without, and only then those that have come a moment ago."""
        connection = self._silent_for(_SILENT_S) or self._most_dispensable() or self._silent_for(0.0)
        if connection is None:
            return False
        self.closed(connection)
        connection.abort()
        self._events.count("connections_evicted")
        self._turned_away += 1
        return True

    def _silent_for(self, seconds: float) -> Connection | None:
        connection, since = next(iter(self._silent.items()), (None, 0.0))
        return connection if self._loop.time() - since >= seconds else None

    def _most_dispensable(self) -> Connection | None:
        """Looked for among all of them now and then only, or a crowd of newcomers would take all the time there is.
        Where there were more than a look keeps, the next one is worth its time."""
        now = self._loop.time()
        connection = self._found_before(now)
        if connection is None and (self._more_to_find or now - self._looked_at > _LOOK_EVERY_S):
            self._looked_at = now
            found = [connection for connection in self._connections if connection.dispensable(now)[1] > _LOOK_EVERY_S]
            self._more_to_find = len(found) > _AT_A_LOOK
            self._dispensable = sorted(found, key=lambda connection: connection.dispensable(now))[-_AT_A_LOOK:]
            connection = self._found_before(now)
        return connection

    def _found_before(self, now: float) -> Connection | None:
        while self._dispensable:
            connection = self._dispensable.pop()
            if connection in self._connections and connection.dispensable(now)[1] > _LOOK_EVERY_S:
                return connection
        return None

    def first_request(self, connection: Connection) -> None:
        self._silent.pop(connection, None)

    def closed(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._silent.pop(connection, None)

    def _close_idle(self, now: float) -> None:
        """Connections that are kept for later give way before newcomers have to be refused, the idlest first."""
        surplus = len(self._connections) - int(self._options.max_connections * _NEARLY_FULL)
        if surplus <= 0:
            return
        idle = [connection for connection in self._connections if connection.idle_s(now) > _IDLE_S]
        idle.sort(key=lambda connection: connection.idle_s(now), reverse=True)
        for connection in idle[:surplus]:
            connection.close()

    def _tell(self, now: float) -> None:
        if not self._turned_away or now - self._told_at < _TOLD_EVERY_S:
            return
        turned_away, self._turned_away, self._told_at = self._turned_away, 0, now
        message = (
            f"All {self._options.max_connections} connections were taken: {turned_away} were closed or refused "
            "(`limits.connections`)"
        )
        self._events.note("warning", "connections_full", message, closed=turned_away)

    # -- requests -------------------------------------------------------------------------------------------------

    def handle(self, exchange: HttpExchange, request: HttpRequest) -> None:
        """One request of any connection. A bug of ours answers 500 and costs that one request."""
        path, rest = request.path, False
        exchange.too_many_open = self.responding > self._most_answering
        try:
            if path in _MCP_PATHS:
                self._mcp.handle(exchange, request, self._access.check(request))
                return
            place, names = self._routes.find(path)
            rest = place.rest
            principal = self._access.check(request, place.credential)
            if principal is UNAUTHENTICATED:
                exchange.forget_headers()
            handler, request = place.handler(request.method), RouteRequest(exchange, request, principal, names)
            if exchange.too_many_open and place.waits:
                self._refuse_to_wait(request, rest=rest)
            else:
                handler(request)
        except GatewayError as error:
            self._refuse(exchange, error, rest=rest)
        except Exception as error:
            self._events.note("error", "internal", f"{type(error).__name__}: {error}", path=path.decode("latin-1"))
            problem = Problem(code=INTERNAL, message="Internal error", executed="unknown")
            self._refuse(exchange, GatewayError(problem), rest=rest)

    def check_head(self, request: HttpRequest) -> GatewayError | None:
        try:
            if request.path in _MCP_PATHS:
                self._access.check(request)
            else:
                place, _ = self._routes.find(request.path)
                self._access.check(request, place.credential)
                place.handler(request.method)
        except GatewayError as error:
            return error
        return None

    def refuse(self, exchange: HttpExchange, error: GatewayError) -> None:
        """A request whose head says enough."""
        path = exchange.path
        self._refuse(exchange, error, rest=path not in _MCP_PATHS and self._routes.find(path)[0].rest)

    def _refuse(self, exchange: HttpExchange, error: GatewayError, *, rest: bool) -> None:
        problem = error.problem
        self._events.count("requests_refused", problem.code.id)
        if problem.code in _NOT_LET_IN:
            exchange.forget_headers()
        if problem.code is UNAUTHORIZED:
            exchange.add_header(b"www-authenticate", b'Bearer realm="trunkline"')
        if isinstance(error, Denied) and error.allow:
            exchange.add_header(b"allow", error.allow)
        if rest:
            exchange.respond(problem.code.http, encode(problem_document(problem, error.details)))
        else:
            exchange.refuse(problem)

    def _refuse_to_wait(self, request: RouteRequest, *, rest: bool) -> None:
        self._events.count("requests_refused", TOO_MANY_OPEN.code.id)
        if rest:
            respond_with_problem(request, TOO_MANY_OPEN)
        else:
            request.exchange.refuse(TOO_MANY_OPEN)

    # -- time and the end -----------------------------------------------------------------------------------------

    def _tick(self) -> None:
        """The only clock of all connections and sessions: whatever happens to one of them, it goes on."""
        self._ticking = Deadline(_TICK_S, self._tick)
        now = self._loop.time()
        for connection in list(self._connections):
            try:
                connection.tick(now)
            except Exception as error:
                self._events.note("error", "internal", f"a connection's clock: {type(error).__name__}: {error}")
                connection.abort()
        if now - self._looked_at > _TICK_S:
            self._dispensable.clear()
        call_safely("idle connections", self._close_idle, now)
        call_safely("the clock of sessions", self._sessions.tick, now)
        call_safely("news of connections", self._tell, now)

    def stop_listening(self) -> None:
        for server in (self._server, self._unix_server):
            if server is not None:
                server.close()
        if self._unix_socket is not None:
            self._unix_socket.remove()

    async def close(self) -> None:
        """No more connections; those open end their streams, then close."""
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
    """A connection too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).abort()
