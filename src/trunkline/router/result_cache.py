"""Results that may be given again: whose they are, how long they hold, and what makes them void.

Only tools that their server calls read-only, or that the operator vouches for, have their results kept, and only for
whoever asked, unless they call themselves public. Any other call of the same source may change what reads see: while
one is under way nothing is given, and when it has run everything kept of that source is dropped. A kept result is given
while its server is down, but not once the server is back: it may not remember what it said before.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache
from typing import Final, Literal, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from trunkline.core.call import Cached, Call, Failure, Json, Result
from trunkline.core.errors import CANCELLED, DEADLINE
from trunkline.core.tool import Snapshot, Tool
from trunkline.protocol.jsonrpc import BadMessage, Members, encode_members, members_of
from trunkline.protocol.mcp.versions import MODERN
from trunkline.router.admission import Admission
from trunkline.router.options import CacheRules
from trunkline.router.registry import SourceRegistry

_OVERHEAD_BYTES: Final = 512
"""What keeping a result takes besides its bytes and those of its question."""
_PLAIN_CALL: Final = frozenset({"name", "arguments", "_meta"})
"""A call that says more (answers to a server's questions, a wish to run as a task) is part of something longer."""
_PER_REQUEST: Final = frozenset({"traceparent", "tracestate", "baggage", "claudecode/toolUseId", "vscode.requestId"})
"""Members of `_meta` that are different each time and change nothing. Any other may say for whom a client asks."""
_UNSETTLED_S: Final = 60.0
"""How long a server may go on with what its caller waits for no longer, before what it says is kept again."""
_WELL: Final = ("ready", "degraded")
_NO_ACCESS: Final = ("disabled", "auth_required")


class _Key(NamedTuple):
    """One question. Without `principal` the answer is everybody's; `session` matters where each has its own server."""

    source: str
    method: str
    params: bytes
    meta: bytes
    principal: str | None
    session: str | None

    @property
    def size_bytes(self) -> int:
        return len(self.params) + len(self.meta)


class _Kept(NamedTuple):
    raw: bytes
    since: float
    until: float
    own_ttl_ms: float | None
    size_bytes: int


class _Basis(NamedTuple):
    """What everything on a shelf rests on: when any of it changes, the shelf is cleared."""

    admission: Admission
    snapshot: Snapshot | None
    rules: CacheRules
    restarts: int


class _Shelf:
    """What is kept of one source. `writes` counts calls under way that may change what reads see.

    `generation` goes up whenever something was dropped: a read that began before that is not kept. Until
    `settled_at` a change may still be made that nobody waits for.
    """

    __slots__ = ("basis", "generation", "keys", "settled_at", "writes")

    def __init__(self, basis: _Basis) -> None:
        self.basis = basis
        self.generation = 0
        self.keys: set[_Key] = set()
        self.settled_at = 0.0
        self.writes = 0


class ResultCache:
    def __init__(self, registry: SourceRegistry, limit_bytes: int, now: Callable[[], float]) -> None:
        self._catalog = registry.catalog
        self._events = registry.events
        self._limit_bytes = limit_bytes
        self._now = now
        self._kept: OrderedDict[_Key, _Kept] = OrderedDict()
        self._kept_bytes = 0
        self._shelves: dict[str, _Shelf] = {}
        registry.on_source_retired.append(self._source_left)
        registry.on_client_list_changed.append(self._client_news)

    @property
    def kept_bytes(self) -> int:
        return self._kept_bytes

    def answers(self, call: Call, tool: Tool, admission: Admission, rules: CacheRules, members: Members) -> bool:
        """Whether this call is answered now. If not, the call is watched: its end may fill the cache or clear it."""
        shelf = self._shelf_of(admission, rules)
        use = use_of(tool, rules)
        if use == "write":
            shelf.writes += 1
            call.keeper = _Write(self, shelf)
            return False
        barred = admission.draining or admission.health.state in _NO_ACCESS
        if use == "read" or barred or not members.keys() <= _PLAIN_CALL:
            return False
        return self._answered(call, shelf)

    def _shelf_of(self, admission: Admission, rules: CacheRules) -> _Shelf:
        snapshot = self._catalog.snapshot(admission.name)
        shelf = self._shelves.get(admission.name)
        if shelf is None:
            basis = _Basis(admission, snapshot, rules, admission.health.restarts)
            shelf = self._shelves[admission.name] = _Shelf(basis)
            return shelf
        restarts = admission.health.restarts if admission.health.state in _WELL else shelf.basis.restarts
        basis = _Basis(admission, snapshot, rules, restarts)
        if basis != shelf.basis:
            self.clear(shelf)
            shelf.basis = basis
        return shelf

    def _answered(self, call: Call, shelf: _Shelf) -> bool:
        key = _key_of(call, shelf.basis)
        if not shelf.writes and self._now() >= shelf.settled_at:
            kept = self._find(key) or self._find(_for_everybody(key))
            if kept is not None:
                self._events.count("cache_hits", call.source)
                raw = _aged(kept, self._now())
                call.finish(Cached(raw, raw))
                return True
            if key.size_bytes <= LARGEST_BYTES:
                call.keeper = _Read(self, shelf, key)
        self._events.count("cache_misses", call.source)
        return False

    def _find(self, key: _Key) -> _Kept | None:
        kept = self._kept.get(key)
        if kept is None:
            return None
        if kept.until <= self._now():
            self._drop(key)
            return None
        self._kept.move_to_end(key)
        return kept

    # -- keeping and dropping -------------------------------------------------------------------------------------

    def keep(self, shelf: _Shelf, key: _Key, raw: Json) -> None:
        hints = lasting_hints(raw)
        if hints is None:
            return
        if hints.is_public:
            key = _for_everybody(key)
        own_ttl_ms, ttl_s = hints.own_ttl_ms, shelf.basis.rules.ttl_s
        since = self._now()
        until = since + (ttl_s if own_ttl_ms is None else min(ttl_s, own_ttl_ms / 1000))
        self._drop(key)
        # A view would keep the whole message alive that it is a part of.
        kept = _Kept(bytes(raw), since, until, own_ttl_ms, len(raw) + key.size_bytes + _OVERHEAD_BYTES)
        self._kept[key] = kept
        self._kept_bytes += kept.size_bytes
        shelf.keys.add(key)
        self._make_room()

    def _make_room(self) -> None:
        """Those that nobody asked for longest go first, and with them what is out of date already."""
        now = self._now()
        while self._kept:
            key, oldest = next(iter(self._kept.items()))
            if self._kept_bytes <= self._limit_bytes and oldest.until > now:
                return
            self._drop(key)

    def _drop(self, key: _Key) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._kept_bytes -= kept.size_bytes
            self._shelves[key.source].keys.discard(key)

    def clear(self, shelf: _Shelf) -> None:
        shelf.generation += 1
        for key in list(shelf.keys):
            self._drop(key)

    def forget(self, holder: str | None) -> None:
        """A session or principal, or everybody, has other rights now: what was kept for it may not be its to see."""
        for shelf in self._shelves.values():
            shelf.generation += 1
            for key in [key for key in shelf.keys if holder is None or holder in (key.session, key.principal)]:
                self._drop(key)

    def unsettle(self, shelf: _Shelf) -> None:
        """A server was told that nobody waits for a change any more, and may make it nevertheless."""
        shelf.settled_at = self._now() + min(_UNSETTLED_S, shelf.basis.rules.ttl_s)

    def _source_left(self, admission: Admission) -> None:
        """A source was replaced or removed. Calls that may still change something keep its shelf until they end."""
        shelf = self._shelves.get(admission.name)
        if shelf is not None:
            self.clear(shelf)
            if not shelf.writes:
                del self._shelves[admission.name]

    def _client_news(self, source: str, session: str) -> None:
        """One client's own server is another one now, or offers other tools."""
        shelf = self._shelves.get(source)
        if shelf is not None:
            shelf.generation += 1
            for key in [key for key in shelf.keys if key.session == session]:
                self._drop(key)


class _Read:
    """A call on its way whose result may be kept, unless something happened to its shelf meanwhile."""

    __slots__ = ("_cache", "_generation", "_key", "_shelf")

    def __init__(self, cache: ResultCache, shelf: _Shelf, key: _Key) -> None:
        self._cache = cache
        self._shelf = shelf
        self._key = key
        self._generation = shelf.generation

    def ended(self, call: Call) -> None:
        outcome = call.outcome
        # A result that took an answer of the client is for that answer alone.
        if isinstance(outcome, Result) and not call.asked_client and self._shelf.generation == self._generation:
            self._cache.keep(self._shelf, self._key, outcome.raw)


class _Write:
    """A call on its way that may change what reads see."""

    __slots__ = ("_cache", "_shelf")

    def __init__(self, cache: ResultCache, shelf: _Shelf) -> None:
        self._cache = cache
        self._shelf = shelf

    def ended(self, call: Call) -> None:
        outcome = call.outcome
        self._shelf.writes -= 1
        if isinstance(outcome, Failure) and outcome.problem.executed == "no":
            return
        self._cache.clear(self._shelf)
        if isinstance(outcome, Failure) and outcome.problem.code in (CANCELLED, DEADLINE):
            self._cache.unsettle(self._shelf)


def _aged(kept: _Kept, now: float) -> bytes:
    """The result as its server wrote it; one that says how long it holds now says how long it still does."""
    if kept.own_ttl_ms is None:
        return kept.raw
    return with_ttl(kept.raw, max(0, int(kept.own_ttl_ms - (now - kept.since) * 1000)))


def _key_of(call: Call, basis: _Basis) -> _Key:
    caller, snapshot = call.caller, basis.snapshot
    modern = snapshot is not None and snapshot.protocol_version in MODERN
    session = caller.session if basis.rules.server_per_client and not modern else None
    meta = {name: value for name, value in sorted((call.meta or {}).items()) if name not in _PER_REQUEST}
    meta_json = encode_members(meta) if meta else b""
    return _Key(call.source, call.method, bytes(call.params), meta_json, caller.principal, session)


def _for_everybody(key: _Key) -> _Key:
    return key._replace(principal=None, session=None)


# What servers say of tools and results: whether they only read, and whether, how long and for whom they hold.
#
# Whatever cannot be read for sure counts as not said.

LARGEST_BYTES: Final = 1024 * 1024
_LONGEST_TTL_MS: Final = 2.0**53

CacheUse = Literal["keep", "read", "write"]


class _Annotations(msgspec.Struct, rename="camel"):
    read_only_hint: bool = False


class _Definition(msgspec.Struct):
    annotations: _Annotations | None = None


@lru_cache(maxsize=4096)
def use_of(tool: Tool, rules: CacheRules) -> CacheUse:
    """What a call of the tool means to the cache: its result is kept, it only reads, or it may change something."""
    if rules.assumes_read_only(tool.name):
        return "keep"
    if not says_read_only(tool.definition):
        return "write"
    return "keep" if rules.names(tool.name) else "read"


def says_read_only(definition: bytes) -> bool:
    try:
        annotations = msgspec.json.decode(definition, type=_Definition).annotations
    except (msgspec.MsgspecError, RecursionError):
        return False
    return annotations is not None and annotations.read_only_hint


class ResultCacheHints(msgspec.Struct, rename="camel"):
    is_error: bool = False
    result_type: str = "complete"
    ttl_ms: float | UnsetType = UNSET
    cache_scope: str = "private"

    @property
    def own_ttl_ms(self) -> float | None:
        return None if self.ttl_ms is UNSET else min(self.ttl_ms, _LONGEST_TTL_MS)

    @property
    def is_public(self) -> bool:
        return self.cache_scope == "public"


def lasting_hints(raw: Json) -> ResultCacheHints | None:
    """What a result says of itself; None for one that may not be given a second time."""
    if len(raw) > LARGEST_BYTES:
        return None
    try:
        hints = msgspec.json.decode(raw, type=ResultCacheHints)
        if hints.ttl_ms is not UNSET:
            members_of(bytes(raw), "result")  # `with_ttl` will have to write it again
    except (msgspec.MsgspecError, BadMessage, RecursionError):
        return None
    passing = hints.ttl_ms is not UNSET and hints.ttl_ms <= 0
    return None if hints.is_error or hints.result_type != "complete" or passing else hints


def with_ttl(raw: bytes, ttl_ms: int) -> bytes:
    """The same result with another `ttlMs`."""
    return encode_members({**members_of(raw, "result"), "ttlMs": b"%d" % ttl_ms})
