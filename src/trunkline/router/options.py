"""The options of the router, and of each source as far as the router needs them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from trunkline.core.call import Call
from trunkline.core.unfinished_bytes import DEFAULT_BYTES
from trunkline.protocol.jsonrpc import Members

Redirect = Callable[[Call, str, Members], tuple[str, Members] | None]
"""Called with a call, its tool and its parameters before any rule applies. Returns the tool that is really meant, with
its parameters; None if it is this one, or if the call was failed meanwhile. The target must not be redirected in turn,
because nothing would stop a loop."""


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
    """Which tools of a source are exposed, and under which names. `unlisted` tools can be called but are not listed.
    `arrival` numbers apps as they connect, 0 for others."""

    prefix: str
    allow: Sequence[str] = ("*",)
    deny: Sequence[str] = ()
    rename: Mapping[str, str] = field(default_factory=dict[str, str])
    unlisted: frozenset[str] = frozenset()
    arrival: int = 0

    def shows(self, tool: str) -> bool:
        return matches_any(tool, self.allow) and not matches_any(tool, self.deny)


def matches_any(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRules:
    """Which tools' results may be cached, and for how long. Tools that match `assume_read_only` need not declare that
    they only read. `server_per_client` is set if clients may have a server each, whose results may differ."""

    tools: tuple[str, ...] = ()
    assume_read_only: tuple[str, ...] = ()
    ttl_s: float = 60.0
    server_per_client: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The options of one source. `fingerprint` is the key of its stored definitions, empty if they are not stored.
    `origin` says where it was configured. `cache` is None if no result may be cached. `guards_paths` refuses path
    traversal in arguments. `redirect` is set if its tools stand for others. `redact` removes secrets from what it
    reports. `withheld` are tools that it offers only if `tools.allow` has their exact names."""

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
