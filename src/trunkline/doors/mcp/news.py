"""News for clients: that a list has changed, once for all that changes in a moment, to those that saw it otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import Set as AbstractSet
from typing import Final

from trunkline.doors.mcp.conversation import Conversation
from trunkline.doors.mcp.subscriptions import Listens
from trunkline.router.router import Router
from trunkline.wire.jsonrpc import encode_notification
from trunkline.wire.mcp.incoming import LIST_CHANGED

_SETTLE_S: Final = 0.05


class News:
    def __init__(self, router: Router, conversations: AbstractSet[Conversation], listens: Listens) -> None:
        self._router = router
        self._conversations = conversations
        self._listens = listens
        self._telling: asyncio.TimerHandle | None = None
        self._told = router.catalog.listing
        self._loop = asyncio.get_running_loop()
        router.roster.on_list_changed.append(self._list_changed)

    def begin(self, conversation: Conversation) -> None:
        """A client that has just come need not be told what changed before."""
        conversation.told[b"tools"] = self._router.views.of(conversation.caller).listing

    def _list_changed(self) -> None:
        """Servers tend to come up together: one notification for all that changes in a moment."""
        if self._telling is None:
            self._telling = self._loop.call_later(_SETTLE_S, self._tell)

    def _tell(self) -> None:
        self._telling = None
        self._router.report_collisions()
        message = encode_notification(LIST_CHANGED)
        for conversation in list(self._conversations):
            listing = self._router.views.of(conversation.caller).listing
            if listing != conversation.told.get(b"tools") and conversation.push is not None:
                conversation.told[b"tools"] = listing
                conversation.push(message)
        before, self._told = self._told, self._router.catalog.listing
        if self._told != before:
            self._listens.tools_changed()

    def close(self) -> None:
        if self._telling is not None:
            self._telling.cancel()
