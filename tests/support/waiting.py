"""How long a test waits: the one source of every limit.

Nothing is ever asserted to be quick. A limit is there so that what never happens is reported, not waited for; it is far
more than anything needs. `TEST_ROOM=5` makes all of them five times as long, for a machine that is busy.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
ROOM = float(os.environ.get("TEST_ROOM") or 1)


def at_most(seconds: float) -> float:
    """A limit for something that takes far less on a quiet machine, widened as this run asks."""
    return seconds * ROOM


PATIENCE_S = at_most(15)
"""For one thing to happen."""
START_WAIT_S = min(at_most(30), 60.0)
"""For servers to start, with their libraries: the gateway's own `start_wait`, which is at most a minute."""
TEST_LIMIT_S = 120.0
"""For one test, unless it is marked with another `timeout`; before room is made (`limit_of`)."""


def limit_of(marked: float | None) -> float:
    """How long a test may take that is marked so."""
    return at_most(marked or TEST_LIMIT_S)


def wait_until(look: Callable[[], T], what: str, seconds: float = 15) -> T:
    """Look until there is something true to return."""
    deadline = time.monotonic() + at_most(seconds)
    while not (seen := look()):
        if time.monotonic() > deadline:
            raise AssertionError(f"did not happen within {at_most(seconds):g} s: {what}")
        time.sleep(0.01)
    return seen


async def until(look: Callable[[], T | Awaitable[T]], what: str, seconds: float = 15) -> T:
    """The same for tests on an event loop; `look` may be a coroutine function."""
    deadline = time.monotonic() + at_most(seconds)
    while True:
        seen = look()
        if isinstance(seen, Awaitable):
            seen = await seen
        if seen:
            return seen
        if time.monotonic() > deadline:
            raise AssertionError(f"did not happen within {at_most(seconds):g} s: {what}")
        await asyncio.sleep(0.01)
