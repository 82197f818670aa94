"""Plain functions run in threads, so that a slow one never blocks the event loop.

The threads are daemons: a function that never returns does not keep the program from ending.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

Job = Callable[[], None]
Starter = Callable[[Job], object]
"""Makes a job run somewhere else, soon: in a thread, or in a program's own main loop."""


class WorkerThreads:
    """Runs at most `limit` functions at once; further ones wait. By itself each gets a new thread; `start` may run them
    somewhere else."""

    def __init__(self, limit: int, start: Starter | None = None) -> None:
        self.slots = asyncio.Semaphore(limit)
        """One for each function that runs. Coroutines that count as well take one with `async with`."""
        self._start = start

    async def run(self, function: Callable[[], Any], name: str) -> Any:
        """What the function returns or raises. Cancelling this wait does not stop the function, which keeps its slot
        until it ends."""
        await self.slots.acquire()
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()

        def settle(value: Any, error: BaseException | None) -> None:
            self.slots.release()
            if done.cancelled():
                return
            if error is not None:
                done.set_exception(error)
            else:
                done.set_result(value)

        def job() -> None:
            value, error = None, None
            try:
                value = function()
            except (StopIteration, GeneratorExit, KeyboardInterrupt) as stray:
                # A future cannot carry the first, and the others would end more than this call.
                error = RuntimeError(f"the function raised {type(stray).__name__}")
            except BaseException as raised:
                error = raised
            call_in_loop(loop, settle, value, error)

        try:
            self._start_job(partial(contextvars.copy_context().run, job), name)
        except BaseException:
            self.slots.release()
            raise
        return await done

    def _start_job(self, job: Job, name: str) -> None:
        if self._start is None:
            threading.Thread(target=job, name=name, daemon=True).start()
        else:
            self._start(job)


def call_in_loop(loop: asyncio.AbstractEventLoop, callback: Callable[..., object], *arguments: Any) -> None:
    """Have the loop call it, from any thread; dropped once the loop is closed, as nobody is waiting any more."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(callback, *arguments)


def is_async(function: Callable[..., Any]) -> bool:
    """Whether it is a coroutine function, or an object whose `__call__` is one."""
    call = getattr(function, "__call__", None)  # noqa: B004  (looked at, not asked for)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def is_being_cancelled() -> bool:
    """Whether a CancelledError is meant for the running task, rather than raised by something that it awaits."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
