"""Functions that are tools are called: plain ones in threads, so that a slow one never blocks the event loop.

The threads are daemons: a function that never returns does not keep the program from ending.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final

from .results import CallCancelled, ToolError, error_text

Job = Callable[[], None]
Starter = Callable[[Job], object]
"""Makes a job run somewhere else, soon: in a thread, or in a program's own main loop."""
_Outcome = tuple[Any, BaseException | None]
_Deliver = Callable[[_Outcome], None]
_Job = tuple[str, Callable[[], _Outcome], _Deliver]
_IDLE_S: Final = 10.0


class FunctionThreads:
    """Runs at most `limit` functions at once, in threads that are kept for the next ones; further ones wait. With
    `start` they run where that says."""

    def __init__(self, limit: int, start: Starter | None = None) -> None:
        self.slots = asyncio.Semaphore(limit)
        """One for each function that runs. Coroutines that count as well take one with `async with`."""
        self._start = start
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._idle = 0

    async def call(self, function: Callable[[], Any], name: str, *, is_async: bool) -> Any:
        """Call a function, plain or `async`; return or raise what it does."""
        value = function() if is_async else await self.run(function, name)
        # a decorator may have made a plain function of one that is none
        return await value if inspect.isawaitable(value) else value

    async def call_tool(self, function: Callable[[], Any], name: str, *, is_async: bool, log: logging.Logger) -> Any:
        """Call a tool. Whatever goes wrong is raised as ToolError, with words for the caller, who waits for an
        answer whatever the function does."""
        try:
            return await self.call(function, f"tool {name}", is_async=is_async)
        except (ToolError, CallCancelled) as error:
            raise ToolError(str(error) or f"`{name}` failed") from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():  # it is meant for this call, not raised by something it awaits
                raise
            raise ToolError(f"`{name}` was cancelled by something that it waited for") from None
        except (KeyboardInterrupt, GeneratorExit):  # the whole program is being ended, not this call alone
            raise
        except BaseException as error:  # a tool that calls `sys.exit` has failed too, and others go on
            log.error("Tool `%s` failed", name, exc_info=error)
            raise ToolError(error_text(error)) from None

    async def run(self, function: Callable[[], Any], name: str) -> Any:
        """Run a function in a thread, which has this `name` meanwhile; return or raise what it does. Cancelling this
        wait does not stop the function, which keeps its slot until it ends."""
        await self.slots.acquire()
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()

        def settle(outcome: _Outcome) -> None:
            self.slots.release()
            if done.cancelled():
                return
            value, error = outcome
            if error is not None:
                done.set_exception(error)
            else:
                done.set_result(value)

        job = partial(contextvars.copy_context().run, partial(_outcome_of, function))
        try:
            self._start_job(name, job, partial(call_in_loop, loop, settle))
        except BaseException:
            self.slots.release()
            raise
        return await done

    def close(self) -> None:
        """End the threads. One that is busy ends after its function."""
        with self._lock:
            for _ in range(self._threads):
                self._jobs.put(None)

    def _start_job(self, name: str, job: Callable[[], _Outcome], deliver: _Deliver) -> None:
        if self._start is not None:
            self._start(lambda: deliver(job()))
            return
        with self._lock:
            if self._idle:
                self._idle -= 1
            else:
                threading.Thread(target=self._work, daemon=True).start()
                self._threads += 1
        self._jobs.put((name, job, deliver))

    def _work(self) -> None:
        thread = threading.current_thread()
        while taken := self._next_job():
            thread.name, job, deliver = taken
            outcome = job()
            with self._lock:
                self._idle += 1  # before the outcome is known, so that the next function finds this thread
            deliver(outcome)
            del taken, job, deliver, outcome  # what a call holds is not kept until the next one

    def _next_job(self) -> _Job | None:
        while True:
            try:
                return self._jobs.get(timeout=_IDLE_S)
            except Empty:
                with self._lock:
                    if self._idle:  # otherwise a job is on its way to this thread
                        self._idle -= 1
                        self._threads -= 1
                        return None


def _outcome_of(function: Callable[[], Any]) -> _Outcome:
    try:
        return function(), None
    except (StopIteration, GeneratorExit, KeyboardInterrupt) as stray:
        # A future cannot carry the first, and the others would end more than this call.
        return None, RuntimeError(f"the function raised {type(stray).__name__}")
    except BaseException as error:
        return None, error


def call_in_loop(loop: asyncio.AbstractEventLoop, callback: Callable[..., object], *arguments: Any) -> None:
    """Have the loop call it, from any thread; dropped once the loop is closed, as nobody is waiting any more."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(callback, *arguments)


def is_in(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether this is the loop's own thread."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def is_async(function: Callable[..., Any]) -> bool:
    """Whether it is a coroutine function, or an object whose `__call__` is one."""
    call = getattr(function, "__call__", None)  # noqa: B004  (looked at, not asked for)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)
