"""Sources that another source adds: apps that connect to an app source are named, listed and called like any server.

An app stays registered as long as its app source wants, and never longer than the app source itself. It is configured
in the app source's section: a pattern or tool written `APP:TOOL` there applies to that app alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final, TypeVar

from trunkline.core.names import RESERVED_SOURCE, slug_pattern
from trunkline.core.source import OnEvicted, Source
from trunkline.router.admission import Admission
from trunkline.router.options import NameRules, SourceOptions
from trunkline.runtime.safe_callbacks import call_safely

if TYPE_CHECKING:
    from trunkline.router.registry import SourceRegistry, SourceSink

ORIGIN: Final = "app"
_ALL_TOOLS: Final = "*"
V = TypeVar("V")


class ConnectedApps:
    """The connected apps of each app source. Those of a retired app source are kept until it is released."""

    def __init__(self, registry: SourceRegistry) -> None:
        self._registry = registry
        self._by_host: dict[Admission, dict[str, Admission]] = {}
        self._apps: dict[Admission, tuple[Admission, OnEvicted]] = {}
        """The app source of each app, and whom to tell when the app is removed."""
        self._arrivals = 0

    def add(self, host: Admission, name: str, source: Source, on_evicted: OnEvicted) -> SourceSink | None:
        """Register an app, or find it again. Returns None if the name is taken."""
        registry = self._registry
        admission = registry.admissions.get(name)
        if admission is not None:
            is_same = admission.source is source and self._by_host.get(host, {}).get(name) is admission
            return registry.sink_of(admission) if is_same else None
        if registry.admissions.get(host.name) is not host:
            return None  # the app source was replaced: its successor takes the app
        if any(other.casefold() == name.casefold() for other in (RESERVED_SOURCE, *registry.admissions)):
            return None  # the two names would be hard to tell apart
        self._arrivals += 1
        sink = registry.add(name, source, app_options(host, name, self._arrivals))
        self._by_host.setdefault(host, {})[name] = sink.admission
        self._apps[sink.admission] = host, on_evicted
        registry.put_in_order()
        return sink

    def remove(self, host: Admission, name: str) -> None:
        admission = self._by_host.get(host, {}).get(name)
        if admission is None:
            return
        if self._registry.admissions.get(name) is admission:
            self._registry.remove(name)
        self.forget(admission)

    def forget(self, admission: Admission) -> None:
        """Forget an app, of which nothing is left."""
        if self.is_app(admission):
            host, _ = self._apps.pop(admission)
            del self._by_host[host][admission.name]
            self._registry.release(admission)

    def evict(self, admission: Admission) -> None:
        """Tell an app that its name was given to a configured server."""
        self._apps[admission][1](False)
        self.forget(admission)

    def is_app(self, admission: Admission) -> bool:
        return admission in self._apps

    def of(self, host: Admission) -> tuple[Admission, ...]:
        return tuple(self._by_host.get(host, {}).values())

    def host_retired(self, host: Admission) -> None:
        """Remove the apps of an app source that was retired; their calls in flight may end."""
        for admission in self.of(host):
            if self._registry.admissions.get(admission.name) is admission:
                self._registry.remove(admission.name)
                call_safely("an app of a retired app source", self._apps[admission][1], True)

    def host_released(self, host: Admission) -> None:
        for admission in self.of(host):
            self.forget(admission)
        self._by_host.pop(host, None)

    def host_changed(self, host: Admission) -> None:
        """Apply new options of an app source to its apps."""
        for admission in self.of(host):
            self._registry.set_options(admission, app_options(host, admission.name, admission.options.rules.arrival))

    def in_order(self, names: Iterable[str]) -> Iterable[str]:
        """These names, each app source followed by its apps, by name: lists do not depend on who connected first."""
        admissions = self._registry.admissions
        for name in names:
            yield name
            if name in admissions:
                yield from sorted(app.name for app in self.of(admissions[name]))


def app_options(host: Admission, app: str, arrival: int) -> SourceOptions:
    """The options of an app: those of its app source, where they are for all apps or for this one."""
    options = host.options
    rules, cache = options.rules, options.cache
    timeouts_s = dict(_entries(options.timeouts_s, app))
    timeout_s = timeouts_s.pop(_ALL_TOOLS, options.timeout_s)
    prefix = rules.prefix and f"{rules.prefix}_{app}"
    if rules.prefix == host.name:  # the configuration has none of its own
        prefix = app
    return replace(
        options,
        rules=NameRules(
            prefix=prefix,
            allow=tuple(_patterns(rules.allow, app)),
            deny=tuple(_patterns(rules.deny, app)),
            rename=dict(_entries(rules.rename, app)),
            arrival=arrival,
        ),
        cache=cache
        and replace(
            cache,
            tools=tuple(_patterns(cache.tools, app)),
            assume_read_only=tuple(_patterns(cache.assume_read_only, app)),
        ),
        timeout_s=timeout_s,
        timeouts_s=timeouts_s,
        fingerprint="",
        origin=ORIGIN,
    )


def _patterns(patterns: Iterable[str], app: str) -> Iterable[str]:
    for pattern in patterns:
        app_pattern, colon, tool = pattern.partition(":")
        if not colon:
            yield pattern
        elif _matches(app_pattern, app):
            yield tool


def _entries(values: Mapping[str, V], app: str) -> Iterable[tuple[str, V]]:
    """Entries for this app's tools come last, so that they win."""
    yield from ((name, value) for name, value in values.items() if ":" not in name)
    for name, value in values.items():
        app_pattern, colon, tool = name.partition(":")
        if colon and _matches(app_pattern, app):
            yield tool, value


def _matches(pattern: str, app: str) -> bool:
    """Whether the pattern matches the app, by its name as a server or by the name it registered with."""
    return fnmatchcase(app, pattern) or fnmatchcase(app, slug_pattern(pattern))
