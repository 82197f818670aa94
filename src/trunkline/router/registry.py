"""The sources of a gateway: registering, replacing and removing them without losing a call.

A source that is replaced keeps its place until its successor has published something or has failed. Queued calls move
to the successor; calls in flight end where they began, and only then is the old source released.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from trunkline.core.call import Call, Caller, Failure, Json
from trunkline.core.errors import SOURCE_DOWN, Problem
from trunkline.core.events import Events
from trunkline.core.names import RESERVED_SOURCE
from trunkline.core.server_request import NO_CLIENT_ERROR, ServerRequest
from trunkline.core.source import SERVING, Health, Level, OnEvicted, Source
from trunkline.core.tool import Snapshot
from trunkline.router.admission import Admission, CallMemory
from trunkline.router.catalog import Catalog, CatalogViews
from trunkline.router.connected_apps import ConnectedApps
from trunkline.router.definitions import DefinitionChanges, DefinitionStore
from trunkline.router.options import RouterOptions, SourceOptions
from trunkline.router.rewriting import TaskIds
from trunkline.router.sanitizing import redact_health, redact_snapshot, reveal_snapshot
from trunkline.runtime.deadlines import Deadline
from trunkline.runtime.safe_callbacks import call_safely

SWAP_S: Final = 15.0
"""After this long a successor takes over even if it has not reported anything; calls then wait for it."""
_DISABLED: Final = "it is disabled in the configuration"


@dataclass(slots=True)
class _Successor:
    """A source that will take the place of another. `cached` is what a source of this configuration offered when it
    last ran, `last_seen` what any source of this name did; `snapshot` is what the successor itself has published."""

    admission: Admission
    timer: asyncio.TimerHandle
    cached: Snapshot | None
    last_seen: Snapshot | None
    snapshot: Snapshot | None = None


class SourceRegistry:
    """All sources by name, with their admission, and what they publish: lists to the catalog, health to listeners. The
    `on_…` attributes are lists of listeners."""

    def __init__(self, options: RouterOptions, events: Events, definitions: DefinitionStore) -> None:
        self.admissions: dict[str, Admission] = {}
        self.catalog = Catalog(options.naming, options.max_name, self._list_changed)
        self.views = CatalogViews(self.catalog)
        self.task_ids = TaskIds()
        self.clients = SessionClients(self.task_ids)
        self.changes = DefinitionChanges(events)
        self.on_list_changed: list[Callable[[], None]] = []
        self.on_source_changed: list[Callable[[], None]] = []
        """Called when a source has published something, was removed, or changed its state."""
        self.on_source_retired: list[Callable[[Admission], None]] = []
        """Called with the admission of a source that takes no more calls. Whoever ends it calls `release` then."""
        self.on_client_list_changed: list[Callable[[str, str], None]] = []
        """Called with a source and a session for which this source now offers something else."""
        self.events = events
        self.call_memory = CallMemory(options.large_call_bytes)
        self._options = options
        self._definitions = definitions
        self._successors: dict[str, _Successor] = {}
        self._retired: set[Admission] = set()
        self._reconfigured: set[Admission] = set()
        """Sources whose configuration changed since one of their name last published: their lists are compared."""
        self._hide_timers: dict[str, Deadline] = {}
        self._order: tuple[str, ...] = ()
        self._loop = asyncio.get_running_loop()
        self.apps = ConnectedApps(self)

    # -- adding, replacing, removing ----------------------------------------------------------------------------------

    def add(self, name: str, source: Source, options: SourceOptions) -> SourceSink:
        """Register a source. Until it publishes, the catalog has what it offered when it last ran."""
        for other, app in list(self.admissions.items()):
            if other.casefold() == name.casefold() and self.apps.is_app(app):
                message = f"`{name}` is now the name of a configured server: the app of this name is disconnected"
                self.events.note("warning", "names", message, source=other)
                self.remove(other)
                self.apps.evict(app)
        admission = self.admissions[name] = self._admission(name, source, options)
        self.catalog.add_source(name, options.rules)
        cached = self._cached(admission)
        self.changes.begin(name, self._last_seen(admission, cached))
        if cached is not None:
            self.catalog.replace(name, cached)
        return self.sink_of(admission)

    def sink_of(self, admission: Admission) -> SourceSink:
        return SourceSink(self, admission)

    def replace(self, name: str, source: Source, options: SourceOptions) -> SourceSink:
        """Replace a source as soon as its successor has published something or failed."""
        admission = self._admission(name, source, options)
        self._drop_successor(name)
        timer = self._loop.call_later(SWAP_S, self._swap, name)
        cached = self._cached(admission)
        self._successors[name] = _Successor(admission, timer, cached, self._last_seen(admission, cached))
        if self.admissions[name].health.state not in SERVING or admission.health.state != "starting":
            self._swap(name)
        return SourceSink(self, admission)

    def update(self, name: str, options: SourceOptions) -> None:
        """Set other options for a source that keeps running."""
        admission = self._successors[name].admission if name in self._successors else self.admissions[name]
        self.set_options(admission, options)
        self.apps.host_changed(admission)

    def set_options(self, admission: Admission, options: SourceOptions) -> None:
        admission.options = options
        if self.admissions.get(admission.name) is admission:
            self.catalog.add_source(admission.name, options.rules)

    def remove(self, name: str) -> None:
        """Remove a source. Its calls in flight may end; queued ones fail."""
        self._drop_successor(name)
        admission = self.admissions.pop(name)
        self._cancel_hiding(name)
        self.catalog.remove_source(name)
        self.views.drop_source(name)
        self.changes.forget(name)
        message = f"Server {name} was removed"
        for call in self._retire(admission):
            call.finish(Failure(Problem(code=SOURCE_DOWN, message=message, source=name, tool=call.tool)))
        self.events.source_removed(name)
        self._source_changed()

    def reorder(self, names: Iterable[str]) -> None:
        self._order = (RESERVED_SOURCE, *names)
        self.put_in_order()

    def put_in_order(self) -> None:
        """Put the sources into their order. In place: the router holds this dictionary."""
        names = tuple(self.apps.in_order(self._order))
        self.catalog.reorder(names)
        ordered = {name: self.admissions[name] for name in names if name in self.admissions}
        rest = {name: admission for name, admission in self.admissions.items() if name not in ordered}
        self.admissions.clear()
        self.admissions.update(ordered | rest)

    def _admission(self, name: str, source: Source, options: SourceOptions) -> Admission:
        health = Health(state="starting") if options.enabled else Health(state="disabled", reason=_DISABLED)
        return Admission(
            name,
            source,
            health,
            options,
            max_in_flight=self._options.in_flight_per_source,
            max_queue=self._options.queue_per_source,
            call_memory=self.call_memory,
        )

    def _cached(self, admission: Admission) -> Snapshot | None:
        options = admission.options
        known = options.enabled and options.fingerprint
        cached = self._definitions.load(admission.name, options.fingerprint) if known else None
        return None if cached is None else reveal_snapshot(cached)

    def _last_seen(self, admission: Admission, cached: Snapshot | None) -> Snapshot | None:
        """What a source of this name offered last, even if it was configured differently."""
        if not admission.options.fingerprint:
            return cached
        stored = self._definitions.last(admission.name)
        last = None if stored is None else reveal_snapshot(stored)
        if last != cached:
            self._reconfigured.add(admission)
        return last or cached

    def _swap(self, name: str) -> None:
        successor = self._successors.pop(name)
        successor.timer.cancel()
        admission, old = successor.admission, self.admissions[name]
        self.admissions[name] = admission
        self._cancel_hiding(name)
        self.catalog.add_source(name, admission.options.rules)
        self.catalog.hide(name, False)
        self.catalog.replace(name, successor.snapshot or successor.cached)
        if admission.options.fingerprint != old.options.fingerprint:
            self.changes.begin(name, successor.last_seen)
        if successor.snapshot is not None:
            self.changes.published(name, successor.snapshot)
        if self.views.drop_source(name):
            self._list_changed()
        for call in self._retire(old):
            if not call.done:
                admission.admit(call)
        self._health_changed(admission)

    def _drop_successor(self, name: str) -> None:
        """Discard a successor that has not taken over."""
        successor = self._successors.pop(name, None)
        if successor is not None:
            successor.timer.cancel()
            self._retire(successor.admission)

    def _retire(self, admission: Admission) -> Iterable[Call]:
        """Stop admitting calls to a source, and return those that were queued. Those in flight end there."""
        self._retired.add(admission)
        self._reconfigured.discard(admission)
        waiting = admission.retire()
        self.apps.host_retired(admission)
        for subscriber in self.on_source_retired:
            call_safely("retiring a source", subscriber, admission)
        return waiting

    def busy(self, admission: Admission) -> bool:
        """Whether calls are in flight at this source, or at the apps connected to it."""
        return any(each.in_flight for each in (admission, *self.apps.of(admission)))

    def release(self, admission: Admission) -> None:
        """Forget a retired source, of which nothing is left running."""
        self._retired.discard(admission)
        self.apps.host_released(admission)

    # -- what sources report ------------------------------------------------------------------------------------------

    def published(self, admission: Admission, snapshot: Snapshot) -> None:
        name = admission.name
        if self.admissions.get(name) is not admission:
            successor = self._successors.get(name)
            if successor is not None and successor.admission is admission:
                successor.snapshot = snapshot
                self._save(admission, snapshot)
            return
        changed = snapshot != self.catalog.snapshot(name) or admission in self._reconfigured
        self._reconfigured.discard(admission)
        self.catalog.replace(name, snapshot)
        if changed:
            self._save(admission, snapshot)
            if name != RESERVED_SOURCE:
                self.changes.published(name, snapshot)
        self._source_changed()

    def _save(self, admission: Admission, snapshot: Snapshot) -> None:
        if admission.options.fingerprint and not self._definitions.save(
            admission.name, admission.options.fingerprint, snapshot
        ):
            message = "definitions could not be written to `state_dir`"
            self.events.note("warning", "cache", message, source=admission.name)
        if self.apps.is_app(admission):
            return  # the app source logs these, at a limited rate
        for warning in snapshot.warnings:
            self.events.note("warning", "source", warning, source=admission.name)

    def published_for(self, admission: Admission, session: str, snapshot: Snapshot | None) -> None:
        if self.admissions.get(admission.name) is admission:
            self.views.overlay(session, admission.name, snapshot)
            if snapshot is not None:
                shared = self.catalog.snapshot(admission.name)
                self.changes.published_for_client(
                    admission.name, snapshot, shared.warnings if shared is not None else ()
                )
            for subscriber in self.on_client_list_changed:
                call_safely("a list of one client", subscriber, admission.name, session)
            self._list_changed()

    def health_changed(self, admission: Admission, health: Health) -> None:
        name = admission.name
        if admission in self._retired:
            admission.health = health
            return
        admission.set_health(health)
        successor = self._successors.get(name)
        if successor is not None and successor.admission is admission:
            if health.state != "starting":
                self._swap(name)
            return
        if self.admissions.get(name) is admission:
            self._health_changed(admission)

    def _health_changed(self, admission: Admission) -> None:
        self._hide_after_grace(admission)
        self.events.health_changed(admission.name, admission.health)
        self._source_changed()

    def _hide_after_grace(self, admission: Admission) -> None:
        """Keep listing the tools of a server that went down for `grace_s`: it may be back before anyone lists again."""
        name = admission.name
        if admission.health.state in SERVING:
            self._cancel_hiding(name)
            self.catalog.hide(name, False)
        elif not admission.options.grace_s:
            self.catalog.hide(name, True)
        elif name not in self._hide_timers:
            self._hide_timers[name] = Deadline(admission.options.grace_s, partial(self.catalog.hide, name, True))

    def _cancel_hiding(self, name: str) -> None:
        timer = self._hide_timers.pop(name, None)
        if timer is not None:
            timer.cancel()

    def _list_changed(self) -> None:
        """Tell listeners that the list may have changed; they compare it with what they saw last."""
        for subscriber in self.on_list_changed:
            call_safely("a changed list", subscriber)

    def _source_changed(self) -> None:
        for subscriber in self.on_source_changed:
            call_safely("a changed source", subscriber)

    # -- all sources --------------------------------------------------------------------------------------------------

    def servers(self) -> dict[str, Admission]:
        """The sources in the order of the configuration, without the gateway's own tools."""
        return {name: admission for name, admission in self.admissions.items() if name != RESERVED_SOURCE}

    @property
    def in_flight(self) -> int:
        return sum(admission.in_flight for admission in (*self.admissions.values(), *self._retired))

    def forget(self, session: str) -> None:
        """Release what is held for a client's session, which has ended."""
        self.views.forget(session)
        for admission in (*self.admissions.values(), *self._retired):
            call_safely("the end of a session", admission.source.forget, session)

    def drain(self) -> None:
        for name in list(self._successors):
            self._drop_successor(name)
        for admission in self.admissions.values():
            admission.drain()
        self._source_changed()

    def close(self) -> None:
        for name in list(self._hide_timers):
            self._cancel_hiding(name)
        self.changes.close()


class SourceSink:
    """The `Sink` of one source. Sanitizes what the source reports before anybody sees it."""

    __slots__ = ("_registry", "admission")

    def __init__(self, registry: SourceRegistry, admission: Admission) -> None:
        self._registry = registry
        self.admission = admission

    def publish(self, snapshot: Snapshot) -> None:
        self._registry.published(self.admission, self._sanitized(snapshot))

    def publish_for(self, session: str, snapshot: Snapshot | None) -> None:
        self._registry.published_for(self.admission, session, None if snapshot is None else self._sanitized(snapshot))

    def _sanitized(self, snapshot: Snapshot) -> Snapshot:
        return reveal_snapshot(redact_snapshot(snapshot, self.admission.options.redact))

    def health(self, health: Health) -> None:
        self._registry.health_changed(self.admission, redact_health(health, self.admission.options.redact))

    def forward_request(self, session: str, server_request: ServerRequest) -> None:
        self._registry.clients.forward_request(session, server_request)

    def forward_notification(self, session: str, method: str, params: Json) -> None:
        self._registry.clients.forward_notification(session, self.admission.name, method, params)

    def add_app(self, name: str, source: Source, on_evicted: OnEvicted) -> SourceSink | None:
        return self._registry.apps.add(self.admission, name, source, on_evicted)

    def remove_app(self, name: str) -> None:
        self._registry.apps.remove(self.admission, name)

    def note(self, level: Level, message: str) -> None:
        shown = self.admission.options.redact(message)
        self._registry.events.note(level, "source", shown, source=self.admission.name)

    def count(self, counter: str, amount: int = 1) -> None:
        self._registry.events.count(counter, self.admission.name, amount)


# -- clients ----------------------------------------------------------------------------------------------------------


class SessionClient(Protocol):
    """A connected client that can be sent requests and notifications outside of its calls."""

    caller: Caller

    def send_request(self, server_request: ServerRequest, /) -> None: ...
    def send_notification(self, source: str, method: str, params: Json, /) -> None: ...


class SessionClients:
    """The connected clients by session: takes what servers send that belongs to no call."""

    def __init__(self, task_ids: TaskIds) -> None:
        self._clients: dict[str, SessionClient] = {}
        self._task_ids = task_ids

    def add(self, session: str, client: SessionClient) -> None:
        self._clients[session] = client

    def remove(self, session: str) -> None:
        self._clients.pop(session, None)

    def forward_request(self, session: str, server_request: ServerRequest) -> None:
        client = self._clients.get(session)
        if client is None:
            server_request.refuse(NO_CLIENT_ERROR)
        else:
            server_request.params = self._task_ids.rewrite(client.caller, server_request.source, server_request.params)
            client.send_request(server_request)

    def forward_notification(self, session: str, source: str, method: str, params: Json) -> None:
        client = self._clients.get(session)
        if client is not None:
            client.send_notification(source, method, self._task_ids.rewrite(client.caller, source, params))
