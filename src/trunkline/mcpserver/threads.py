"""Handlers that are plain functions: each call runs in a thread, so that a slow one holds nobody up.

The threads are daemons: a function that never returns keeps neither the server nor the interpreter from ending.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any


class Threads:
    """At most so many at once; further calls wait for their turn."""

    def __init__(self, limit: int) -> None:
        self._free = asyncio.Semaphore(limit)

    async def run(self, work: Callable[[], Any], name: str) -> Any:
        """What `work` returns or raises. Cancelling this wait does not stop the work, and its place is taken until it
        ends."""
        await self._free.acquire()
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()

        def settle(value: Any, error: BaseException | None) -> None:
            self._free.release()
            if done.cancelled():
                return
            if error is not None:
                done.set_exception(error)
            else:
                done.set_result(value)

        def body() -> None:
            value, error = None, None
            try:
                value = work()
            except (StopIteration, GeneratorExit, KeyboardInterrupt) as stray:
                # The first a future cannot carry, and the others would end more than this call.
                error = RuntimeError(f"{type(stray).__name__}: {stray}")
            except BaseException as raised:
                error = raised
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(settle, value, error)

        thread = threading.Thread(target=contextvars.copy_context().run, args=(body,), name=name, daemon=True)
        try:
            thread.start()
        except BaseException:
            self._free.release()
            raise
        return await done
