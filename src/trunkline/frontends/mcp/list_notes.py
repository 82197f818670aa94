"""What is said beside a list: how long it holds, for whom, and which servers it does not show as they are now.

Working it out means looking at every server, so it is kept until there is news of one.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from trunkline.core.call import Caller
from trunkline.core.tool import ListName
from trunkline.frontends.mcp.hello import OUR_INFO
from trunkline.protocol.jsonrpc import encode
from trunkline.router.aggregation import INCOMPLETE, incomplete_sources, list_cache_hints
from trunkline.router.router import Router

_REFRESH_S: Final = 1.0
"""How often at most lists make us look for servers whose last word on them is old."""
_ANYBODY: Final = Caller()


class _Hints(NamedTuple):
    fresh_until: float
    public: bool


class ListNotes:
    def __init__(self, router: Router) -> None:
        self._router = router
        self._time = asyncio.get_running_loop().time
        self._hints: dict[ListName, _Hints] = {}
        self._incomplete: bytes | None = None
        self._refreshed_at: dict[ListName, float] = {}
        self._servers = 0
        router.registry.on_source_changed.insert(0, self._forget)  # before anybody who waits for news is given a list
        router.registry.on_list_changed.append(self._forget)

    def listed(self, name: ListName) -> None:
        """Somebody lists this: servers whose last word on it is old are asked again."""
        now = self._time()
        if now >= self._refreshed_at.get(name, 0.0) + _REFRESH_S:
            self._refreshed_at[name] = now
            self._router.listed(name)

    def legacy(self) -> bytes:
        """The members after the list, each with a comma before it."""
        missing = self._missing()
        return b',"_meta":{%b}' % missing if missing else b""

    def modern(self, name: ListName, *, public: bool | None = None, lasts: bool = True) -> bytes:
        """The members after the list for a client of 2026-07-28; `public` where it is settled by an earlier page.
        One that does not last may be another as soon as its client does something."""
        missing = self._missing()
        hints = self._hints_of(name)
        ttl_ms = max(0, int((hints.fresh_until - self._time()) * 1000)) if lasts else 0
        scope = b"public" if (hints.public if public is None else public) else b"private"
        comma = b"," if missing else b""
        return b',"ttlMs":%d,"cacheScope":"%b","_meta":{%b%b%b}' % (ttl_ms, scope, OUR_INFO, comma, missing)

    def is_public(self, name: ListName) -> bool:
        return self._hints_of(name).public

    def _hints_of(self, name: ListName) -> _Hints:
        hints = self._hints.get(name)
        if hints is None:
            ttl_ms, public = list_cache_hints(self._router.registry, _ANYBODY, name)
            hints = self._hints[name] = _Hints(self._time() + ttl_ms / 1000, public)
        return hints

    def _missing(self) -> bytes:
        """The member of `_meta` for servers that the lists do not show as they are now; empty when there are none."""
        if self._servers != len(self._router.admissions):  # a new one makes no news before it was heard of
            self._servers = len(self._router.admissions)
            self._forget()
        if self._incomplete is None:
            servers = incomplete_sources(self._router.registry)
            self._incomplete = b"%b:%b" % (encode(INCOMPLETE), encode(servers)) if servers else b""
        return self._incomplete

    def _forget(self) -> None:
        self._hints.clear()
        self._incomplete = None
