"""One answer on its way in over HTTP, for whoever waits for its pieces in a task."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping

from trunkline.runtime.http_client import Exchange
from trunkline.runtime.overdue import Within


class Lost(Exception):
    """The connection failed, or the answer is no HTTP that we take."""

    def __init__(self, reason: str, *, final: bool) -> None:
        super().__init__(reason)
        self.final = final
        """Asking again would end the same way."""


class Incoming(Exchange):
    __slots__ = ("_ended", "_fault", "_pieces", "_wake", "headers", "status")

    def __init__(self, out: bytes) -> None:
        super().__init__(out)
        self.status = 0
        """0 until the head is there."""
        self.headers: Mapping[bytes, bytes] = {}
        self._pieces: deque[bytes] = deque()
        self._ended = False
        self._fault: Lost | None = None
        self._wake = asyncio.Event()

    async def head(self, timeout_s: float) -> int:
        """The status, once it is there. Raises Lost and TimeoutError."""
        async with Within(timeout_s):
            while not self.status:
                self._raise_fault()
                await self._news()
        return self.status

    async def piece(self, timeout_s: float) -> bytes:
        """What came next; nothing at the end. Raises Lost and TimeoutError."""
        async with Within(timeout_s):
            while not self._pieces:
                if self._ended:
                    return b""
                self._raise_fault()
                await self._news()
        return self._pieces.popleft()

    async def _news(self) -> None:
        self._wake.clear()
        await self._wake.wait()

    def _raise_fault(self) -> None:
        if self._fault is not None:
            raise self._fault

    # -- the pool -------------------------------------------------------------------------------------------------

    def on_head(self, status: int, headers: Mapping[bytes, bytes]) -> None:
        self.status, self.headers = status, headers
        self._wake.set()

    def on_body(self, data: bytes) -> None:
        self._pieces.append(data)
        self._wake.set()

    def on_end(self) -> None:
        self._ended = True
        self._wake.set()

    def on_fail(self, reason: str, *, too_large: bool = False, malformed: bool = False) -> None:
        self._fault = Lost(reason, final=too_large or malformed)
        self._wake.set()
