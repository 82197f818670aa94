"""A long list, page by page: where the next page begins is for the client to hand back, sealed.

Whoever has begun a list walks through it as it was then, so that a change in between neither hides nor repeats an
item. Only so many lists are kept for that; a walk that took too long goes on after the item it saw last, in the list
as it is now.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from itertools import count
from typing import Any, Final, NamedTuple, cast

import msgspec
from msgspec import Raw

from trunkline.core.call import Caller
from trunkline.core.seal import Sealer

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


class Page(NamedTuple):
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

    def page(self, cursor: Cursor) -> Page:
        everything = _decode_list(self.listing)
        items = everything[cursor.start : cursor.start + self._page_items]
        end = cursor.start + len(items)
        further: Cursor | None = None
        if items and end < len(everything):
            further = Cursor(self.number, end, self._digest_of(items[-1]), cursor.public)
        return Page(b"[%b]" % b",".join(items), further)

    def start_after(self, digest: str) -> int | None:
        """The position behind the item whose key has this digest; None where there is none."""
        items = enumerate(_decode_list(self.listing), start=1)
        return next((behind for behind, item in items if self._digest_of(item) == digest), None)

    def _digest_of(self, item: Raw) -> str:
        return blake2b(_decode_item(item).get(self._key, b""), digest_size=16).hexdigest()


class Walks:
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
