"""The lists that clients ask for: everything the servers offer, as far as it is known at this moment.

Nearly every list fits on one page and does not change between two requests: its answer is kept, ready to be sent.
"""

from __future__ import annotations

from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from trunkline.core.call import Caller
from trunkline.core.errors import INVALID_PARAMS, Problem
from trunkline.core.seal import Sealer
from trunkline.core.tool import ListName
from trunkline.frontends.mcp.answer import answered_later, refuse, result_of_ours
from trunkline.frontends.mcp.asked import Asked
from trunkline.frontends.mcp.list_notes import ListNotes
from trunkline.frontends.mcp.list_pages import Cursor, ListPages, Walks
from trunkline.protocol.jsonrpc import BadMessage, encode, text_member
from trunkline.protocol.mcp.translation import downgraded_tools
from trunkline.router.catalog import Catalog
from trunkline.router.router import Router
from trunkline.search.disclosure import Disclosure


class Kind(NamedTuple):
    """One of the four lists: the member of the result that holds it, and the member that tells its items apart."""

    name: ListName
    member: bytes
    key: str


TOOLS: Final = Kind("tools", b"tools", "name")
PROMPTS: Final = Kind("prompts", b"prompts", "name")
RESOURCES: Final = Kind("resources", b"resources", "uri")
TEMPLATES: Final = Kind("templates", b"resourceTemplates", "uriTemplate")
KINDS: Final = (TOOLS, PROMPTS, RESOURCES, TEMPLATES)
_BY_METHOD: Final = {
    "tools/list": TOOLS,
    "prompts/list": PROMPTS,
    "resources/list": RESOURCES,
    "resources/templates/list": TEMPLATES,
}


class Shown:
    """What a client is shown of each list: a JSON array, ready-made, and the same object until it changes."""

    def __init__(self, router: Router, disclosure: Disclosure) -> None:
        self._router = router
        self._disclosure = disclosure

    def listing(self, caller: Caller, kind: Kind) -> bytes:
        if kind is TOOLS:
            return self._disclosure.listing(caller)
        catalog = self._router.views.of(caller)
        if kind is PROMPTS:
            return catalog.prompts.listing
        return catalog.resources.listing if kind is RESOURCES else catalog.resources.template_listing

    def is_own(self, caller: Caller, kind: Kind) -> bool:
        """Whether it is a short one that may be this client's alone."""
        return kind is TOOLS and self._disclosure.searches(caller)

    def varies(self, caller: Caller, kind: Kind) -> bool:
        """Whether clients see different things in it, and one by its own doing another thing a moment later."""
        return kind is TOOLS and self._disclosure.varies(caller)


class _Ready:
    """A list as it is now, and for each version of clients the last answer that was made of it."""

    __slots__ = ("answers", "pages")

    def __init__(self, pages: ListPages) -> None:
        self.pages = pages
        self.answers: dict[str, tuple[bytes, bytes]] = {}


class Lists:
    def __init__(self, router: Router, shown: Shown, sealer: Sealer) -> None:
        self._router = router
        self._shown = shown
        self._notes = ListNotes(router)
        self._walks = Walks(sealer)
        self._ready: WeakKeyDictionary[Catalog, dict[Kind, _Ready]] = WeakKeyDictionary()

    def give(self, asked: Asked) -> None:
        kind = _BY_METHOD[asked.message.method or ""]
        self._notes.listed(kind.name)
        self._router.when_listed(lambda: answered_later(asked.answer, self._give, asked, kind))

    def _give(self, asked: Asked, kind: Kind) -> None:
        ready = self._ready_for(asked, kind)
        if "cursor" in asked.params:
            self._give_further(asked, kind, ready.pages)
            return
        if asked.conversation is not None:
            asked.conversation.told[kind.member] = ready.pages.listing
        if not ready.pages.is_one_page:
            public = self._notes.is_public(kind.name) and not self._shown.varies(asked.caller, kind)
            self._give_page(asked, kind, ready.pages, Cursor.of_start(ready.pages, public))
            return
        rest = self._rest(asked, kind)
        version = asked.caller.version
        known = ready.answers.get(version)
        if known is None or known[0] != rest:
            known = ready.answers[version] = (rest, _result(asked, kind, ready.pages.listing, rest))
        asked.answer.result(result_of_ours(known[1]))

    def _ready_for(self, asked: Asked, kind: Kind) -> _Ready:
        catalog = self._router.views.of(asked.caller)
        listing = self._shown.listing(asked.caller, kind)
        if self._shown.is_own(asked.caller, kind):
            return _Ready(self._walks.begin(listing, kind.key))
        of_catalog = self._ready.setdefault(catalog, {})
        ready = of_catalog.get(kind)
        if ready is None or ready.pages.listing is not listing:
            ready = of_catalog[kind] = _Ready(self._walks.begin(listing, kind.key))
        return ready

    def _rest(self, asked: Asked, kind: Kind, *, public: bool | None = None) -> bytes:
        if not asked.modern:
            return self._notes.legacy()
        if self._shown.varies(asked.caller, kind):
            return self._notes.modern(kind.name, public=False, lasts=False)
        return self._notes.modern(kind.name, public=public)

    def _give_further(self, asked: Asked, kind: Kind, now: ListPages) -> None:
        try:
            cursor = text_member(asked.params, "cursor")
        except BadMessage:
            cursor = None
        found = None if cursor is None else self._walks.take(asked.caller, kind.name, cursor, now)
        if found is None:
            problem = Problem(code=INVALID_PARAMS, message="Unknown `cursor`", hint="list again from the start")
            refuse(asked.answer, problem)
        else:
            self._give_page(asked, kind, *found)

    def _give_page(self, asked: Asked, kind: Kind, pages: ListPages, cursor: Cursor) -> None:
        page = pages.page(cursor)
        rest = self._rest(asked, kind, public=cursor.public)
        if page.next is not None:
            further = encode(self._walks.give(asked.caller, kind.name, pages, page.next))
            rest = b',"nextCursor":%b%b' % (further, rest)
        asked.answer.result(result_of_ours(_result(asked, kind, page.items, rest)))


def _result(asked: Asked, kind: Kind, items: bytes, rest: bytes) -> bytes:
    if asked.modern:
        return b'{"resultType":"complete","%b":%b%b}' % (kind.member, items, rest)
    shown = downgraded_tools(items, asked.caller.version) if kind is TOOLS else items
    return b'{"%b":%b%b}' % (kind.member, shown, rest)
