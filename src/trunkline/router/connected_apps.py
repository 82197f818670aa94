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
from trunkline.core.source import OnEvicted, Source
from trunkline.router.admission import Admission
from trunkline.router.options import CacheRules, NameRules, SourceOptions
from trunkline.runtime.contained import contained

if TYPE_CHECKING:
    from trunkline.router.registry import SourceRegistry, SourceSink

ORIGIN: Final = "app"
_ALL_TOOLS: Final = "*"
V = TypeVar("V")


class ConnectedApps:
    """Who is whose guest. A host that left keeps its guests until nothing of it is left."""

    def __init__(self, registry: SourceRegistry) -> None:
        self._registry = registry
        self._by_host: dict[Admission, dict[str, Admission]] = {}
        self._hosts: dict[Admission, Admission] = {}
        self._evicted: dict[Admission, OnEvicted] = {}
        self._arrivals = 0

    def host(self, host: Admission, name: str, source: Source, on_evicted: OnEvicted) -> SourceSink | None:
        """Bring in a guest, or find it again; None where the name is somebody else's."""
        registry = self._registry
        admission = registry.admissions.get(name)
        if admission is not None:
            return (
                registry.sink_of(admission)
                if admission.source is source and self._hosts.get(admission) is host
                else None
            )
        if registry.admissions.get(host.name) is not host:
            return None  # the host was replaced: apps are for its successor
        if any(other.casefold() == name.casefold() for other in (RESERVED_SOURCE, *registry.admissions)):
            return None  # to a reader it would be the other
        self._arrivals += 1
        sink = registry.add(name, source, app_options(host, name, self._arrivals))
        self._by_host.setdefault(host, {})[name] = sink.admission
        self._hosts[sink.admission] = host
        self._evicted[sink.admission] = on_evicted
        registry.put_in_order()
        return sink

    def dismiss(self, host: Admission, name: str) -> None:
        admission = self._by_host.get(host, {}).get(name)
        if admission is None:
            return
        if self._registry.admissions.get(name) is admission:
            self._registry.remove(name)
        self.forget(admission)

    def forget(self, admission: Admission) -> None:
        """Nothing of a guest is left."""
        host = self._hosts.pop(admission, None)
        self._evicted.pop(admission, None)
        if host is not None:
            del self._by_host[host][admission.name]
            self._registry.let_go(admission)

    def has_to_leave(self, other: str, name: str) -> bool:
        """Whether a server is a guest that is called like one which is added now, or nearly so."""
        return other.casefold() == name.casefold() and self.is_guest(self._registry.admissions[other])

    def evict(self, admission: Admission) -> None:
        """The name of a guest was given to another server."""
        self._evicted[admission](False)
        self.forget(admission)

    def is_guest(self, admission: Admission) -> bool:
        return admission in self._hosts

    def of(self, host: Admission) -> tuple[Admission, ...]:
        return tuple(self._by_host.get(host, {}).values())

    def host_left(self, host: Admission) -> None:
        """Its guests take no more calls; what is in flight may end."""
        for admission in self.of(host):
            if self._registry.admissions.get(admission.name) is admission:
                self._registry.remove(admission.name)
                contained("an app whose host leaves", self._evicted[admission], True)

    def host_gone(self, host: Admission) -> None:
        for admission in self.of(host):
            self.forget(admission)
        self._by_host.pop(host, None)

    def host_changed(self, host: Admission) -> None:
        """Other names, deadlines or rules for the host are so for its guests."""
        for admission in self.of(host):
            self._registry.set_options(admission, app_options(host, admission.name, admission.options.rules.arrival))

    def in_order(self, names: Iterable[str]) -> Iterable[str]:
        """These names with each host's guests after it, by name: apps dial in in any order, lists should not change."""
        admissions = self._registry.admissions
        for name in names:
            yield name
            if name in admissions:
                yield from sorted(guest.name for guest in self.of(admissions[name]))


def app_options(host: Admission, guest: str, arrival: int) -> SourceOptions:
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
