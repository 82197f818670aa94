"""The `cache` option of a source: which results of tools are cached, for whom, for how long, and what invalidates them.

See docs/cache.md.

- Only results of tools that their server declares read-only, or that the configuration assumes to be, are cached. They
  are given to the same caller only, unless they declare themselves public.
- Any other call of the same source may change what its reads return: while one is in flight nothing is given from the
  cache, and when it has ended everything of that source is dropped.
- A cached result is given while its server is down, but not after the server has restarted: it may have lost its state.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Literal, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from trunkline.core.call import Cached, Call, Failure, Json, Result
from trunkline.core.source import SERVING
from trunkline.core.tool import Snapshot, ToolDefinition
from trunkline.protocol.jsonrpc import BadMessage, Members, encode_members, members_of
from trunkline.protocol.mcp.versions import MODERN
from trunkline.router.admission import Admission
from trunkline.router.catalog import says_read_only
from trunkline.router.options import CacheRules, matches_any
from trunkline.router.registry import SourceRegistry

_OVERHEAD_BYTES: Final = 512
"""What an entry takes besides the bytes of its key and its result."""
_PLAIN_CALL: Final = frozenset({"name", "arguments", "_meta"})
"""A call with other members (responses to server requests, a request to run as a task) is not cached."""
_PER_REQUEST: Final = frozenset({"traceparent", "tracestate", "baggage", "claudecode/toolUseId", "vscode.requestId"})
"""Members of `_meta` that differ in each request and do not affect the result. Others may, so they are in the key."""
_ABANDONED_WRITE_S: Final = 60.0
"""How long nothing is cached after a write whose end is unknown, because the server may still complete it."""
_NO_ACCESS: Final = ("disabled", "auth_required")


class _Key(NamedTuple):
    """One call. `principal` is None for a public result; `session` is set if each session has its own server."""

    source: str
    method: str
    params: bytes
    meta: bytes
    principal: str | None
    session: str | None

    @property
    def size_bytes(self) -> int:
        return len(self.params) + len(self.meta)


class _Entry(NamedTuple):
    """A cached result. `own_ttl_ms` is the server's TTL, if it gave one."""

    raw: bytes
    since: float
    until: float
    own_ttl_ms: float | None
    size_bytes: int


class _Dependencies(NamedTuple):
    """What the entries of one source depend on: they are dropped when any of it changes."""

    admission: Admission
    snapshot: Snapshot | None
    rules: CacheRules
    restarts: int
    """A server that has restarted may have lost the state that its results came from."""


@dataclass(slots=True)
class _SourceCache:
    """The entries of one source. `writes` counts the calls in flight that may change what reads return. `generation`
    increases whenever entries are dropped: a read that began before is not cached. Before `settled_at` a write that
    failed may still take effect."""

    dependencies: _Dependencies
    generation: int = 0
    keys: set[_Key] = field(default_factory=set[_Key])
    settled_at: float = 0.0
    writes: int = 0


class ResultCache:
    """The cached results of all sources, with one limit on their size; the least recently used are dropped."""

    def __init__(self, registry: SourceRegistry, limit_bytes: int, now: Callable[[], float]) -> None:
        self._catalog = registry.catalog
        self._events = registry.events
        self._limit_bytes = limit_bytes
        self._now = now
        self._entries: OrderedDict[_Key, _Entry] = OrderedDict()
        self.kept_bytes = 0
        self._source_caches: dict[str, _SourceCache] = {}
        registry.on_source_retired.append(self._source_retired)
        registry.on_client_list_changed.append(self._client_list_changed)

    def answers(
        self, call: Call, tool: ToolDefinition, admission: Admission, rules: CacheRules, members: Members
    ) -> bool:
        """Finish the call with a cached result. Returns False if there is none; then `call.keeper` sees how it ends."""
        source_cache = self._source_cache_of(admission, rules)
        use = use_of(tool, rules)
        if use == "write":
            source_cache.writes += 1
            call.keeper = _Keeper(self, source_cache)
            return False
        no_access = admission.draining or admission.health.state in _NO_ACCESS
        if use == "read" or no_access or not members.keys() <= _PLAIN_CALL:
            return False
        return self._answered(call, source_cache)

    def _source_cache_of(self, admission: Admission, rules: CacheRules) -> _SourceCache:
        snapshot = self._catalog.snapshot(admission.name)
        source_cache, restarts = self._source_caches.get(admission.name), admission.health.restarts
        if source_cache is not None and admission.health.state not in SERVING:
            # while it is down its results are still given: the restart counts once it is up again
            restarts = source_cache.dependencies.restarts
        dependencies = _Dependencies(admission, snapshot, rules, restarts)
        if source_cache is None:
            source_cache = self._source_caches[admission.name] = _SourceCache(dependencies)
        elif dependencies != source_cache.dependencies:
            self.clear(source_cache)
            source_cache.dependencies = dependencies
        return source_cache

    def _answered(self, call: Call, source_cache: _SourceCache) -> bool:
        if not source_cache.writes and self._now() >= source_cache.settled_at:
            key = _key_of(call, source_cache.dependencies)
            entry = self._find(key) or self._find(_public(key))
            if entry is not None:
                self._events.count("cache_hits", call.source)
                raw = entry.raw
                if entry.own_ttl_ms is not None:  # what is left of it
                    raw = with_ttl(raw, max(0, int(entry.own_ttl_ms - (self._now() - entry.since) * 1000)))
                call.finish(Cached(raw, raw))
                return True
            if key.size_bytes <= LARGEST_BYTES:
                call.keeper = _Keeper(self, source_cache, key)
        self._events.count("cache_misses", call.source)
        return False

    def _find(self, key: _Key) -> _Entry | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry.until <= self._now():
            self._drop(key)
            return None
        self._entries.move_to_end(key)
        return entry

    # -- storing and dropping -----------------------------------------------------------------------------------------

    def keep(self, source_cache: _SourceCache, key: _Key, raw: Json) -> None:
        hints = lasting_hints(raw)
        if hints is None:
            return
        if hints.cache_scope == "public":
            key = _public(key)
        own_ttl_ms, ttl_s = hints.own_ttl_ms, source_cache.dependencies.rules.ttl_s
        since = self._now()
        until = since + (ttl_s if own_ttl_ms is None else min(ttl_s, own_ttl_ms / 1000))
        self._drop(key)
        # `bytes`, because a view would keep the whole message alive.
        entry = _Entry(bytes(raw), since, until, own_ttl_ms, len(raw) + key.size_bytes + _OVERHEAD_BYTES)
        self._entries[key] = entry
        self.kept_bytes += entry.size_bytes
        source_cache.keys.add(key)
        self._make_room()

    def _make_room(self) -> None:
        """Drop the least recently used entries until the rest fits, and expired ones among them."""
        now = self._now()
        while self._entries:
            key, oldest = next(iter(self._entries.items()))
            if self.kept_bytes <= self._limit_bytes and oldest.until > now:
                return
            self._drop(key)

    def _drop(self, key: _Key) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.kept_bytes -= entry.size_bytes
            self._source_caches[key.source].keys.discard(key)

    def clear(self, source_cache: _SourceCache, matches: Callable[[_Key], bool] = lambda _: True) -> None:
        source_cache.generation += 1
        for key in [key for key in source_cache.keys if matches(key)]:
            self._drop(key)

    def forget(self, holder: str | None) -> None:
        """Drop what is cached for a session or a principal, or for everybody: its permissions may have changed."""
        for source_cache in self._source_caches.values():
            self.clear(source_cache, lambda key: holder is None or holder in (key.session, key.principal))

    def unsettle(self, source_cache: _SourceCache) -> None:
        """Note that a write failed without a response of the server, which may complete it nevertheless."""
        source_cache.settled_at = self._now() + min(_ABANDONED_WRITE_S, source_cache.dependencies.rules.ttl_s)

    def _source_retired(self, admission: Admission) -> None:
        """Drop the entries of a source that was replaced or removed. Writes in flight are still counted."""
        source_cache = self._source_caches.get(admission.name)
        if source_cache is not None:
            self.clear(source_cache)
            if not source_cache.writes:
                del self._source_caches[admission.name]

    def _client_list_changed(self, source: str, session: str) -> None:
        """Drop the entries of a session whose own server was replaced, or offers other tools."""
        source_cache = self._source_caches.get(source)
        if source_cache is not None:
            self.clear(source_cache, lambda key: key.session == session)


class _Keeper:
    """Sees how a call ends: the result of a read, which has a key, is cached unless entries of its source are dropped
    meanwhile; a call without a key may change what reads return."""

    __slots__ = ("_cache", "_generation", "_key", "_source_cache")

    def __init__(self, cache: ResultCache, source_cache: _SourceCache, key: _Key | None = None) -> None:
        self._cache = cache
        self._source_cache = source_cache
        self._key = key
        self._generation = source_cache.generation

    def ended(self, call: Call) -> None:
        outcome, source_cache = call.outcome, self._source_cache
        if self._key is not None:
            # A result that depends on what the client answered is not cached.
            if (
                isinstance(outcome, Result)
                and not call.sent_server_request
                and source_cache.generation == self._generation
            ):
                self._cache.keep(source_cache, self._key, outcome.raw)
            return
        source_cache.writes -= 1
        problem = outcome.problem if isinstance(outcome, Failure) else None
        if problem is None or problem.executed != "no":
            self._cache.clear(source_cache)
            if problem is not None:
                self._cache.unsettle(source_cache)


def _key_of(call: Call, dependencies: _Dependencies) -> _Key:
    caller, snapshot = call.caller, dependencies.snapshot
    modern = snapshot is not None and snapshot.protocol_version in MODERN
    session = caller.session if dependencies.rules.server_per_client and not modern else None
    meta = {name: value for name, value in sorted((call.meta or {}).items()) if name not in _PER_REQUEST}
    meta_json = encode_members(meta) if meta else b""
    return _Key(call.source, call.method, bytes(call.params), meta_json, caller.principal, session)


def _public(key: _Key) -> _Key:
    return key._replace(principal=None, session=None)


# -- what tools and results declare -----------------------------------------------------------------------------------
# Whatever cannot be read counts as not declared.

LARGEST_BYTES: Final = 1024 * 1024
_LONGEST_TTL_MS: Final = 2.0**53

CacheUse = Literal["keep", "read", "write"]


@lru_cache(maxsize=4096)
def use_of(tool: ToolDefinition, rules: CacheRules) -> CacheUse:
    """What a call of the tool means to the cache: its result is cached, it only reads, or it may change something."""
    if matches_any(tool.name, rules.assume_read_only):
        return "keep"
    if not says_read_only(tool.definition):
        return "write"
    return "keep" if matches_any(tool.name, rules.tools) else "read"


class ResultCacheHints(msgspec.Struct, rename="camel"):
    """The members of a result that matter to the cache."""

    is_error: bool = False
    result_type: str = "complete"
    ttl_ms: float | UnsetType = UNSET
    cache_scope: str = "private"

    @property
    def own_ttl_ms(self) -> float | None:
        return None if self.ttl_ms is UNSET else min(self.ttl_ms, _LONGEST_TTL_MS)


def lasting_hints(raw: Json) -> ResultCacheHints | None:
    """Read the hints of a result; returns None if it must not be cached."""
    if len(raw) > LARGEST_BYTES:
        return None
    try:
        hints = msgspec.json.decode(raw, type=ResultCacheHints)
        if hints.ttl_ms is not UNSET:
            members_of(bytes(raw), "result")  # `with_ttl` must be able to rewrite it
    except (msgspec.MsgspecError, BadMessage, RecursionError):
        return None
    expired = hints.ttl_ms is not UNSET and hints.ttl_ms <= 0
    return None if hints.is_error or hints.result_type != "complete" or expired else hints


def with_ttl(raw: bytes, ttl_ms: int) -> bytes:
    """Replace `ttlMs` in a result."""
    return encode_members({**members_of(raw, "result"), "ttlMs": b"%d" % ttl_ms})
