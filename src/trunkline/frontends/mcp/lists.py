"""The lists that clients request: what each client sees, cached results, pages, and the members beside a list."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from hashlib import blake2b
from itertools import count
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Raw

from trunkline.core.call import Caller
from trunkline.core.errors import INVALID_PARAMS, Problem
from trunkline.core.signing import TokenSigner
from trunkline.core.tool import ListName
from trunkline.frontends.mcp.initialize import SERVER_INFO_MEMBER
from trunkline.frontends.mcp.requests import RequestContext, own_result, refuse, respond_later, text_or_none
from trunkline.protocol.jsonrpc import decode_list, decode_members, encode
from trunkline.protocol.mcp.methods import PROMPTS_LIST, RESOURCES_LIST, RESOURCES_TEMPLATES_LIST, TOOLS_LIST
from trunkline.protocol.mcp.translation import downgraded_tools
from trunkline.router.aggregation import INCOMPLETE, incomplete_sources, list_cache_hints
from trunkline.router.catalog import Catalog
from trunkline.router.router import Router
from trunkline.search.listing import ClientListing


class ListType(NamedTuple):
    """One of the four lists: its name, the member of the result that holds it, and the member that names an item."""

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
    """The lists as each client sees them: JSON arrays, each the same object until it changes."""

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
        """Whether the list is a short one that may be this client's alone."""
        return kind is TOOLS and self._listing.searches(caller)

    def varies(self, caller: Caller, kind: ListType) -> bool:
        """Whether clients see different items in it, and each may change its own."""
        return kind is TOOLS and self._listing.varies(caller)


class ListHandler:
    """Responds to the four list methods.

    Nearly every list fits on one page and does not change between two requests: its result is cached.
    """

    def __init__(self, router: Router, visible: VisibleLists, signer: TokenSigner) -> None:
        self._router = router
        self._visible = visible
        self._metadata = ListMetadata(router)
        self._pagination = Pagination(signer)
        self._cached: WeakKeyDictionary[Catalog, dict[ListType, ListPages]] = WeakKeyDictionary()

    def handle(self, context: RequestContext) -> None:
        kind = _BY_METHOD[context.message.method or ""]
        self._metadata.note_listing(kind.name)
        self._router.when_published(lambda: respond_later(context.responder, self._respond, context, kind))

    def _respond(self, context: RequestContext, kind: ListType) -> None:
        pages = self._pages_for(context, kind)
        if "cursor" in context.params:
            cursor = text_or_none(context.params, "cursor")
            found = None if cursor is None else self._pagination.resolve(context.caller, kind.name, cursor, pages)
            if found is None:
                problem = Problem(code=INVALID_PARAMS, message="Unknown `cursor`", hint="list again from the start")
                refuse(context.responder, problem)
            else:
                self._respond_page(context, kind, *found)
            return
        if context.session is not None:
            context.session.last_sent[kind.member] = pages.listing
        if not pages.is_one_page:
            public = self._metadata.is_public(kind.name) and not self._visible.varies(context.caller, kind)
            self._respond_page(context, kind, pages, Cursor(pages.number, 0, "", public))
            return
        rest = self._rest(context, kind)
        version = context.caller.version
        cached = pages.results.get(version)
        if cached is None or cached[0] != rest:
            cached = pages.results[version] = (rest, _result(context, kind, pages.listing, rest))
        context.responder.result(own_result(cached[1]))

    def _pages_for(self, context: RequestContext, kind: ListType) -> ListPages:
        catalog = self._router.views.of(context.caller)
        listing = self._visible.listing(context.caller, kind)
        if self._visible.is_own(context.caller, kind):
            return self._pagination.begin(listing, kind.key)
        of_catalog = self._cached.setdefault(catalog, {})
        pages = of_catalog.get(kind)
        if pages is None or pages.listing is not listing:
            pages = of_catalog[kind] = self._pagination.begin(listing, kind.key)
        return pages

    def _rest(self, context: RequestContext, kind: ListType, *, public: bool | None = None) -> bytes:
        """The members of the result after the list."""
        if context.session is not None:
            return self._metadata.legacy()
        if self._visible.varies(context.caller, kind):
            return self._metadata.modern(kind.name, public=False, lasts=False)
        return self._metadata.modern(kind.name, public=public)

    def _respond_page(self, context: RequestContext, kind: ListType, pages: ListPages, cursor: Cursor) -> None:
        page = pages.page(cursor)
        rest = self._rest(context, kind, public=cursor.public)
        if page.next is not None:
            further = encode(self._pagination.issue(context.caller, kind.name, pages, page.next))
            rest = b',"nextCursor":%b%b' % (further, rest)
        context.responder.result(own_result(_result(context, kind, page.items, rest)))


def _result(context: RequestContext, kind: ListType, items: bytes, rest: bytes) -> bytes:
    if context.session is None:
        return b'{"resultType":"complete","%b":%b%b}' % (kind.member, items, rest)
    downgraded = downgraded_tools(items, context.caller.version) if kind is TOOLS else items
    return b'{"%b":%b%b}' % (kind.member, downgraded, rest)


# -- pages ------------------------------------------------------------------------------------------------------------

PAGE_ITEMS: Final = 5000
"""Many clients never ask for a second page, so the first one holds whatever is realistic."""
KEPT_LISTS: Final = 16


class Cursor(msgspec.Struct, array_like=True):
    """Where a page begins: the list's number, a position in it, and a digest of the key of the item before.

    `public` says whether caches may share the pages; all pages of a list say the same.
    """

    number: int
    start: int
    after: str
    public: bool


class ListPage(NamedTuple):
    """A JSON array, and where the next one begins."""

    items: bytes
    next: Cursor | None


class ListPages:
    """One list as it was at one moment; `key` is the member that names an item."""

    __slots__ = ("_key", "_page_items", "is_one_page", "listing", "number", "results")

    def __init__(self, listing: bytes, key: str, number: int, page_items: int) -> None:
        self.listing = listing
        self.number = number
        self.results: dict[str, tuple[bytes, bytes]] = {}
        """For each protocol version the members after the list, and the result made with them last."""
        self._key = key
        self._page_items = page_items
        self.is_one_page = len(decode_list(listing)) <= page_items

    def page(self, cursor: Cursor) -> ListPage:
        everything = decode_list(self.listing)
        items = everything[cursor.start : cursor.start + self._page_items]
        end = cursor.start + len(items)
        further: Cursor | None = None
        if items and end < len(everything):
            further = Cursor(self.number, end, self._digest_of(items[-1]), cursor.public)
        return ListPage(b"[%b]" % b",".join(items), further)

    def start_after(self, digest: str) -> int | None:
        """The position after the item whose key has this digest; None if there is none."""
        items = enumerate(decode_list(self.listing), start=1)
        return next((position for position, item in items if self._digest_of(item) == digest), None)

    def _digest_of(self, item: Raw) -> str:
        return blake2b(decode_members(item).get(self._key, b""), digest_size=16).hexdigest()


class Pagination:
    """Issues and resolves cursors: each is signed for one list and one client.

    A client pages through a list as it was when it began, so that a change neither hides nor repeats an item. Only so
    many lists are kept for that: a client that takes too long goes on after the last item it saw, in the present list.
    """

    def __init__(self, signer: TokenSigner, *, page_items: int = PAGE_ITEMS, kept_lists: int = KEPT_LISTS) -> None:
        self._signer = signer
        self._page_items = page_items
        self._kept_lists = kept_lists
        self._numbers = count(1)
        self._kept: OrderedDict[int, ListPages] = OrderedDict()

    def begin(self, listing: bytes, key: str) -> ListPages:
        return ListPages(listing, key, next(self._numbers), self._page_items)

    def issue(self, caller: Caller, name: str, pages: ListPages, cursor: Cursor) -> str:
        """The cursor as text for the client, valid as long as this process runs."""
        self._kept[pages.number] = pages
        self._kept.move_to_end(pages.number)
        if len(self._kept) > self._kept_lists:
            self._kept.popitem(last=False)
        return self._signer.sign(_purpose(caller, name), msgspec.json.encode(cursor))

    def resolve(self, caller: Caller, name: str, text: str, now: ListPages) -> tuple[ListPages, Cursor] | None:
        """The list and the position that a cursor stands for.

        None for one that was not issued to this client, and if the list has changed too much to go on.
        """
        payload = self._signer.verify(_purpose(caller, name), text)
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


# -- the members beside a list ----------------------------------------------------------------------------------------

_REFRESH_S: Final = 1.0
"""How often at most a request for a list makes the router ask servers whose last answer is old."""
_ANYBODY: Final = Caller()


class _CacheHints(NamedTuple):
    fresh_until: float
    public: bool


class ListMetadata:
    """What a result says beside a list: how long it is fresh, for whom, and which servers are missing in it.

    Working that out means looking at every server, so it is kept until one changes.
    """

    def __init__(self, router: Router) -> None:
        self._router = router
        self._time = asyncio.get_running_loop().time
        self._hints: dict[ListName, _CacheHints] = {}
        self._incomplete: bytes | None = None
        self._refreshed_at: dict[ListName, float] = {}
        self._servers = 0
        router.registry.on_source_changed.insert(0, self._forget)  # before the requests that wait for it
        router.registry.on_list_changed.append(self._forget)

    def note_listing(self, name: ListName) -> None:
        """A client lists this: servers whose last answer is old are asked again."""
        now = self._time()
        if now >= self._refreshed_at.get(name, 0.0) + _REFRESH_S:
            self._refreshed_at[name] = now
            self._router.note_listing(name)

    def legacy(self) -> bytes:
        """The members after the list for a legacy client, each with a comma before it."""
        missing = self._missing()
        return b',"_meta":{%b}' % missing if missing else b""

    def modern(self, name: ListName, *, public: bool | None = None, lasts: bool = True) -> bytes:
        """The members after the list for a modern client.

        `public` is given if an earlier page settled it; `lasts` is false for a list that its client may change.
        """
        missing = self._missing()
        hints = self._hints_of(name)
        ttl_ms = max(0, int((hints.fresh_until - self._time()) * 1000)) if lasts else 0
        scope = b"public" if (hints.public if public is None else public) else b"private"
        comma = b"," if missing else b""
        return b',"ttlMs":%d,"cacheScope":"%b","_meta":{%b%b%b}' % (ttl_ms, scope, SERVER_INFO_MEMBER, comma, missing)

    def is_public(self, name: ListName) -> bool:
        return self._hints_of(name).public

    def _hints_of(self, name: ListName) -> _CacheHints:
        hints = self._hints.get(name)
        if hints is None:
            ttl_ms, public = list_cache_hints(self._router.registry, _ANYBODY, name)
            hints = self._hints[name] = _CacheHints(self._time() + ttl_ms / 1000, public)
        return hints

    def _missing(self) -> bytes:
        """The member of `_meta` that names servers whose items are missing or old; empty when there are none."""
        if self._servers != len(self._router.admissions):  # a new one causes no event before it answers
            self._servers = len(self._router.admissions)
            self._forget()
        if self._incomplete is None:
            servers = incomplete_sources(self._router.registry)
            self._incomplete = b"%b:%b" % (encode(INCOMPLETE), encode(servers)) if servers else b""
        return self._incomplete

    def _forget(self) -> None:
        self._hints.clear()
        self._incomplete = None
