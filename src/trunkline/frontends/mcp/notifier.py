"""News for clients: that a list has changed, once for all that changes in a moment, to those that saw it otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Final

from trunkline.core.call import Caller
from trunkline.frontends.mcp.clients import ClientSession
from trunkline.frontends.mcp.listen import ListenStream, ListenStreams
from trunkline.frontends.mcp.lists import LIST_TYPES, PROMPTS, RESOURCES, TEMPLATES, TOOLS, ListType, VisibleLists
from trunkline.protocol.jsonrpc import encode_notification
from trunkline.protocol.mcp.methods import (
    NOTIFICATIONS_PROMPTS_LIST_CHANGED,
    NOTIFICATIONS_RESOURCES_LIST_CHANGED,
    NOTIFICATIONS_TOOLS_LIST_CHANGED,
)
from trunkline.router.router import Router
from trunkline.runtime.safe_calls import call_safely

_SETTLE_S: Final = 0.05
_NEWS: Final[dict[str, tuple[ListType, ...]]] = {
    NOTIFICATIONS_TOOLS_LIST_CHANGED: (TOOLS,),
    NOTIFICATIONS_PROMPTS_LIST_CHANGED: (PROMPTS,),
    NOTIFICATIONS_RESOURCES_LIST_CHANGED: (RESOURCES, TEMPLATES),
}
_ALIKE: Final = (PROMPTS, RESOURCES, TEMPLATES)
"""The lists that are the same for everybody without a session."""
_ANYBODY: Final = Caller()
LastSent = dict[bytes, bytes]


class ListChangeNotifier:
    def __init__(
        self, router: Router, shown: VisibleLists, sessions: AbstractSet[ClientSession], listen_streams: ListenStreams
    ) -> None:
        self._router = router
        self._shown = shown
        self._sessions = sessions
        self._listen_streams = listen_streams
        self._telling: asyncio.TimerHandle | None = None
        self._changed_twice = False
        """Whether a list may have been, since the last word about it, something else than before and now."""
        self._before: LastSent = {}
        """What everybody was told last of the lists that are alike for all."""
        self._loop = asyncio.get_running_loop()
        router.registry.on_list_changed.append(self.list_changed)
        listen_streams.on_open = self._begin_listen

    def begin(self, session: ClientSession) -> None:
        """A client that has just come need not be told what changed before."""
        self._note(session.last_sent, session.caller)

    def _begin_listen(self, listen: ListenStream) -> None:
        """Where there are news just now, it may have seen a list before or after they came, and must hear of it.

        Also if it is, in the end, what it was before: the server that just came may leave at once, or has left.
        """
        self._note(listen.last_sent, listen.caller)
        if self._telling is not None:
            for member, listing in listen.last_sent.items():
                if self._changed_twice or listing != self._before.get(member):
                    listen.last_sent[member] = b""

    def _note(self, last_sent: LastSent, caller: Caller, kinds: Iterable[ListType] = LIST_TYPES) -> None:
        for kind in kinds:
            last_sent[kind.member] = self._shown.listing(caller, kind)

    def list_changed(self) -> None:
        """Servers tend to come up together: one notification for all that changes in a moment."""
        if self._telling is None:
            self._telling = self._loop.call_later(_SETTLE_S, self._tell)
        else:
            self._changed_twice = True

    def _tell(self) -> None:
        self._telling = None
        self._changed_twice = False
        self._router.report_collisions()
        changes = _Changes(self._shown)
        for session in list(self._sessions):
            call_safely("news for a client", _tell_conversation, session, changes)
        for listen in self._listen_streams.all():
            call_safely("news for a client", _tell_listen, listen, changes)
        self._note(self._before, _ANYBODY, _ALIKE)

    def close(self) -> None:
        if self._telling is not None:
            self._telling.cancel()


class _Changes:
    """Compares lists with what clients saw last. Thousands of clients saw the same one: each pair is compared once.

    Lists are told apart by identity; those that were compared are held, so that no other can come to have the same.
    """

    def __init__(self, shown: VisibleLists) -> None:
        self._shown = shown
        self._differ: dict[tuple[int, int], bool] = {}
        self._kept: list[bytes] = []

    def since(self, last_sent: LastSent, caller: Caller) -> list[str]:
        """The notifications that are due; afterwards the client counts as told."""
        return [method for method, kinds in _NEWS.items() if self._any_changed(last_sent, caller, kinds)]

    def _any_changed(self, last_sent: LastSent, caller: Caller, kinds: tuple[ListType, ...]) -> bool:
        changed = False
        for kind in kinds:
            listing = self._shown.listing(caller, kind)
            changed |= self._changed(last_sent.get(kind.member, b""), listing)
            last_sent[kind.member] = listing
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


def _tell_conversation(session: ClientSession, changes: _Changes) -> None:
    if session.push is not None and session.initialized:
        for method in changes.since(session.last_sent, session.caller):
            session.push(encode_notification(method))


def _tell_listen(listen: ListenStream, changes: _Changes) -> None:
    for method in changes.since(listen.last_sent, listen.caller):
        listen.list_changed(method)
