"""Servers that a source brings in by itself, such as apps that dial in: named, listed and called like any other.

A guest lives as long as its host wants it, and never longer than the host. Its rules are the host's: a pattern or tool
written `APP:TOOL` in the host's configuration means that app alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final, TypeVar

from trunkline.core.names import RESERVED_SOURCE, slug_pattern
from trunkline.core.source import Evicted, Source
from trunkline.router.admission import Gate
from trunkline.router.options import CacheRules, NameRules, SourceOptions
from trunkline.runtime.contained import contained

if TYPE_CHECKING:
    from trunkline.router.registry import Roster, SourceSink

ORIGIN: Final = "app"
_ALL_TOOLS: Final = "*"
V = TypeVar("V")


class Guests:
    """Who is whose guest. A host that left keeps its guests until nothing of it is left."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._by_host: dict[Gate, dict[str, Gate]] = {}
        self._hosts: dict[Gate, Gate] = {}
        self._evicted: dict[Gate, Evicted] = {}
        self._arrivals = 0

    def host(self, host: Gate, name: str, source: Source, evicted: Evicted) -> SourceSink | None:
        """Bring in a guest, or find it again; None where the name is somebody else's."""
        roster = self._roster
        gate = roster.gates.get(name)
        if gate is not None:
            return roster.sink_of(gate) if gate.source is source and self._hosts.get(gate) is host else None
        if roster.gates.get(host.name) is not host:
            return None  # the host was replaced: apps are for its successor
        if any(other.casefold() == name.casefold() for other in (RESERVED_SOURCE, *roster.gates)):
            return None  # to a reader it would be the other
        self._arrivals += 1
        sink = roster.add(name, source, guest_options(host, name, self._arrivals))
        self._by_host.setdefault(host, {})[name] = sink.gate
        self._hosts[sink.gate] = host
        self._evicted[sink.gate] = evicted
        roster.put_in_order()
        return sink

    def dismiss(self, host: Gate, name: str) -> None:
        gate = self._by_host.get(host, {}).get(name)
        if gate is None:
            return
        if self._roster.gates.get(name) is gate:
            self._roster.remove(name)
        self.forget(gate)

    def forget(self, gate: Gate) -> None:
        """Nothing of a guest is left."""
        host = self._hosts.pop(gate, None)
        self._evicted.pop(gate, None)
        if host is not None:
            del self._by_host[host][gate.name]
            self._roster.let_go(gate)

    def has_to_leave(self, other: str, name: str) -> bool:
        """Whether a server is a guest that is called like one which is added now, or nearly so."""
        return other.casefold() == name.casefold() and self.is_guest(self._roster.gates[other])

    def evict(self, gate: Gate) -> None:
        """The name of a guest was given to another server."""
        self._evicted[gate](False)
        self.forget(gate)

    def is_guest(self, gate: Gate) -> bool:
        return gate in self._hosts

    def of(self, host: Gate) -> tuple[Gate, ...]:
        return tuple(self._by_host.get(host, {}).values())

    def host_left(self, host: Gate) -> None:
        """Its guests take no more calls; what is in flight may end."""
        for gate in self.of(host):
            if self._roster.gates.get(gate.name) is gate:
                self._roster.remove(gate.name)
                contained("an app whose host leaves", self._evicted[gate], True)

    def host_gone(self, host: Gate) -> None:
        for gate in self.of(host):
            self.forget(gate)
        self._by_host.pop(host, None)

    def host_changed(self, host: Gate) -> None:
        """Other names, deadlines or rules for the host are so for its guests."""
        for gate in self.of(host):
            self._roster.set_options(gate, guest_options(host, gate.name, gate.options.rules.arrival))

    def in_order(self, names: Iterable[str]) -> Iterable[str]:
        """These names with each host's guests after it, by name: apps dial in in any order, lists should not change."""
        gates = self._roster.gates
        for name in names:
            yield name
            if name in gates:
                yield from sorted(guest.name for guest in self.of(gates[name]))


def guest_options(host: Gate, guest: str, arrival: int) -> SourceOptions:
    options = host.options
    rules, cache = options.rules, options.cache
    timeouts_s = dict(_entries(options.timeouts_s, guest))
    timeout_s = timeouts_s.pop(_ALL_TOOLS, options.timeout_s)
    return replace(
        options,
        rules=NameRules(
            prefix=_prefix(host.name, rules.prefix, guest),
            allow=tuple(_patterns(rules.allow, guest)),
            deny=tuple(_patterns(rules.deny, guest)),
            rename=dict(_entries(rules.rename, guest)),
            arrival=arrival,
        ),
        cache=None if cache is None else _cache_rules(cache, guest),
        timeout_s=timeout_s,
        timeouts_s=timeouts_s,
        fingerprint="",
        origin=ORIGIN,
    )


def _cache_rules(cache: CacheRules, guest: str) -> CacheRules:
    tools, assume_read_only = tuple(_patterns(cache.tools, guest)), tuple(_patterns(cache.assume_read_only, guest))
    return replace(cache, tools=tools, assume_read_only=assume_read_only)


def _prefix(host: str, prefix: str, guest: str) -> str:
    """The guest's own name, unless the operator chose a prefix for all guests, or none."""
    if prefix == host:
        return guest
    return f"{prefix}_{guest}" if prefix else ""


def _patterns(patterns: Iterable[str], guest: str) -> Iterable[str]:
    for pattern in patterns:
        app, colon, tool = pattern.partition(":")
        if not colon:
            yield pattern
        elif _means(app, guest):
            yield tool


def _entries(values: Mapping[str, V], guest: str) -> Iterable[tuple[str, V]]:
    """What is said of one app's tool comes last, so that it wins."""
    yield from ((name, value) for name, value in values.items() if ":" not in name)
    for name, value in values.items():
        app, colon, tool = name.partition(":")
        if colon and _means(app, guest):
            yield tool, value


def _means(app: str, guest: str) -> bool:
    """Whether this is written for the guest: by its name among the servers, or by the one it gives itself."""
    return fnmatchcase(guest, app) or fnmatchcase(guest, slug_pattern(app))
