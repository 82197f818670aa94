"""What the router is told about the gateway and about each source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from trunkline.core.call import Call
from trunkline.core.unfinished_bytes import DEFAULT_BYTES
from trunkline.protocol.jsonrpc import Members

Redirect = Callable[[Call, str, Members], tuple[str, Members] | None]
"""Told of a call of a tool before anything else happens to it: which tool is really meant, and with what parameters.
None where it is that tool itself, or where the call was refused meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterOptions:
    naming: str
    max_name: int
    start_wait_s: float
    call_s: float
    in_flight_per_source: int
    queue_per_source: int
    cache_bytes: int = 67_108_864
    large_call_bytes: int = DEFAULT_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class NameRules:
    """How one source's tools are shown. `arrival` counts those that came by themselves; 0 for what is configured.

    `unlisted` are tools that can be called and stand in no list."""

    prefix: str
    allow: Sequence[str] = ("*",)
    deny: Sequence[str] = ()
    rename: Mapping[str, str] = field(default_factory=dict[str, str])
    unlisted: frozenset[str] = frozenset()
    arrival: int = 0

    def shows(self, tool: str) -> bool:
        return _matches(tool, self.allow) and not _matches(tool, self.deny)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRules:
    """Which tools' results may be given again, and for how long. `assume_read_only` ones need not say that they only read.

    `server_per_client` where clients may have a server each, which may remember different things.
    """

    tools: tuple[str, ...] = ()
    assume_read_only: tuple[str, ...] = ()
    ttl_s: float = 60.0
    server_per_client: bool = True

    def names(self, tool: str) -> bool:
        return _matches(tool, self.tools)

    def assumes_read_only(self, tool: str) -> bool:
        return _matches(tool, self.assume_read_only)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What the router needs to know of a source's configuration.

    `fingerprint` names its definitions on disk; empty where none are kept. `origin` says who configured it.
    `cache` is None where no result is kept. `guards_paths` refuses path traversal in arguments. `redirect`
    is set where tools stand for others. `redact` takes secrets out of what the source says. `withheld` are tools it
    could offer, had `tools.allow` their very names.
    """

    rules: NameRules
    timeout_s: float
    grace_s: float
    timeouts_s: Mapping[str, float] = field(default_factory=dict[str, float])
    fingerprint: str = ""
    enabled: bool = True
    kind: str = ""
    origin: str = "file"
    cache: CacheRules | None = None
    guards_paths: bool = False
    redirect: Redirect | None = None
    redact: Callable[[str], str] = str
    withheld: frozenset[str] = frozenset()
