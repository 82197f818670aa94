"""Notifies clients that a list has changed: only those that saw another version, and once for all changes made at about
the same time."""

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
from trunkline.runtime.safe_callbacks import call_safely

_SETTLE_S: Final = 0.05
_NOTIFICATIONS: Final[dict[str, tuple[ListType, ...]]] = {
    NOTIFICATIONS_TOOLS_LIST_CHANGED: (TOOLS,),
    NOTIFICATIONS_PROMPTS_LIST_CHANGED: (PROMPTS,),
    NOTIFICATIONS_RESOURCES_LIST_CHANGED: (RESOURCES, TEMPLATES),
}
_SHARED_LISTS: Final = (PROMPTS, RESOURCES, TEMPLATES)
"""The lists that are the same for all clients without a session."""
_ANYBODY: Final = Caller()
SentLists = dict[bytes, bytes]


class ListChangeNotifier:
    """Sends `list_changed` to sessions and listen streams shortly after the first of several changes."""

    def __init__(
        self, router: Router, visible: VisibleLists, sessions: AbstractSet[ClientSession], listen_streams: ListenStreams
    ) -> None:
        self._router = router
        self._visible = visible
        self._sessions = sessions
        self._listen_streams = listen_streams
        self._timer: asyncio.TimerHandle | None = None
        self._changed_twice = False
        """Whether a list may have changed and changed back since the last notification."""
        self._before: SentLists = {}
        """The shared lists at the last notification."""
        self._loop = asyncio.get_running_loop()
        router.registry.on_list_changed.append(self.list_changed)
        listen_streams.on_open = self._add_stream

    def add_session(self, session: ClientSession) -> None:
        """Count the present lists as sent to a new client."""
        self._mark_sent(session.last_sent, session.caller)

    def _add_stream(self, listen: ListenStream) -> None:
        """Count the present lists as sent, but for those that have just changed.

        Such a list the client may have seen before or after the change, so it must be notified, even if the list is in
        the end what it was before: the server that just came may have left again.
        """
        self._mark_sent(listen.last_sent, listen.caller)
        if self._timer is not None:
            for member, listing in listen.last_sent.items():
                if self._changed_twice or listing != self._before.get(member):
                    listen.last_sent[member] = b""

    def _mark_sent(self, last_sent: SentLists, caller: Caller, kinds: Iterable[ListType] = LIST_TYPES) -> None:
        for kind in kinds:
            last_sent[kind.member] = self._visible.listing(caller, kind)

    def list_changed(self) -> None:
        """Send notifications in a moment: servers tend to connect together."""
        if self._timer is None:
            self._timer = self._loop.call_later(_SETTLE_S, self._notify)
        else:
            self._changed_twice = True

    def _notify(self) -> None:
        self._timer = None
        self._changed_twice = False
        self._router.report_collisions()
        comparison = _ListComparison(self._visible)
        for session in list(self._sessions):
            call_safely("notifying a client", _notify_session, session, comparison)
        for listen in self._listen_streams.all():
            call_safely("notifying a client", _notify_stream, listen, comparison)
        self._mark_sent(self._before, _ANYBODY, _SHARED_LISTS)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class _ListComparison:
    """Compares the lists with what clients saw last: each pair once, as thousands of clients saw the same one.

    Lists are identified by `id()`, so those that were compared are kept alive.
    """

    def __init__(self, visible: VisibleLists) -> None:
        self._visible = visible
        self._differ: dict[tuple[int, int], bool] = {}
        self._kept: list[bytes] = []

    def since(self, last_sent: SentLists, caller: Caller) -> list[str]:
        """The notifications that are due; afterwards they count as sent."""
        return [method for method, kinds in _NOTIFICATIONS.items() if self._any_changed(last_sent, caller, kinds)]

    def _any_changed(self, last_sent: SentLists, caller: Caller, kinds: tuple[ListType, ...]) -> bool:
        changed = False
        for kind in kinds:
            listing = self._visible.listing(caller, kind)
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


def _notify_session(session: ClientSession, comparison: _ListComparison) -> None:
    if session.push is not None and session.initialized:
        for method in comparison.since(session.last_sent, session.caller):
            session.push(encode_notification(method))


def _notify_stream(listen: ListenStream, comparison: _ListComparison) -> None:
    for method in comparison.since(listen.last_sent, listen.caller):
        listen.list_changed(method)
