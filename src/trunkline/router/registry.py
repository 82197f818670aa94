"""Which sources there are: coming, being replaced while calls go on, and leaving without losing one.

A source that is replaced keeps its place until its successor was heard of. Calls that wait move over, calls in flight
end where they began, and only then is the old one let go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Protocol

from trunkline.core.call import Call, Caller, Failure, Json
from trunkline.core.errors import SOURCE_DOWN, Problem
from trunkline.core.events import Events
from trunkline.core.names import RESERVED_SOURCE
from trunkline.core.server_request import NO_CLIENT_ERROR, ServerRequest
from trunkline.core.source import Health, Level, OnEvicted, Source
from trunkline.core.tool import Snapshot
from trunkline.router.admission import Admission, CallMemory
from trunkline.router.catalog import Catalog, CatalogViews
from trunkline.router.connected_apps import ConnectedApps
from trunkline.router.definitions import DefinitionChanges, DefinitionStore
from trunkline.router.options import RouterOptions, SourceOptions
from trunkline.router.sanitizing import redact_health, redact_snapshot, reveal_snapshot
from trunkline.router.task_ids import TaskIds
from trunkline.runtime.contained import contained
from trunkline.runtime.overdue import Deadline

SWAP_S: Final = 15.0
"""A successor that says nothing for this long takes over all the same, and calls wait for it."""
_SWITCHED_OFF: Final = "it is switched off in the configuration"
_WELL: Final = ("ready", "degraded")


class _Successor:
    __slots__ = ("admission", "before", "last", "snapshot", "timer")

    def __init__(
        self, admission: Admission, timer: asyncio.TimerHandle, before: Snapshot | None, last: Snapshot | None
    ) -> None:
        self.admission = admission
        self.timer = timer
        self.before = before
        """What such a one offered when it last ran."""
        self.last = last
        """What the one of this name said last."""
        self.snapshot: Snapshot | None = None


class SourceRegistry:
    def __init__(self, options: RouterOptions, events: Events, definitions: DefinitionStore) -> None:
        self.admissions: dict[str, Admission] = {}
        self.catalog = Catalog(options.naming, options.max_name, self._list_changed)
        self.views = CatalogViews(self.catalog)
        self.task_ids = TaskIds()
        self.clients = SessionClients(self.task_ids)
        self.changes = DefinitionChanges(events)
        self.on_list_changed: list[Callable[[], None]] = []
        self.on_source_changed: list[Callable[[], None]] = []
        """Called when a source was heard of, went away, or changed its state."""
        self.on_source_retired: list[Callable[[Admission], None]] = []
        """Called with the gate of a source that takes no more calls; `let_go` says that nothing of it is left."""
        self.on_client_list_changed: list[Callable[[str, str], None]] = []
        """Called with a source and a session whose own server of it has other tools, or is gone."""
        self.events = events
        self.call_memory = CallMemory(options.large_call_bytes)
        self._options = options
        self._definitions = definitions
        self._successors: dict[str, _Successor] = {}
        self._retired: set[Admission] = set()
        self._not_last: set[Admission] = set()
        """Those of which another configuration was heard last: what they say is worth a look, known as it may be."""
        self._hide_timers: dict[str, Deadline] = {}
        self._order: tuple[str, ...] = ()
        self._loop = asyncio.get_running_loop()
        self.apps = ConnectedApps(self)

    # -- coming and going -----------------------------------------------------------------------------------------

    def add(self, name: str, source: Source, options: SourceOptions) -> SourceSink:
        for other in [other for other in self.admissions if self.apps.has_to_leave(other, name)]:
            self._evict_guest(other, name)
        admission = self.admissions[name] = self._admission(name, source, options)
        self.catalog.add_source(name, options.rules)
        cached = self._cached(admission)
        self.changes.begin(name, self._last_seen(admission, cached))
        if cached is not None:
            self.catalog.replace(name, cached)
        return self.sink_of(admission)

    def _evict_guest(self, guest: str, name: str) -> None:
        """The configuration has the last word about a name."""
        message = f"`{name}` is a configured server now: the app of this name has to leave"
        self.events.note("warning", "names", message, source=guest)
        admission = self.admissions[guest]
        self.remove(guest)
        self.apps.evict(admission)

    def sink_of(self, admission: Admission) -> SourceSink:
        return SourceSink(self, admission)

    def replace(self, name: str, source: Source, options: SourceOptions) -> SourceSink:
        """Put another source in the place of one, once it was heard of."""
        admission = self._admission(name, source, options)
        self._drop_successor(name)
        timer = self._loop.call_later(SWAP_S, self._swap, name)
        cached = self._cached(admission)
        self._successors[name] = _Successor(admission, timer, cached, self._last_seen(admission, cached))
        if self.admissions[name].health.state not in _WELL or admission.health.state != "starting":
            self._swap(name)
        return self.sink_of(admission)

    def update(self, name: str, options: SourceOptions) -> None:
        """Other names, deadlines or rules for a source that goes on as it is."""
        admission = self._successors[name].admission if name in self._successors else self.admissions[name]
        self.set_options(admission, options)
        self.apps.host_changed(admission)

    def set_options(self, admission: Admission, options: SourceOptions) -> None:
        admission.options = options
        if self.admissions.get(admission.name) is admission:
            self.catalog.add_source(admission.name, options.rules)

    def remove(self, name: str) -> None:
        """Take a source out. Its calls in flight may end; those that waited for it are refused."""
        self._drop_successor(name)
        admission = self.admissions.pop(name)
        self._cancel_hiding(name)
        self.catalog.remove_source(name)
        self.views.drop_source(name)
        self.changes.forget(name)
        for call in self._retire(admission):
            message = f"Server {name} was removed"
            call.finish(Failure(Problem(code=SOURCE_DOWN, message=message, source=name, tool=call.tool)))
        self.events.source_removed(name)
        self._source_changed()

    def reorder(self, names: Iterable[str]) -> None:
        self._order = (RESERVED_SOURCE, *names)
        self.put_in_order()

    def put_in_order(self) -> None:
        names = tuple(self.apps.in_order(self._order))
        self.catalog.reorder(names)
        ordered = {name: self.admissions[name] for name in names if name in self.admissions}
        rest = {name: admission for name, admission in self.admissions.items() if name not in ordered}
        self.admissions.clear()
        self.admissions.update(ordered | rest)

    def _admission(self, name: str, source: Source, options: SourceOptions) -> Admission:
        health = Health(state="starting") if options.enabled else Health(state="disabled", reason=_SWITCHED_OFF)
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
        """What a source of this name said last, also when it was configured otherwise."""
        if not admission.options.fingerprint:
            return cached
        last = self._definitions.last(admission.name)
        last = None if last is None else reveal_snapshot(last)
        if last != cached:
            self._not_last.add(admission)
        return last or cached

    def _swap(self, name: str) -> None:
        successor = self._successors.pop(name)
        successor.timer.cancel()
        admission, old = successor.admission, self.admissions[name]
        self.admissions[name] = admission
        self._cancel_hiding(name)
        self.catalog.add_source(name, admission.options.rules)
        self.catalog.hide(name, False)
        self.catalog.replace(name, successor.snapshot or successor.before)
        if admission.options.fingerprint != old.options.fingerprint:
            self.changes.begin(name, successor.last)
        if successor.snapshot is not None:
            self.changes.published(name, successor.snapshot)
        if self.views.drop_source(name):
            self._list_changed()
        for call in self._retire(old):
            if not call.done:
                admission.admit(call)
        self._health_news(admission)

    def _drop_successor(self, name: str) -> None:
        """One that never came to serve anybody makes room for the next."""
        successor = self._successors.pop(name, None)
        if successor is not None:
            successor.timer.cancel()
            self._retire(successor.admission)

    def _retire(self, admission: Admission) -> Iterable[Call]:
        """The calls that waited at this gate; those in flight end where they are."""
        self._retired.add(admission)
        self._not_last.discard(admission)
        waiting = admission.retire()
        self.apps.host_left(admission)
        for subscriber in self.on_source_retired:
            contained("a server that leaves", subscriber, admission)
        return waiting

    def busy(self, admission: Admission) -> bool:
        """Whether calls are in flight there, or at its guests."""
        return any(each.in_flight for each in (admission, *self.apps.of(admission)))

    def let_go(self, admission: Admission) -> None:
        """Nothing of a retired source is left."""
        self._retired.discard(admission)
        self.apps.host_gone(admission)

    # -- what sources say -----------------------------------------------------------------------------------------

    def published(self, admission: Admission, snapshot: Snapshot) -> None:
        name = admission.name
        if self.admissions.get(name) is not admission:
            successor = self._successors.get(name)
            if successor is not None and successor.admission is admission:
                successor.snapshot = snapshot
                self._save(admission, snapshot)
            return
        changed = snapshot != self.catalog.snapshot(name) or admission in self._not_last
        self._not_last.discard(admission)
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
        if self.apps.is_guest(admission):
            return  # its host says what is wrong, and not as often as an app would make us
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
                contained("a client's own list", subscriber, admission.name, session)
            self._list_changed()

    def health_changed(self, admission: Admission, health: Health) -> None:
        name = admission.name
        if admission in self._retired:
            admission.health = health  # its last words; what it carried it has finished itself
            return
        admission.set_health(health)
        successor = self._successors.get(name)
        if successor is not None and successor.admission is admission:
            if health.state != "starting":
                self._swap(name)
            return
        if self.admissions.get(name) is admission:
            self._health_news(admission)

    def _health_news(self, admission: Admission) -> None:
        self._hide_after_grace(admission)
        self.events.health_changed(admission.name, admission.health)
        self._source_changed()

    def _hide_after_grace(self, admission: Admission) -> None:
        """Tools of a server that went down stay listed for a while: it may be back before anyone lists again."""
        name = admission.name
        if admission.health.state in _WELL:
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
        """The list may have changed; whoever cares compares it with what it last saw."""
        for subscriber in self.on_list_changed:
            contained("a list that changed", subscriber)

    def _source_changed(self) -> None:
        for subscriber in self.on_source_changed:
            contained("news of a server", subscriber)

    # -- all of them ----------------------------------------------------------------------------------------------

    def servers(self) -> dict[str, Admission]:
        """The sources somebody configured, in order: all but our own tools."""
        return {name: admission for name, admission in self.admissions.items() if name != RESERVED_SOURCE}

    @property
    def in_flight(self) -> int:
        return sum(admission.in_flight for admission in (*self.admissions.values(), *self._retired))

    def forget(self, session: str) -> None:
        """A client's session is over."""
        self.views.forget(session)
        for admission in (*self.admissions.values(), *self._retired):
            contained("a session that is over", admission.source.forget, session)

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
    """Where one source reports to."""

    __slots__ = ("_admission", "_registry")

    def __init__(self, registry: SourceRegistry, admission: Admission) -> None:
        self._registry = registry
        self._admission = admission

    @property
    def admission(self) -> Admission:
        return self._admission

    def publish(self, snapshot: Snapshot) -> None:
        self._registry.published(self._admission, self._shown(snapshot))

    def publish_for(self, session: str, snapshot: Snapshot | None) -> None:
        self._registry.published_for(self._admission, session, None if snapshot is None else self._shown(snapshot))

    def _shown(self, snapshot: Snapshot) -> Snapshot:
        return reveal_snapshot(redact_snapshot(snapshot, self._admission.options.redact))

    def health(self, health: Health) -> None:
        self._registry.health_changed(self._admission, redact_health(health, self._admission.options.redact))

    def forward_request(self, session: str, server_request: ServerRequest) -> None:
        self._registry.clients.forward_request(session, server_request)

    def forward_notification(self, session: str, method: str, params: Json) -> None:
        self._registry.clients.forward_notification(session, self._admission.name, method, params)

    def add_app(self, name: str, source: Source, on_evicted: OnEvicted) -> SourceSink | None:
        return self._registry.apps.host(self._admission, name, source, on_evicted)

    def remove_app(self, name: str) -> None:
        self._registry.apps.dismiss(self._admission, name)

    def note(self, level: Level, message: str) -> None:
        self._registry.events.note(
            level, "source", self._admission.options.redact(message), source=self._admission.name
        )

    def count(self, counter: str, amount: int = 1) -> None:
        self._registry.events.count(counter, self._admission.name, amount)


# The clients that hold a session, by its name: where a server's questions and news go that belong to no call.


class SessionClient(Protocol):
    caller: Caller

    def send_request(self, server_request: ServerRequest, /) -> None: ...
    def send_notification(self, source: str, method: str, params: Json, /) -> None: ...


class SessionClients:
    def __init__(self, tasks: TaskIds) -> None:
        self._clients: dict[str, SessionClient] = {}
        self._task_ids = tasks

    def join(self, session: str, client: SessionClient) -> None:
        self._clients[session] = client

    def leave(self, session: str) -> None:
        self._clients.pop(session, None)

    def forward_request(self, session: str, server_request: ServerRequest) -> None:
        client = self._clients.get(session)
        if client is None:
            server_request.refuse(NO_CLIENT_ERROR)
        else:
            server_request.params = self._task_ids.to_caller(
                client.caller, server_request.source, server_request.params
            )
            client.send_request(server_request)

    def forward_notification(self, session: str, source: str, method: str, params: Json) -> None:
        client = self._clients.get(session)
        if client is not None:
            client.send_notification(source, method, self._task_ids.to_caller(client.caller, source, params))
