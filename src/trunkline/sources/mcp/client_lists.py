"""What one client's own server offers: listed for that client alone when that server says that it changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from trunkline.core.tool import Snapshot
from trunkline.sources.mcp.handshake import Session
from trunkline.sources.mcp.lane import Lane
from trunkline.sources.mcp.offer import Offer


class ClientLists:
    def __init__(self, source: str, publish_for: Callable[[str, Snapshot | None], None]) -> None:
        self._source = source
        self._publish_for = publish_for
        self._offers: dict[Lane, Offer] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def changed(self, client: str, session: Session, method: str) -> None:
        offer = self._offers.get(session.lane)
        if offer is None:
            offer = self._offers[session.lane] = Offer(session, self._source, partial(self._publish_for, client))
            session.lane.lost.add_done_callback(lambda _: self._drop(session.lane))
        offer.changed(method)

    def _drop(self, lane: Lane) -> None:
        offer = self._offers.pop(lane, None)
        if offer is not None:
            closing = asyncio.get_running_loop().create_task(offer.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        for lane in list(self._offers):
            self._drop(lane)
        if self._closing:
            await asyncio.wait(self._closing)
