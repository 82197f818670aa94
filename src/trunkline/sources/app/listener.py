"""The configured source of `kind: app`: it listens, admits apps, and adds a server for each of them."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import resource
import time
import unicodedata
from functools import partial
from typing import Final

from trunkline.core.call import Call, Failure
from trunkline.core.errors import APP_REFUSED, SOURCE_LOST, UNKNOWN_TOOL, GatewayError, Problem
from trunkline.core.names import slug
from trunkline.core.source import Health, Sink, ToolsOnlySource
from trunkline.core.tool import Snapshot
from trunkline.core.unfinished_bytes import UnfinishedBytes
from trunkline.protocol.app_messages import BadRegistration, Registration, is_browser, refused, registered
from trunkline.runtime.deadlines import Deadline
from trunkline.runtime.listener import Listener
from trunkline.runtime.process_setup import connection_limit
from trunkline.runtime.server_lifecycle import RetryBackoff
from trunkline.sources.app import AppSection
from trunkline.sources.app.connected_app import ConnectedApp
from trunkline.sources.app.connection import AppConnection, ThrottledLog

_MOST_WAITING: Final = 256
_REGISTER_S: Final = 10.0
_LARGE_BYTES: Final = 1024 * 1024
_MOST_BYTES: Final = 64 * 1024 * 1024
_ABSENT_S: Final = 600.0
"""How long the name of an app that has left is kept."""
_MOST_ABSENT: Final = 256
_MOST_APPS: Final = 4096
_REPORT_DELAY_S: Final = 0.2
"""Apps that come and go together are reported together."""
_CLOSE_S: Final = 5.0
_NOT_LISTENING: Final = "the gateway does not listen for apps any more"


class PendingConnections:
    """Connections that have not registered: limited in number, time and memory, as anyone may open them.

    With `has_token` a connection that sends anything else first is closed.
    """

    def __init__(self, log: ThrottledLog, *, has_token: bool) -> None:
        self._log = log
        self._has_token = has_token
        self._waiting: dict[AppConnection, Deadline] = {}
        self._most_waiting = _MOST_WAITING
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY:  # a quarter of what HTTP leaves
            self._most_waiting = max(1, min(_MOST_WAITING, (soft - connection_limit()) // 4))

    def add(self, connection: AppConnection) -> None:
        if len(self._waiting) >= self._most_waiting:
            self._drop(next(iter(self._waiting)), "too many connections have not registered")
        late = partial(self._drop, connection, f"a connection did not register within {_REGISTER_S:g} seconds")
        self._waiting[connection] = Deadline(_REGISTER_S, late)

    def discard(self, connection: AppConnection) -> None:
        timer = self._waiting.pop(connection, None)
        if timer is not None:
            timer.cancel()

    def check_memory(self, connection: AppConnection) -> None:
        """Drop the connection with the most buffered bytes when all together buffer too much."""
        if connection.buffered_bytes < _LARGE_BYTES:
            return
        if sum(waiting.buffered_bytes for waiting in self._waiting) > _MOST_BYTES:
            largest = max(self._waiting, key=lambda waiting: waiting.buffered_bytes)
            self._drop(largest, "connections that have not registered send too much")

    def on_line(self, connection: AppConnection, line: bytes) -> None:
        """Handle a line other than `register`. With a token there is no second try; browsers are dropped."""
        if is_browser(line):
            self._drop(connection, "something speaks HTTP to the port for apps")
        elif self._has_token:
            self._drop(connection, "a connection sent something other than `register` first")
        else:
            self._log.add("noise_lines", "a connection sent a line that is no message before it registered")

    def _drop(self, connection: AppConnection, why: str) -> None:
        self._log.add("app_connections_dropped", f"a connection was closed: {why}")
        connection.end(APP_REFUSED, why)


class AppListener(ToolsOnlySource):
    """Owns the connections and the apps that register on them."""

    def __init__(self, name: str, section: AppSection, limit_bytes: int, unfinished: UnfinishedBytes) -> None:
        self._name = name
        self._section = section
        self._limit_bytes = limit_bytes
        self._unfinished = unfinished
        self._token = section.token.encode()
        self._apps: dict[str, ConnectedApp] = {}
        self._absent: dict[str, Deadline] = {}
        self._open_connections: set[AppConnection] = set()
        self._closing = False
        self._connected = 0
        self._up_since = 0.0
        self._health_timer: asyncio.TimerHandle | None = None
        self._listener: Listener | None = None
        self._sink: Sink
        self._log: ThrottledLog
        self._pending: PendingConnections
        self._loop: asyncio.AbstractEventLoop

    def submit(self, call: Call) -> None:
        """It has no tools of its own."""
        message = f"Unknown tool: {self._name}.{call.tool}"
        call.finish(Failure(Problem(code=UNKNOWN_TOOL, message=message, source=self._name, tool=call.tool)))

    # -- lifecycle ----------------------------------------------------------------------------------------------------

    async def run(self, sink: Sink) -> None:
        self._loop = asyncio.get_running_loop()
        self._sink = sink
        self._log = ThrottledLog(sink)
        self._pending = PendingConnections(self._log, has_token=bool(self._token))
        try:
            self._listener = await self._listen(RetryBackoff())
            self._up_since = time.time()
            sink.publish(Snapshot())
            self._report_health()
            await self._loop.create_future()  # until it is cancelled
        finally:
            await self._close()

    async def _listen(self, backoff: RetryBackoff) -> Listener:
        """Retry until the address is free: our own predecessor may still hold it."""
        since = time.time()
        while True:
            try:
                key = f"sources.{self._name}.listen"
                return await Listener.open(self._section.listen, self._new_connection, key)
            except GatewayError as error:
                why, hint = error.problem.message, error.problem.hint
                restarts = backoff.failures
                self._sink.health(
                    Health(state="down", reason=why, since=since, last_error=why, restarts=restarts, hint=hint)
                )
            await asyncio.sleep(backoff.next_delay_s())

    def _new_connection(self) -> asyncio.Protocol:
        return AppConnection(self, self._log, self._limit_bytes, self._unfinished)

    async def _close(self) -> None:
        """Stop listening and disconnect all apps."""
        self._stop_listening()
        for connection in list(self._open_connections):
            connection.end(SOURCE_LOST, _NOT_LISTENING)
        end = self._loop.time() + _CLOSE_S
        while self._open_connections and self._loop.time() < end:
            await asyncio.sleep(0.01)
        for name in list(self._apps):
            self._forget(name)
        if self._health_timer is not None:
            self._health_timer.cancel()

    def _stop_listening(self) -> None:
        """Free the address at once for a successor, while calls still end here."""
        self._closing = True
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
        for connection in [connection for connection in self._open_connections if not connection.server]:
            connection.end(SOURCE_LOST, _NOT_LISTENING)

    # -- health -------------------------------------------------------------------------------------------------------

    def _report_soon(self) -> None:
        if self._health_timer is None:
            self._health_timer = self._loop.call_later(_REPORT_DELAY_S, self._report_health)

    def _report_health(self) -> None:
        self._health_timer = None
        if self._listener is not None:
            apps = f"{self._connected} app{'' if self._connected == 1 else 's'} connected"
            reason = f"listening on {self._listener.where}, {apps}"
            self._sink.health(Health(state="ready", reason=reason, since=self._up_since))

    # -- as the handler of connections --------------------------------------------------------------------------------

    def opened(self, connection: AppConnection) -> None:
        self._open_connections.add(connection)
        if self._closing:  # it was accepted at the last moment
            connection.end(SOURCE_LOST, _NOT_LISTENING)
        else:
            self._pending.add(connection)

    def buffering(self, connection: AppConnection) -> None:
        self._pending.check_memory(connection)

    def unregistered_line(self, connection: AppConnection, line: bytes) -> None:
        self._pending.on_line(connection, line)

    def bad_registration(self, connection: AppConnection, wrong: BadRegistration) -> None:
        self._refuse(connection, "an app", str(wrong), acknowledge=wrong.acknowledge)

    def register(self, connection: AppConnection, message: Registration) -> None:
        if self._closing:
            return
        name = server_name(message.app_name)
        app = self._apps.get(name)
        if app is None:
            app = ConnectedApp(name, ThrottledLog(self._sink), queue=self._section.queue, rate=self._section.rate)
        refusal = self._refusal(connection, message, app)
        sink = None if refusal else self._claim_name(name, app)
        if sink is None:
            refusal = refusal or f"the name `{name}` is taken by another server"
            self._refuse(connection, f"the app `{message.app_name}`", refusal, acknowledge=message.acknowledge)
            return
        self._admit(connection, app)
        tools = app.register(connection, message, sink)
        if message.acknowledge:
            connection.write_droppable(registered(message.app_name, name, len(tools.tools), tools.warnings))

    def _claim_name(self, name: str, app: ConnectedApp) -> Sink | None:
        """The sink for this app; None if its name, or one that differs only in case, is another server's."""
        for absent in [absent for absent in self._absent if absent != name and absent.casefold() == name.casefold()]:
            self._forget(absent)
        return self._sink.add_app(name, app, partial(self._on_removed, app))

    def _on_removed(self, app: ConnectedApp, listener_closes: bool) -> None:
        """Disconnect the app, so that it connects to our successor, or learns here that its name is taken."""
        if listener_closes:
            self._stop_listening()
        del self._apps[app.name]
        self._cancel_absence(app.name)
        if app.connection is not None:
            self._connected -= 1
            self._report_soon()
            app.remove(_NOT_LISTENING if listener_closes else "")

    def _refusal(self, connection: AppConnection, message: Registration, app: ConnectedApp) -> str:
        """Why this app may not register; empty if it may."""
        if self._token and not hmac.compare_digest(self._token, message.token.encode()):
            return "its `token` is missing or wrong"
        if connection.server and connection.server != app.name:
            return f"this connection belongs to `{connection.server}`; another app needs another connection"
        is_other = app.connection is not None and app.connection is not connection
        # without a credential, whoever has the common token is the same app
        if is_other and not app.has_credential(message.credential, if_none=bool(self._token)):
            return f"an app named `{app.app_name}` is connected already"
        most = min(_MOST_APPS, connection_limit() // 8)
        if not connection.server and self._connected >= most:
            return f"there are {most} apps already"
        return ""

    def _refuse(self, connection: AppConnection, who: str, why: str, *, acknowledge: bool) -> None:
        self._log.add("apps_refused", f"{who} was refused: {why}")
        connection.end(APP_REFUSED, why, refused(APP_REFUSED.id, why) if acknowledge else b"")

    def _admit(self, connection: AppConnection, app: ConnectedApp) -> None:
        self._pending.discard(connection)
        self._apps[app.name] = app
        self._cancel_absence(app.name)
        if app.connection is None:
            self._connected += 1
            self._report_soon()

    def disconnected(self, connection: AppConnection) -> None:
        self._pending.discard(connection)
        app = self._apps.get(connection.server)
        if app is not None and app.on_lost(connection):
            self._connected -= 1
            self._absent[app.name] = Deadline(_ABSENT_S, partial(self._forget, app.name))
            if len(self._absent) > _MOST_ABSENT:
                self._forget(next(iter(self._absent)))
            self._report_soon()

    def closed(self, connection: AppConnection) -> None:
        self._open_connections.discard(connection)

    def _forget(self, name: str) -> None:
        self._cancel_absence(name)
        del self._apps[name]
        self._sink.remove_app(name)

    def _cancel_absence(self, name: str) -> None:
        timer = self._absent.pop(name, None)
        if timer is not None:
            timer.cancel()


def server_name(app_name: str) -> str:
    """The app's name in characters that a server's name may have; a name without any such is told apart by a hash.

    Letters that only look different, such as those of full width, are the same, so that no app can imitate another.
    """
    plain = unicodedata.normalize("NFKC", app_name)
    if any(character.isascii() and character.isalnum() for character in plain):
        return slug(plain)
    return f"app_{hashlib.sha256(app_name.encode()).hexdigest()[:6]}"
