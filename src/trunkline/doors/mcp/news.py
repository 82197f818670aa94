"""News for clients: that a list has changed, once for all that changes in a moment, to those that saw it otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import Set as AbstractSet
from typing import Final

from trunkline.doors.mcp.conversation import Conversation
from trunkline.doors.mcp.lists import KINDS, PROMPTS, RESOURCES, TEMPLATES, TOOLS, Kind, listing_of
from trunkline.doors.mcp.subscriptions import Listens
from trunkline.router.catalog import Catalog
from trunkline.router.router import Router
from trunkline.wire.jsonrpc import encode_notification
from trunkline.wire.mcp.incoming import LIST_CHANGED, PROMPTS_CHANGED, RESOURCES_CHANGED

_SETTLE_S: Final = 0.05
_NEWS: Final[dict[str, tuple[Kind, ...]]] = {
    LIST_CHANGED: (TOOLS,),
    PROMPTS_CHANGED: (PROMPTS,),
    RESOURCES_CHANGED: (RESOURCES, TEMPLATES),
}
Told = dict[bytes, bytes]


class News:
    def __init__(self, router: Router, conversations: AbstractSet[Conversation], listens: Listens) -> None:
        self._router = router
        self._conversations = conversations
        self._listens = listens
        self._telling: asyncio.TimerHandle | None = None
        self._told: Told = {}
        _note(self._told, router.catalog)
        self._loop = asyncio.get_running_loop()
        router.roster.on_list_changed.append(self._list_changed)

    def begin(self, conversation: Conversation) -> None:
        """A client that has just come need not be told what changed before."""
        _note(conversation.told, self._router.views.of(conversation.caller))

    def _list_changed(self) -> None:
        """Servers tend to come up together: one notification for all that changes in a moment."""
        if self._telling is None:
            self._telling = self._loop.call_later(_SETTLE_S, self._tell)

    def _tell(self) -> None:
        self._telling = None
        self._router.report_collisions()
        changes = _Changes()
        for conversation in list(self._conversations):
            if conversation.push is not None and conversation.greeted:
                catalog = self._router.views.of(conversation.caller)
                for method in changes.since(conversation.told, catalog):
                    conversation.push(encode_notification(method))
        for method in changes.since(self._told, self._router.catalog):
            self._listens.list_changed(method)

    def close(self) -> None:
        if self._telling is not None:
            self._telling.cancel()


def _note(told: Told, catalog: Catalog) -> None:
    for kind in KINDS:
        told[kind.member] = listing_of(catalog, kind)


class _Changes:
    """Compares lists with what clients saw last. Thousands of clients saw the same one: each pair is compared once.

    Lists are told apart by identity; those that were compared are held, so that no other can come to have the same.
    """

    def __init__(self) -> None:
        self._differ: dict[tuple[int, int], bool] = {}
        self._kept: list[bytes] = []

    def since(self, told: Told, catalog: Catalog) -> list[str]:
        """The notifications that are due; afterwards the client counts as told."""
        return [method for method, kinds in _NEWS.items() if self._any_changed(told, catalog, kinds)]

    def _any_changed(self, told: Told, catalog: Catalog, kinds: tuple[Kind, ...]) -> bool:
        changed = False
        for kind in kinds:
            listing = listing_of(catalog, kind)
            changed |= self._changed(told.get(kind.member, b""), listing)
            told[kind.member] = listing
        return changed

    def _changed(self, before: bytes, now: bytes) -> bool:
        if before is now:
            return False
        pair = (id(before), id(now))
        differ = self._differ.get(pair)
        if differ is None:
            differ = self._differ[pair] = before != now
            self._kept += (before, now)
        return differ
