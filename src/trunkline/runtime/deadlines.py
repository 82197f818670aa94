"""Deadlines that allow for a stopped process: pipes and sockets are read before a late deadline takes effect.

After SIGCONT, or on a machine that was frozen or overloaded, every timer is due at once, and the event loop runs them
before it reads a single descriptor. The response that a deadline waits for may have been there for a long time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, TypeVar

LATE_S: Final = 0.1
"""A timer later than this is not just a little late: the event loop did not run."""
READ_FIRST_S: Final = 1.0
"""How much longer a late deadline waits for what arrived in time to be read."""

T = TypeVar("T")


class Deadline:
    """Calls `on_expired` after `seconds` unless cancelled; if late, it once waits a moment longer.

    Negative `seconds` say how long ago it was due.
    """

    __slots__ = ("_due", "_loop", "_on_expired", "_timer")

    def __init__(self, seconds: float, on_expired: Callable[[], object]) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_expired = on_expired
        self._due = self._loop.time() + seconds
        self._timer: asyncio.TimerHandle | None = self._loop.call_at(self._due, self._look)

    def cancel(self) -> None:
        self._on_expired = _do_nothing  # breaks a reference cycle with the owner
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        if self._loop.time() - self._due > LATE_S:
            self._timer = self._loop.call_later(READ_FIRST_S, self._end)
        else:
            self._end()

    def _end(self) -> None:
        self._timer = None  # breaks a reference cycle
        self._on_expired()


class TimeLimit:
    """Like `asyncio.timeout`, with a `Deadline`."""

    __slots__ = ("_deadline", "_seconds", "_timeout")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._timeout = asyncio.timeout(None)
        self._deadline: Deadline | None = None

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()
        self._deadline = Deadline(self._seconds, self._on_expired)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if self._deadline is not None:
            self._deadline.cancel()
        return await self._timeout.__aexit__(kind, error, trace)

    def expired(self) -> bool:
        return self._timeout.expired()

    def _on_expired(self) -> None:
        self._timeout.reschedule(asyncio.get_running_loop().time())


async def wait_first(awaited: Iterable[asyncio.Future[Any]], seconds: float) -> None:
    """Wait until one of the futures is done, or the deadline has passed."""
    with suppress(TimeoutError):
        async with TimeLimit(seconds):
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)


def settle(future: asyncio.Future[T], result: T) -> None:
    """Set the result of a future unless it has one, or was cancelled."""
    if not future.done():
        future.set_result(result)


def _do_nothing() -> None:
    """Replaces the callback of a cancelled deadline."""
