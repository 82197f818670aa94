"""Waiting for something that will happen, with a deadline: the only place where tests sleep."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
PATIENCE_S = 15.0
"""Far more than anything needs on a busy machine; nothing is ever asserted to be quick."""


def wait_until(look: Callable[[], T], what: str, seconds: float = PATIENCE_S) -> T:
    """Look until there is something true to return."""
    deadline = time.monotonic() + seconds
    while not (seen := look()):
        if time.monotonic() > deadline:
            raise AssertionError(f"did not happen within {seconds:g} s: {what}")
        time.sleep(0.01)
    return seen


async def until(look: Callable[[], T | Awaitable[T]], what: str, seconds: float = PATIENCE_S) -> T:
    """The same for tests on an event loop; `look` may be a coroutine function."""
    deadline = time.monotonic() + seconds
    while True:
        seen = look()
        if isinstance(seen, Awaitable):
            seen = await seen
        if seen:
            return seen
        if time.monotonic() > deadline:
            raise AssertionError(f"did not happen within {seconds:g} s: {what}")
        await asyncio.sleep(0.02)
