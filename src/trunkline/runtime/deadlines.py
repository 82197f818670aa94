"""Deadlines of a process that may be stopped: what lies in pipes and sockets is read before a late one strikes.

After SIGCONT, or on a machine that was frozen or starved, every timer is due at once, and the event loop runs them
before it has looked at a single descriptor. The answer that a deadline waits for may have been there for long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import TracebackType
from typing import Any, Final

LATE_S: Final = 0.1
"""A timer that is later than this was not late for want of a moment: the loop did not run."""
READ_FIRST_S: Final = 1.0
"""What a late deadline gives to whoever met it in time."""


class Deadline:
    """Calls `strike` after so many seconds, unless it is cancelled. Late it waits a moment longer, once.

    Less than no seconds is how long ago it was due.
    """

    __slots__ = ("_due", "_loop", "_strike", "_timer")

    def __init__(self, seconds: float, strike: Callable[[], object]) -> None:
        self._loop = asyncio.get_running_loop()
        self._strike = strike
        self._due = self._loop.time() + seconds
        self._timer: asyncio.TimerHandle | None = self._loop.call_at(self._due, self._look)

    def cancel(self) -> None:
        self._strike = _nothing  # it may lead to whoever holds this
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        if self._loop.time() - self._due > LATE_S:
            self._timer = self._loop.call_later(READ_FIRST_S, self._end)
        else:
            self._end()

    def _end(self) -> None:
        self._timer = None  # it leads back here
        self._strike()


class Within:
    """As `asyncio.timeout`, by such a deadline."""

    __slots__ = ("_deadline", "_seconds", "_timeout")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._timeout = asyncio.timeout(None)
        self._deadline: Deadline | None = None

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()
        self._deadline = Deadline(self._seconds, self._strike)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if self._deadline is not None:
            self._deadline.cancel()
        return await self._timeout.__aexit__(kind, error, trace)

    def expired(self) -> bool:
        return self._timeout.expired()

    def _strike(self) -> None:
        self._timeout.reschedule(asyncio.get_running_loop().time())


async def first_of(awaited: Iterable[asyncio.Future[Any]], seconds: float) -> None:
    """Until one of them is done, or until such a deadline."""
    with suppress(TimeoutError):
        async with Within(seconds):
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)


def _nothing() -> None:
    """What a deadline does that was cancelled."""
