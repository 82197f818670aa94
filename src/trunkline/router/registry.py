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
from trunkline.core.server_request import NOBODY, Question
from trunkline.core.source import Evicted, Health, Level, Source
from trunkline.core.tool import Snapshot
from trunkline.router.admission import CallBytes, Gate
from trunkline.router.catalog import Catalog, Views
from trunkline.router.connected_apps import Guests
from trunkline.router.definitions import DefinitionChanges, Definitions
from trunkline.router.options import RouterOptions, SourceOptions
from trunkline.router.sanitizing import hide_in_health, hide_in_snapshot, revealed
from trunkline.router.task_ids import Tasks
from trunkline.runtime.contained import contained
from trunkline.runtime.overdue import Deadline

SWAP_S: Final = 15.0
"""A successor that says nothing for this long takes over all the same, and calls wait for it."""
_SWITCHED_OFF: Final = "it is switched off in the configuration"
_WELL: Final = ("ready", "degraded")


class _Successor:
    __slots__ = ("before", "gate", "last", "snapshot", "timer")

    def __init__(self, gate: Gate, timer: asyncio.TimerHandle, before: Snapshot | None, last: Snapshot | None) -> None:
        self.gate = gate
        self.timer = timer
        self.before = before
        """What such a one offered when it last ran."""
        self.last = last
        """What the one of this name said last."""
        self.snapshot: Snapshot | None = None


class Roster:
    def __init__(self, options: RouterOptions, events: Events, definitions: Definitions) -> None:
        self.gates: dict[str, Gate] = {}
        self.catalog = Catalog(options.naming, options.max_name, self._list_changed)
        self.views = Views(self.catalog)
        self.tasks = Tasks()
        self.clients = Clients(self.tasks)
        self.changes = DefinitionChanges(events)
        self.on_list_changed: list[Callable[[], None]] = []
        self.on_news: list[Callable[[], None]] = []
        """Called when a source was heard of, went away, or changed its state."""
        self.on_left: list[Callable[[Gate], None]] = []
        """Called with the gate of a source that takes no more calls; `let_go` says that nothing of it is left."""
        self.on_client_news: list[Callable[[str, str], None]] = []
        """Called with a source and a session whose own server of it has other tools, or is gone."""
        self.events = events
        self.call_bytes = CallBytes(options.large_call_bytes)
        self._options = options
        self._definitions = definitions
        self._successors: dict[str, _Successor] = {}
        self._retired: set[Gate] = set()
        self._not_last: set[Gate] = set()
        """Those of which another configuration was heard last: what they say is worth a look, known as it may be."""
        self._hide_timers: dict[str, Deadline] = {}
        self._order: tuple[str, ...] = ()
        self._loop = asyncio.get_running_loop()
        self.guests = Guests(self)

    # -- coming and going -----------------------------------------------------------------------------------------

    def add(self, name: str, source: Source, options: SourceOptions) -> SourceSink:
        for other in [other for other in self.gates if self.guests.has_to_leave(other, name)]:
            self._evict_guest(other, name)
        gate = self.gates[name] = self._gate(name, source, options)
        self.catalog.add_source(name, options.rules)
        cached = self._cached(gate)
        self.changes.begin(name, self._last_seen(gate, cached))
        if cached is not None:
            self.catalog.replace(name, cached)
        return self.sink_of(gate)

    def _evict_guest(self, guest: str, name: str) -> None:
        """The configuration has the last word about a name."""
        message = f"`{name}` is a configured server now: the app of this name has to leave"
        self.events.note("warning", "names", message, source=guest)
        gate = self.gates[guest]
        self.remove(guest)
        self.guests.evict(gate)

    def sink_of(self, gate: Gate) -> SourceSink:
        return SourceSink(self, gate)

    def replace(self, name: str, source: Source, options: SourceOptions) -> SourceSink:
        """Put another source in the place of one, once it was heard of."""
        gate = self._gate(name, source, options)
        self._drop_successor(name)
        timer = self._loop.call_later(SWAP_S, self._swap, name)
        cached = self._cached(gate)
        self._successors[name] = _Successor(gate, timer, cached, self._last_seen(gate, cached))
        if self.gates[name].health.state not in _WELL or gate.health.state != "starting":
            self._swap(name)
        return self.sink_of(gate)

    def update(self, name: str, options: SourceOptions) -> None:
        """Other names, deadlines or rules for a source that goes on as it is."""
        gate = self._successors[name].gate if name in self._successors else self.gates[name]
        self.set_options(gate, options)
        self.guests.host_changed(gate)

    def set_options(self, gate: Gate, options: SourceOptions) -> None:
        gate.options = options
        if self.gates.get(gate.name) is gate:
            self.catalog.add_source(gate.name, options.rules)

    def remove(self, name: str) -> None:
        """Take a source out. Its calls in flight may end; those that waited for it are refused."""
        self._drop_successor(name)
        gate = self.gates.pop(name)
        self._cancel_hiding(name)
        self.catalog.remove_source(name)
        self.views.drop_source(name)
        self.changes.forget(name)
        for call in self._retire(gate):
            message = f"Server {name} was removed"
            call.finish(Failure(Problem(code=SOURCE_DOWN, message=message, source=name, tool=call.tool)))
        self.events.source_removed(name)
        self._news()

    def reorder(self, names: Iterable[str]) -> None:
        self._order = (RESERVED_SOURCE, *names)
        self.put_in_order()

    def put_in_order(self) -> None:
        names = tuple(self.guests.in_order(self._order))
        self.catalog.reorder(names)
        ordered = {name: self.gates[name] for name in names if name in self.gates}
        rest = {name: gate for name, gate in self.gates.items() if name not in ordered}
        self.gates.clear()
        self.gates.update(ordered | rest)

    def _gate(self, name: str, source: Source, options: SourceOptions) -> Gate:
        health = Health(state="starting") if options.enabled else Health(state="disabled", reason=_SWITCHED_OFF)
        return Gate(
            name,
            source,
            health,
            options,
            max_in_flight=self._options.in_flight_per_source,
            max_queue=self._options.queue_per_source,
            call_bytes=self.call_bytes,
        )

    def _cached(self, gate: Gate) -> Snapshot | None:
        options = gate.options
        known = options.enabled and options.fingerprint
        cached = self._definitions.load(gate.name, options.fingerprint) if known else None
        return None if cached is None else revealed(cached)

    def _last_seen(self, gate: Gate, cached: Snapshot | None) -> Snapshot | None:
        """What a source of this name said last, also when it was configured otherwise."""
        if not gate.options.fingerprint:
            return cached
        last = self._definitions.last(gate.name)
        last = None if last is None else revealed(last)
        if last != cached:
            self._not_last.add(gate)
        return last or cached

    def _swap(self, name: str) -> None:
        successor = self._successors.pop(name)
        successor.timer.cancel()
        gate, old = successor.gate, self.gates[name]
        self.gates[name] = gate
        self._cancel_hiding(name)
        self.catalog.add_source(name, gate.options.rules)
        self.catalog.hide(name, False)
        self.catalog.replace(name, successor.snapshot or successor.before)
        if gate.options.fingerprint != old.options.fingerprint:
            self.changes.begin(name, successor.last)
        if successor.snapshot is not None:
            self.changes.published(name, successor.snapshot)
        if self.views.drop_source(name):
            self._list_changed()
        for call in self._retire(old):
            if not call.done:
                gate.admit(call)
        self._health_news(gate)

    def _drop_successor(self, name: str) -> None:
        """One that never came to serve anybody makes room for the next."""
        successor = self._successors.pop(name, None)
        if successor is not None:
            successor.timer.cancel()
            self._retire(successor.gate)

    def _retire(self, gate: Gate) -> Iterable[Call]:
        """The calls that waited at this gate; those in flight end where they are."""
        self._retired.add(gate)
        self._not_last.discard(gate)
        waiting = gate.retire()
        self.guests.host_left(gate)
        for subscriber in self.on_left:
            contained("a server that leaves", subscriber, gate)
        return waiting

    def busy(self, gate: Gate) -> bool:
        """Whether calls are in flight there, or at its guests."""
        return any(each.in_flight for each in (gate, *self.guests.of(gate)))

    def let_go(self, gate: Gate) -> None:
        """Nothing of a retired source is left."""
        self._retired.discard(gate)
        self.guests.host_gone(gate)

    # -- what sources say -----------------------------------------------------------------------------------------

    def published(self, gate: Gate, snapshot: Snapshot) -> None:
        name = gate.name
        if self.gates.get(name) is not gate:
            successor = self._successors.get(name)
            if successor is not None and successor.gate is gate:
                successor.snapshot = snapshot
                self._save(gate, snapshot)
            return
        changed = snapshot != self.catalog.snapshot(name) or gate in self._not_last
        self._not_last.discard(gate)
        self.catalog.replace(name, snapshot)
        if changed:
            self._save(gate, snapshot)
            if name != RESERVED_SOURCE:
                self.changes.published(name, snapshot)
        self._news()

    def _save(self, gate: Gate, snapshot: Snapshot) -> None:
        if gate.options.fingerprint and not self._definitions.save(gate.name, gate.options.fingerprint, snapshot):
            message = "definitions could not be written to `state_dir`"
            self.events.note("warning", "cache", message, source=gate.name)
        if self.guests.is_guest(gate):
            return  # its host says what is wrong, and not as often as an app would make us
        for warning in snapshot.warnings:
            self.events.note("warning", "source", warning, source=gate.name)

    def published_for(self, gate: Gate, session: str, snapshot: Snapshot | None) -> None:
        if self.gates.get(gate.name) is gate:
            self.views.overlay(session, gate.name, snapshot)
            if snapshot is not None:
                shared = self.catalog.snapshot(gate.name)
                self.changes.published_for_client(gate.name, snapshot, shared.warnings if shared is not None else ())
            for subscriber in self.on_client_news:
                contained("a client's own list", subscriber, gate.name, session)
            self._list_changed()

    def health_changed(self, gate: Gate, health: Health) -> None:
        name = gate.name
        if gate in self._retired:
            gate.health = health  # its last words; what it carried it has finished itself
            return
        gate.set_health(health)
        successor = self._successors.get(name)
        if successor is not None and successor.gate is gate:
            if health.state != "starting":
                self._swap(name)
            return
        if self.gates.get(name) is gate:
            self._health_news(gate)

    def _health_news(self, gate: Gate) -> None:
        self._hide_after_grace(gate)
        self.events.health_changed(gate.name, gate.health)
        self._news()

    def _hide_after_grace(self, gate: Gate) -> None:
        """Tools of a server that went down stay listed for a while: it may be back before anyone lists again."""
        name = gate.name
        if gate.health.state in _WELL:
            self._cancel_hiding(name)
            self.catalog.hide(name, False)
        elif not gate.options.grace_s:
            self.catalog.hide(name, True)
        elif name not in self._hide_timers:
            self._hide_timers[name] = Deadline(gate.options.grace_s, partial(self.catalog.hide, name, True))

    def _cancel_hiding(self, name: str) -> None:
        timer = self._hide_timers.pop(name, None)
        if timer is not None:
            timer.cancel()

    def _list_changed(self) -> None:
        """The list may have changed; whoever cares compares it with what it last saw."""
        for subscriber in self.on_list_changed:
            contained("a list that changed", subscriber)

    def _news(self) -> None:
        for subscriber in self.on_news:
            contained("news of a server", subscriber)

    # -- all of them ----------------------------------------------------------------------------------------------

    def servers(self) -> dict[str, Gate]:
        """The sources somebody configured, in order: all but our own tools."""
        return {name: gate for name, gate in self.gates.items() if name != RESERVED_SOURCE}

    @property
    def in_flight(self) -> int:
        return sum(gate.in_flight for gate in (*self.gates.values(), *self._retired))

    def forget(self, session: str) -> None:
        """A client's session is over."""
        self.views.forget(session)
        for gate in (*self.gates.values(), *self._retired):
            contained("a session that is over", gate.source.forget, session)

    def drain(self) -> None:
        for name in list(self._successors):
            self._drop_successor(name)
        for gate in self.gates.values():
            gate.drain()
        self._news()

    def close(self) -> None:
        for name in list(self._hide_timers):
            self._cancel_hiding(name)
        self.changes.close()


class SourceSink:
    """Where one source reports to."""

    __slots__ = ("_gate", "_roster")

    def __init__(self, roster: Roster, gate: Gate) -> None:
        self._roster = roster
        self._gate = gate

    @property
    def gate(self) -> Gate:
        return self._gate

    def publish(self, snapshot: Snapshot) -> None:
        self._roster.published(self._gate, self._shown(snapshot))

    def publish_for(self, session: str, snapshot: Snapshot | None) -> None:
        self._roster.published_for(self._gate, session, None if snapshot is None else self._shown(snapshot))

    def _shown(self, snapshot: Snapshot) -> Snapshot:
        return revealed(hide_in_snapshot(snapshot, self._gate.options.redact))

    def health(self, health: Health) -> None:
        self._roster.health_changed(self._gate, hide_in_health(health, self._gate.options.redact))

    def ask(self, session: str, question: Question) -> None:
        self._roster.clients.ask(session, question)

    def tell(self, session: str, method: str, params: Json) -> None:
        self._roster.clients.tell(session, self._gate.name, method, params)

    def host(self, name: str, source: Source, evicted: Evicted) -> SourceSink | None:
        return self._roster.guests.host(self._gate, name, source, evicted)

    def dismiss(self, name: str) -> None:
        self._roster.guests.dismiss(self._gate, name)

    def note(self, level: Level, message: str) -> None:
        self._roster.events.note(level, "source", self._gate.options.redact(message), source=self._gate.name)

    def count(self, counter: str, amount: int = 1) -> None:
        self._roster.events.count(counter, self._gate.name, amount)


# The clients that hold a session, by its name: where a server's questions and news go that belong to no call.


class Client(Protocol):
    caller: Caller

    def ask(self, question: Question, /) -> None: ...
    def tell(self, source: str, method: str, params: Json, /) -> None: ...


class Clients:
    def __init__(self, tasks: Tasks) -> None:
        self._clients: dict[str, Client] = {}
        self._tasks = tasks

    def join(self, session: str, client: Client) -> None:
        self._clients[session] = client

    def leave(self, session: str) -> None:
        self._clients.pop(session, None)

    def ask(self, session: str, question: Question) -> None:
        client = self._clients.get(session)
        if client is None:
            question.refuse(NOBODY)
        else:
            question.params = self._tasks.to_caller(client.caller, question.source, question.params)
            client.ask(question)

    def tell(self, session: str, source: str, method: str, params: Json) -> None:
        client = self._clients.get(session)
        if client is not None:
            client.tell(source, method, self._tasks.to_caller(client.caller, source, params))
