"""One app as a server, which stays the same over the app's connections and is down while there is none."""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable
from time import monotonic
from typing import Final

import msgspec
from msgspec import Raw

from trunkline.core.call import Call, Failure
from trunkline.core.errors import (
    APP_REFUSED,
    QUEUE_FULL,
    RATE_LIMIT,
    SOURCE_DOWN,
    SOURCE_LOST,
    UNKNOWN_TOOL,
    Code,
    Problem,
)
from trunkline.core.source import Health, Sink, ToolsOnlySource
from trunkline.core.tool import Snapshot
from trunkline.protocol.app_messages import Registration, refused
from trunkline.protocol.jsonrpc import encode
from trunkline.sources.app.connection import AppConnection, ThrottledLog
from trunkline.sources.app.tool_definitions import AppTools, read_tools


class RateLimiter:
    """A token bucket that holds what is unused of one second."""

    __slots__ = ("_clock", "_filled_at", "_left", "_per_second")

    def __init__(self, per_second: float, clock: Callable[[], float] = monotonic) -> None:
        self._per_second = per_second
        self._clock = clock
        self._left = max(1.0, per_second)
        self._filled_at = clock()

    def take(self) -> float:
        """Take a token and return 0, or return the seconds until there is one."""
        now = self._clock()
        full = max(1.0, self._per_second)
        self._left = min(full, self._left + (now - self._filled_at) * self._per_second)
        self._filled_at = now
        if self._left >= 1.0:
            self._left -= 1.0
            return 0.0
        return (1.0 - self._left) / self._per_second


_GONE: Final = "the app disconnected"
_TAKEN_OVER: Final = "another connection of the same app took its place"
_HINT: Final = "start the app, or let it connect again"
_RETRY_AFTER_MS: Final = 1000


class _CallParams(msgspec.Struct):
    arguments: Raw = Raw(b"{}")


_decode_params: Final = msgspec.json.Decoder(_CallParams).decode


class ConnectedApp(ToolsOnlySource):
    """The server of one app. `connection` is None while the app is not connected; a `rate` of 0 is no limit."""

    def __init__(self, name: str, log: ThrottledLog, *, queue: int, rate: int) -> None:
        self.name = name
        self.app_name = ""
        self.connection: AppConnection | None = None
        self._credential = b""
        self._acknowledges = False
        self._queue = queue
        self._rate_limiter = RateLimiter(rate) if rate else None
        self._wire_names: dict[str, bytes] = {}
        self._health = Health(state="starting")
        self._connections = 0
        self._sink: Sink
        self._log = log

    # -- as a source --------------------------------------------------------------------------------------------------

    async def run(self, sink: Sink) -> None:
        """The listener that owns this source runs it."""

    def submit(self, call: Call) -> None:
        connection = self.connection
        if connection is None:
            self._refuse(call, SOURCE_DOWN, f"Server {self.name} is down: {_GONE}", _RETRY_AFTER_MS)
            return
        if len(connection.pending) >= self._queue:
            self._refuse(call, QUEUE_FULL, f"Server {self.name} has {self._queue} calls open", _RETRY_AFTER_MS)
            return
        if connection.backed_up:
            self._refuse(call, QUEUE_FULL, f"Server {self.name}: the app does not read its input", _RETRY_AFTER_MS)
            return
        wire_name = self._wire_names.get(call.tool)
        if wire_name is None:
            self._refuse(call, UNKNOWN_TOOL, f"Unknown tool: {self.name}.{call.tool}", None)
            return
        if self._rate_limiter is not None and (wait_s := self._rate_limiter.take()):
            self._refuse(call, RATE_LIMIT, f"Server {self.name} is called too often", int(wait_s * 1000) + 1)
            return
        connection.send(call, wire_name, _decode_params(call.params).arguments)

    def _refuse(self, call: Call, code: Code, message: str, retry_after_ms: int | None) -> None:
        """Fail a call of which nothing was sent."""
        problem = Problem(
            code=code,
            message=message,
            source=self.name,
            tool=call.tool,
            retryable=retry_after_ms is not None,
            retry_after_ms=retry_after_ms,
        )
        call.finish(Failure(problem))

    # -- its connections ----------------------------------------------------------------------------------------------

    def has_credential(self, credential: str, *, if_none: bool) -> bool:
        """Whether the connected app registered with this credential; `if_none` is for one that gave none."""
        return hmac.compare_digest(self._credential, credential.encode()) if self._credential else if_none

    def register(self, connection: AppConnection, message: Registration, sink: Sink) -> AppTools:
        """Make this the app's connection, and publish the tools that it registers."""
        before, self.connection = self.connection, connection
        self._sink = self._log.sink = sink
        if before is not connection:
            connection.server, connection.log = self.name, self._log
            self._connections += 1
            if before is not None:
                before.end(SOURCE_LOST, _TAKEN_OVER, self._refusal(_TAKEN_OVER))
        self._acknowledges = message.acknowledge
        self.app_name, self._credential = message.app_name, message.credential.encode()
        tools = read_tools(self.name, message.app_name, message.tools)
        self._wire_names = tools.wire_names
        for warning in tools.warnings[:1]:
            more = f" (and {len(tools.warnings) - 1} more)" if len(tools.warnings) > 1 else ""
            self._log.add("tools_left_out", warning + more)
        info = encode({"name": message.app_name})
        sink.publish(Snapshot(tools=tools.tools, server_info=info, warnings=tools.warnings))
        if self._health.state != "ready":
            self._set_health(Health(state="ready", since=time.time(), restarts=self._connections - 1))
        return tools

    def remove(self, gone: str) -> None:
        """Disconnect once open calls have ended. `gone` says why; if it is empty, its name is taken."""
        if self.connection is not None:
            taken = f"the name `{self.name}` is another server's now"
            self.connection.end_when_idle(gone or taken, b"" if gone else self._refusal(taken))

    def _refusal(self, why: str) -> bytes:
        """The last line for an app that wants to know why it is disconnected."""
        return refused(APP_REFUSED.id, why) if self._acknowledges else b""

    def on_lost(self, connection: AppConnection) -> bool:
        """Go down if this was the app's current connection; returns whether it was."""
        if self.connection is not connection:
            return False
        self.connection = None
        restarts = self._connections - 1
        health = Health(state="down", reason=_GONE, since=time.time(), last_error=_GONE, restarts=restarts, hint=_HINT)
        self._set_health(health)
        return True

    def _set_health(self, health: Health) -> None:
        self._health = health
        self._sink.health(health)
