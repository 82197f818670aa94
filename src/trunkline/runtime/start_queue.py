"""Servers start in parallel, but not all at once: a hundred interpreters starting together help nobody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

AT_ONCE: Final = 16
LONGEST_TURN_S: Final = 5.0


class StartQueue:
    """A turn ends when the start does, or after a while: servers that hang must not hold up those behind them."""

    def __init__(self, at_once: int = AT_ONCE, longest_turn_s: float = LONGEST_TURN_S) -> None:
        self._places = asyncio.Semaphore(at_once)
        self._longest_turn_s = longest_turn_s

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[None, None]:
        await self._places.acquire()
        held = True

        def release() -> None:
            nonlocal held
            if held:
                held = False
                self._places.release()

        timer = asyncio.get_running_loop().call_later(self._longest_turn_s, release)
        try:
            yield
        finally:
            timer.cancel()
            release()
