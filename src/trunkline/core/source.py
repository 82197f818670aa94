"""The seam between the router and every kind of tool source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, Self

from trunkline.core.call import Call, Caller, Failure, Json, Outcome, Result
from trunkline.core.errors import INVALID_PARAMS, Problem
from trunkline.core.server_request import ServerRequest
from trunkline.core.tool import Snapshot

# A caller's wish to hear when a resource changes, or how its tasks get on.


class _Closable:
    """Whoever made it closes it, and whoever carries it learns that nobody wants it any more."""

    __slots__ = ("_on_closed", "closed")

    def __init__(self) -> None:
        self.closed = False
        self._on_closed: Callable[[Self], None] | None = None

    def owned_by(self, on_closed: Callable[[Self], None]) -> None:
        self._on_closed = on_closed

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            if self._on_closed is not None:
                self._on_closed(self)


class ResourceWatch(_Closable):
    """One subscription to one resource, by the URI its server knows. `on_settled` is called with a `Result` when it
    holds, and with anything else when it does not, or not any more: then it is over. `on_updated` gets the parameters
    of the server's notification. The source stops listening when the last one of a resource is closed.
    """

    __slots__ = ("_settled", "caller", "on_settled", "on_updated", "uri")

    def __init__(
        self,
        caller: Caller,
        uri: str,
        on_updated: Callable[[Json], object],
        on_settled: Callable[[Outcome], object],
    ) -> None:
        super().__init__()
        self.caller = caller
        self.uri = uri
        self.on_updated = on_updated
        self.on_settled = on_settled
        self._settled = False

    def settle(self, outcome: Outcome) -> None:
        """How asking the server went, the first time, and that it is over; a loss that is mended is not told."""
        if not self._settled or not isinstance(outcome, Result):
            self._settled = True
            self.on_settled(outcome)


class TaskWatch(_Closable):
    """One wish to hear of some tasks of one server (2026-07-28), by the ids that it gave them. `on_settled` is called
    once, with those that the server will tell of. `on_told` gets the id and the parameters of each notification.
    """

    __slots__ = ("_settled", "caller", "on_settled", "on_told", "task_ids")

    def __init__(
        self,
        caller: Caller,
        task_ids: frozenset[str],
        on_told: Callable[[str, Json], object],
        on_settled: Callable[[frozenset[str]], object],
    ) -> None:
        super().__init__()
        self.caller = caller
        self.task_ids = task_ids
        self.on_told = on_told
        self.on_settled = on_settled
        self._settled = False

    def settle(self, honoured: frozenset[str]) -> None:
        """What the server said the first time; later losses are mended without a word."""
        if not self._settled:
            self._settled = True
            self.on_settled(honoured)


Level = Literal["debug", "info", "warning", "error"]
State = Literal["starting", "ready", "degraded", "down", "disabled", "auth_required"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """How a source is, why, and what to do. `since` is wall-clock time, for people; nothing is timed by it."""

    state: State
    reason: str = ""
    since: float = 0.0
    last_error: str = ""
    restarts: int = 0
    stderr_tail: str = ""
    hint: str = ""


OnEvicted = Callable[[bool], None]
"""Told to the host of a guest that leaves: whether the host itself leaves, or a configured server has the name now."""


class Sink(Protocol):
    """Where a source reports to."""

    def publish(self, snapshot: Snapshot, /) -> None: ...
    def publish_for(self, session: str, snapshot: Snapshot | None, /) -> None:
        """What one client's own server offers, where that differs; None when it is as for everybody again."""
        ...

    def health(self, health: Health, /) -> None: ...
    def forward_request(self, session: str, server_request: ServerRequest, /) -> None:
        """A question of one client's own server that belongs to no call for sure."""
        ...

    def forward_notification(self, session: str, method: str, params: Json, /) -> None:
        """A notification of one client's own server that belongs to no call for sure."""
        ...

    def add_app(self, name: str, source: Source, evicted: OnEvicted, /) -> Sink | None:
        """Bring in a server of one's own under a name, or find it again; None where the name is somebody else's.

        Its `run` is never called: its host owns its life, and dismisses it. `evicted` is called when it gets no more
        calls although nobody dismissed it; those in flight may still end.
        """
        ...

    def remove_app(self, name: str, /) -> None:
        """A server that was brought in leaves for good."""
        ...

    def note(self, level: Level, message: str, /) -> None:
        """Something worth a line in the log."""
        ...

    def count(self, counter: str, amount: int = 1, /) -> None: ...


class Source(Protocol):
    """One server, app, service or plugin that offers tools."""

    async def run(self, sink: Sink, /) -> None:
        """Live until cancelled: connect, publish snapshots, reconnect. On return nothing of it is left running."""
        ...

    def submit(self, call: Call, /) -> None:
        """Carry one call. Never raises and never blocks; `call.finish` is called exactly once, now or later."""
        ...

    def watch_resource(self, watch: ResourceWatch, /) -> None:
        """Tell `watch` whenever its resource changes, until it is closed. Settles it exactly once."""
        ...

    def watch_tasks(self, watch: TaskWatch, /) -> None:
        """Tell `watch` how its tasks get on, until it is closed. Settles it once the server has answered."""
        ...

    def notify(self, caller: Caller, method: str, params: Json, /) -> None:
        """A notification of a client, for the servers that work for it."""
        ...

    def refresh(self, /) -> None:
        """Somebody lists what this source offers, and its last word on that is old."""
        ...

    def forget(self, session: str, /) -> None:
        """A client's session ended: whatever was held for it alone is released."""
        ...


class ToolsOnlySource:
    """What a source need not do that offers nothing but tools, keeps nothing for one client and lists at once."""

    def watch_resource(self, watch: ResourceWatch) -> None:
        problem = Problem(code=INVALID_PARAMS, message=f"No such resource: {watch.uri}")
        watch.settle(Failure(problem))

    def watch_tasks(self, watch: TaskWatch) -> None:
        watch.settle(frozenset())

    def notify(self, caller: Caller, method: str, params: Json) -> None:
        """Nothing here works for one client."""

    def refresh(self) -> None:
        """What was published last is what there is."""

    def forget(self, session: str) -> None:
        """Nothing is held for one client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceKind:
    """One row of the table of kinds: the kind's own configuration section, and how to build a source from it."""

    section: type[Any]
    build: Callable[[str, Any, Any], Source]
