"""The interface between the router and every kind of tool source.

- The router calls a `Source`; a source reports to its `Sink`. Neither knows the other by any other way.
- Everything runs on the event loop's thread. `run` is the only coroutine; no other method may block or raise.
- A source publishes whole snapshots of what it offers, and its health whenever that changes.
- Each call handed to `submit` is finished exactly once, even if the source is lost or `run` is cancelled.
- What a source holds for one client is keyed by the client's session, and released by `forget`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol, Self

from trunkline.core.call import Call, Caller, Failure, Json, Outcome, Result
from trunkline.core.errors import INVALID_PARAMS, Problem
from trunkline.core.server_request import ServerRequest
from trunkline.core.tool import Snapshot

Level = Literal["debug", "info", "warning", "error"]
State = Literal["starting", "ready", "degraded", "down", "disabled", "auth_required"]
SERVING: Final[tuple[State, ...]] = ("ready", "degraded")
"""The states in which a source takes calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The state of a source, the reason for it, and what to do. `since` is wall-clock time, only for display."""

    state: State
    reason: str = ""
    since: float = 0.0
    last_error: str = ""
    restarts: int = 0
    stderr_tail: str = ""
    hint: str = ""


class Source(Protocol):
    """One server, app, service or plugin that offers tools."""

    async def run(self, sink: Sink, /) -> None:
        """Connect, publish, reconnect, until cancelled. When this returns, nothing of the source is left running."""
        ...

    def submit(self, call: Call, /) -> None:
        """Send one call. `call.finish` is called exactly once, maybe before this returns."""
        ...

    def watch_resource(self, watch: ResourceWatch, /) -> None:
        """Report the updates of a resource until the watch is closed, and settle the watch."""
        ...

    def watch_tasks(self, watch: TaskWatch, /) -> None:
        """Report the updates of some tasks until the watch is closed, and settle the watch."""
        ...

    def notify(self, caller: Caller, method: str, params: Json, /) -> None:
        """Pass on a client's notification to the servers that work for this client."""
        ...

    def refresh(self, /) -> None:
        """Fetch the lists again: a client lists them, and what was published last is out of date."""
        ...

    def forget(self, session: str, /) -> None:
        """Release what is held for a client's session, which has ended."""
        ...


OnEvicted = Callable[[bool], None]
"""Called when the registry removes a connected app: True if its app host goes away, False if a configured server takes
its name."""


class Sink(Protocol):
    """Where a source reports to."""

    def publish(self, snapshot: Snapshot, /) -> None:
        """Replace what the source offers."""
        ...

    def publish_for(self, session: str, snapshot: Snapshot | None, /) -> None:
        """Replace what the source offers to one session; None if that is again what it offers to everybody."""
        ...

    def health(self, health: Health, /) -> None: ...
    def forward_request(self, session: str, server_request: ServerRequest, /) -> None:
        """Send a client the request of a server of its own, if it cannot be told which call caused the request."""
        ...

    def forward_notification(self, session: str, method: str, params: Json, /) -> None:
        """Send a client the notification of a server of its own, if it cannot be told which call it belongs to."""
        ...

    def add_app(self, name: str, source: Source, on_evicted: OnEvicted, /) -> Sink | None:
        """Register a source of its own for a connected app, or find it again; None if the name is taken.

        The caller owns the app's connection, and the app's `run` is never called. `on_evicted` is called if the app is
        removed by anything but `remove_app`; its calls in flight may still end.
        """
        ...

    def remove_app(self, name: str, /) -> None:
        """Unregister a connected app for good."""
        ...

    def note(self, level: Level, message: str, /) -> None:
        """Write a line to the log."""
        ...

    def count(self, counter: str, amount: int = 1, /) -> None: ...


class ToolsOnlySource:
    """The optional methods of a source that offers only tools, holds nothing for a client, and is always up to date."""

    def watch_resource(self, watch: ResourceWatch) -> None:
        problem = Problem(code=INVALID_PARAMS, message=f"No such resource: {watch.uri}")
        watch.settle(Failure(problem))

    def watch_tasks(self, watch: TaskWatch) -> None:
        watch.settle(frozenset())

    def notify(self, caller: Caller, method: str, params: Json) -> None:
        pass

    def refresh(self) -> None:
        pass

    def forget(self, session: str) -> None:
        pass


# -- watches ----------------------------------------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class _Watch:
    """A handle that its creator closes; `when_closed` sets who is told."""

    caller: Caller
    closed: bool = field(default=False, init=False)
    _on_closed: Callable[[Self], None] | None = field(default=None, init=False)
    _settled: bool = field(default=False, init=False)

    def when_closed(self, on_closed: Callable[[Self], None]) -> None:
        self._on_closed = on_closed

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            if self._on_closed is not None:
                self._on_closed(self)


@dataclass(eq=False, slots=True)
class ResourceWatch(_Watch):
    """One client's subscription to one resource at its source, by the URI the server knows.

    `on_settled` takes a `Result` once the subscription holds; any other outcome means that it failed or has ended.
    `on_updated` takes the parameters of each update. The source unsubscribes when the last watch of a resource closes.
    """

    uri: str
    on_updated: Callable[[Json], object]
    on_settled: Callable[[Outcome], object]

    def settle(self, outcome: Outcome) -> None:
        """Report the first outcome, and every failure; that a lost subscription was restored is not reported."""
        if not self._settled or not isinstance(outcome, Result):
            self._settled = True
            self.on_settled(outcome)


@dataclass(eq=False, slots=True)
class TaskWatch(_Watch):
    """One client's subscription to some tasks of one server (MCP 2026-07-28), by the server's own task ids.

    `on_settled` takes, once, the ids that the server will report on. `on_updated` takes the id and parameters of each
    update.
    """

    task_ids: frozenset[str]
    on_updated: Callable[[str, Json], object]
    on_settled: Callable[[frozenset[str]], object]

    def settle(self, honoured: frozenset[str]) -> None:
        """Report the server's first answer; later losses and recoveries are not reported."""
        if not self._settled:
            self._settled = True
            self.on_settled(honoured)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceKind:
    """One row of the table of source kinds: the kind's configuration section, and how to build a source from it."""

    section: type[Any]
    build: Callable[[str, Any, Any], Source]
