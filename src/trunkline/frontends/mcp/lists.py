"""The lists that clients ask for: everything the servers offer, as far as it is known at this moment.

Nearly every list fits on one page and does not change between two requests: its answer is kept, ready to be sent.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from itertools import count
from typing import Any, Final, NamedTuple, cast
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Raw

from trunkline.core.call import Caller
from trunkline.core.errors import INVALID_PARAMS, Problem
from trunkline.core.seal import Sealer
from trunkline.core.tool import ListName
from trunkline.frontends.mcp.initialize import SERVER_INFO_MEMBER
from trunkline.frontends.mcp.requests import RequestContext, own_result, refuse, respond_later
from trunkline.protocol.jsonrpc import BadMessage, encode, text_member
from trunkline.protocol.mcp.methods import PROMPTS_LIST, RESOURCES_LIST, RESOURCES_TEMPLATES_LIST, TOOLS_LIST
from trunkline.protocol.mcp.translation import downgraded_tools
from trunkline.router.aggregation import INCOMPLETE, incomplete_sources, list_cache_hints
from trunkline.router.catalog import Catalog
from trunkline.router.router import Router
from trunkline.search.listing import ClientListing


class ListType(NamedTuple):
    """One of the four lists: the member of the result that holds it, and the member that tells its items apart."""

    name: ListName
    member: bytes
    key: str


TOOLS: Final = ListType("tools", b"tools", "name")
PROMPTS: Final = ListType("prompts", b"prompts", "name")
RESOURCES: Final = ListType("resources", b"resources", "uri")
TEMPLATES: Final = ListType("templates", b"resourceTemplates", "uriTemplate")
LIST_TYPES: Final = (TOOLS, PROMPTS, RESOURCES, TEMPLATES)
_BY_METHOD: Final = {
    TOOLS_LIST: TOOLS,
    PROMPTS_LIST: PROMPTS,
    RESOURCES_LIST: RESOURCES,
    RESOURCES_TEMPLATES_LIST: TEMPLATES,
}


class VisibleLists:
    """What a client is shown of each list: a JSON array, ready-made, and the same object until it changes."""

    def __init__(self, router: Router, listing: ClientListing) -> None:
        self._router = router
        self._listing = listing

    def listing(self, caller: Caller, kind: ListType) -> bytes:
        if kind is TOOLS:
            return self._listing.listing(caller)
        catalog = self._router.views.of(caller)
        if kind is PROMPTS:
            return catalog.prompts.listing
        return catalog.resources.listing if kind is RESOURCES else catalog.resources.template_listing

    def is_own(self, caller: Caller, kind: ListType) -> bool:
        """Whether it is a short one that may be this client's alone."""
        return kind is TOOLS and self._listing.searches(caller)

    def varies(self, caller: Caller, kind: ListType) -> bool:
        """Whether clients see different things in it, and one by its own doing another thing a moment later."""
        return kind is TOOLS and self._listing.varies(caller)


class _CachedList:
    """A list as it is now, and for each version of clients the last answer that was made of it."""

    __slots__ = ("answers", "pages")

    def __init__(self, pages: ListPages) -> None:
        self.pages = pages
        self.answers: dict[str, tuple[bytes, bytes]] = {}


class ListHandler:
    def __init__(self, router: Router, shown: VisibleLists, sealer: Sealer) -> None:
        self._router = router
        self._shown = shown
        self._notes = ListMetadata(router)
        self._walks = Pagination(sealer)
        self._ready: WeakKeyDictionary[Catalog, dict[ListType, _CachedList]] = WeakKeyDictionary()

    def give(self, context: RequestContext) -> None:
        kind = _BY_METHOD[context.message.method or ""]
        self._notes.listed(kind.name)
        self._router.when_listed(lambda: respond_later(context.responder, self._give, context, kind))

    def _give(self, context: RequestContext, kind: ListType) -> None:
        ready = self._ready_for(context, kind)
        if "cursor" in context.params:
            self._give_further(context, kind, ready.pages)
            return
        if context.session is not None:
            context.session.last_sent[kind.member] = ready.pages.listing
        if not ready.pages.is_one_page:
            public = self._notes.is_public(kind.name) and not self._shown.varies(context.caller, kind)
            self._give_page(context, kind, ready.pages, Cursor.of_start(ready.pages, public))
            return
        rest = self._rest(context, kind)
        version = context.caller.version
        known = ready.answers.get(version)
        if known is None or known[0] != rest:
            known = ready.answers[version] = (rest, _result(context, kind, ready.pages.listing, rest))
        context.responder.result(own_result(known[1]))

    def _ready_for(self, context: RequestContext, kind: ListType) -> _CachedList:
        catalog = self._router.views.of(context.caller)
        listing = self._shown.listing(context.caller, kind)
        if self._shown.is_own(context.caller, kind):
            return _CachedList(self._walks.begin(listing, kind.key))
        of_catalog = self._ready.setdefault(catalog, {})
        ready = of_catalog.get(kind)
        if ready is None or ready.pages.listing is not listing:
            ready = of_catalog[kind] = _CachedList(self._walks.begin(listing, kind.key))
        return ready

    def _rest(self, context: RequestContext, kind: ListType, *, public: bool | None = None) -> bytes:
        if context.session is not None:
            return self._notes.legacy()
        if self._shown.varies(context.caller, kind):
            return self._notes.modern(kind.name, public=False, lasts=False)
        return self._notes.modern(kind.name, public=public)

    def _give_further(self, context: RequestContext, kind: ListType, now: ListPages) -> None:
        try:
            cursor = text_member(context.params, "cursor")
        except BadMessage:
            cursor = None
        found = None if cursor is None else self._walks.take(context.caller, kind.name, cursor, now)
        if found is None:
            problem = Problem(code=INVALID_PARAMS, message="Unknown `cursor`", hint="list again from the start")
            refuse(context.responder, problem)
        else:
            self._give_page(context, kind, *found)

    def _give_page(self, context: RequestContext, kind: ListType, pages: ListPages, cursor: Cursor) -> None:
        page = pages.page(cursor)
        rest = self._rest(context, kind, public=cursor.public)
        if page.next is not None:
            further = encode(self._walks.give(context.caller, kind.name, pages, page.next))
            rest = b',"nextCursor":%b%b' % (further, rest)
        context.responder.result(own_result(_result(context, kind, page.items, rest)))


def _result(context: RequestContext, kind: ListType, items: bytes, rest: bytes) -> bytes:
    if context.session is None:
        return b'{"resultType":"complete","%b":%b%b}' % (kind.member, items, rest)
    shown = downgraded_tools(items, context.caller.version) if kind is TOOLS else items
    return b'{"%b":%b%b}' % (kind.member, shown, rest)


# A long list, page by page: where the next page begins is for the client to hand back, sealed.
#
# Whoever has begun a list walks through it as it was then, so that a change in between neither hides nor repeats an
# item. Only so many lists are kept for that; a walk that took too long goes on after the item it saw last, in the list
# as it is now.

PAGE_ITEMS: Final = 5000
"""Many clients never ask for a second page, so the first one holds what anybody really has."""
KEPT_LISTS: Final = 16

_decode_list: Final = cast(Callable[[Any], list[Raw]], msgspec.json.Decoder(list[Raw]).decode)
_decode_item: Final = cast(Callable[[Any], dict[str, Raw]], msgspec.json.Decoder(dict[str, Raw]).decode)


class Cursor(msgspec.Struct, array_like=True):
    """Where a page begins: the list's number and a position in it, and a digest of the key of the item before.

    `public` is whether the first page could be shared by caches: it is the same for all pages.
    """

    number: int
    start: int
    after: str
    public: bool

    @classmethod
    def of_start(cls, pages: ListPages, public: bool) -> Cursor:
        return cls(pages.number, 0, "", public)


class ListPage(NamedTuple):
    """A JSON array, and where the next one begins."""

    items: bytes
    next: Cursor | None


class ListPages:
    """One list as it was at one moment; `key` is the member that tells its items apart."""

    __slots__ = ("_key", "_page_items", "is_one_page", "listing", "number")

    def __init__(self, listing: bytes, key: str, number: int, page_items: int) -> None:
        self.listing = listing
        self.number = number
        self._key = key
        self._page_items = page_items
        self.is_one_page = len(_decode_list(listing)) <= page_items

    def page(self, cursor: Cursor) -> ListPage:
        everything = _decode_list(self.listing)
        items = everything[cursor.start : cursor.start + self._page_items]
        end = cursor.start + len(items)
        further: Cursor | None = None
        if items and end < len(everything):
            further = Cursor(self.number, end, self._digest_of(items[-1]), cursor.public)
        return ListPage(b"[%b]" % b",".join(items), further)

    def start_after(self, digest: str) -> int | None:
        """The position behind the item whose key has this digest; None where there is none."""
        items = enumerate(_decode_list(self.listing), start=1)
        return next((behind for behind, item in items if self._digest_of(item) == digest), None)

    def _digest_of(self, item: Raw) -> str:
        return blake2b(_decode_item(item).get(self._key, b""), digest_size=16).hexdigest()


class Pagination:
    """The cursors that clients hold, and the lists that they walk through. A cursor is good for one list and for the
    client that it was given to."""

    def __init__(self, sealer: Sealer, *, page_items: int = PAGE_ITEMS, kept_lists: int = KEPT_LISTS) -> None:
        self._sealer = sealer
        self._page_items = page_items
        self._kept_lists = kept_lists
        self._numbers = count(1)
        self._kept: OrderedDict[int, ListPages] = OrderedDict()

    def begin(self, listing: bytes, key: str) -> ListPages:
        return ListPages(listing, key, next(self._numbers), self._page_items)

    def give(self, caller: Caller, name: str, pages: ListPages, cursor: Cursor) -> str:
        """The text for the client, good for as long as the process."""
        self._kept[pages.number] = pages
        self._kept.move_to_end(pages.number)
        if len(self._kept) > self._kept_lists:
            self._kept.popitem(last=False)
        return self._sealer.seal(_purpose(caller, name), msgspec.json.encode(cursor))

    def take(self, caller: Caller, name: str, text: str, now: ListPages) -> tuple[ListPages, Cursor] | None:
        """The list and the position in it that a cursor stands for; None for what we never gave to this client, and
        where the list has changed too much to go on."""
        payload = self._sealer.open(_purpose(caller, name), text)
        if payload is None:
            return None
        cursor = msgspec.json.decode(payload, type=Cursor)
        kept = now if now.number == cursor.number else self._kept.get(cursor.number)
        if kept is not None:
            return kept, cursor
        start = now.start_after(cursor.after)
        return None if start is None else (now, Cursor(now.number, start, cursor.after, cursor.public))


def _purpose(caller: Caller, name: str) -> str:
    return f"list {name} {caller.principal!r} {caller.session!r}"


# What is said beside a list: how long it holds, for whom, and which servers it does not show as they are now.
#
# Working it out means looking at every server, so it is kept until there is news of one.

_REFRESH_S: Final = 1.0
"""How often at most lists make us look for servers whose last word on them is old."""
_ANYBODY: Final = Caller()


class _Hints(NamedTuple):
    fresh_until: float
    public: bool


class ListMetadata:
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
        return b',"ttlMs":%d,"cacheScope":"%b","_meta":{%b%b%b}' % (ttl_ms, scope, SERVER_INFO_MEMBER, comma, missing)

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
