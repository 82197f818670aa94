"""What one client's own server offers: listed again for that client alone when that server says that it changed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from trunkline.core.errors import GatewayError
from trunkline.core.tool import Snapshot
from trunkline.links.mcp.handshake import Session
from trunkline.links.mcp.lane import Lane
from trunkline.links.mcp.listing import fetch_snapshot

RELIST_PAUSE_S: Final = 0.25
"""Between two lists of one server at least, and as long as the last one took: some announce changes all the time."""


class ClientLists:
    def __init__(self, source: str, publish_for: Callable[[str, Snapshot | None], None]) -> None:
        self._source = source
        self._publish_for = publish_for
        self._listings: dict[Lane, asyncio.Task[None]] = {}
        self._stale: set[Lane] = set()

    def changed(self, client: str, session: Session) -> None:
        self._stale.add(session.lane)
        if session.lane not in self._listings:
            listing = self._list(client, session)
            self._listings[session.lane] = asyncio.get_running_loop().create_task(listing)

    async def _list(self, client: str, session: Session) -> None:
        """One list at a time: whatever is announced meanwhile is one more list afterwards."""
        lane = session.lane
        try:
            while lane in self._stale and lane.usable:
                self._stale.discard(lane)
                began = time.monotonic()
                await self._list_once(client, session)
                await asyncio.wait([lane.lost], timeout=max(RELIST_PAUSE_S, time.monotonic() - began))
        finally:
            self._stale.discard(lane)
            del self._listings[lane]

    async def _list_once(self, client: str, session: Session) -> None:
        try:
            snapshot = await fetch_snapshot(session, self._source)
        except (GatewayError, TimeoutError):
            return  # it keeps the list it had; a lane that is gone takes its list with it
        if session.lane.usable:
            self._publish_for(client, snapshot)

    async def close(self) -> None:
        tasks = list(self._listings.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
