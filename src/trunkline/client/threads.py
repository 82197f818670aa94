"""Functions that are not coroutines: each runs in a thread, so that the event loop stays free.

The threads are daemons: a function that hangs does not keep the program from ending.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import Any

Job = Callable[[], None]
Starter = Callable[[Job], object]
"""Makes a job run somewhere else, soon: in a thread, or in a program's own main loop."""


def in_new_thread(job: Job) -> None:
    threading.Thread(target=job, name="trunkline-tool", daemon=True).start()


def started(function: Callable[[], Any], start: Starter) -> asyncio.Future[Any]:
    """The function's result, to be awaited. It runs on to its end even if nobody waits any more."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def job() -> None:
        try:
            result, error = context.run(function), None
        except BaseException as raised:  # also SystemExit: a tool does not end the program
            result, error = None, raised
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(_settle, done, result, error)

    start(job)
    return done


def _settle(done: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(result)
        return
    if not isinstance(error, Exception) or isinstance(error, StopIteration):  # which futures do not carry
        error = RuntimeError(f"the tool ended with {type(error).__name__}")
    done.set_exception(error)
    done.exception()  # looked at: a cancelled call's failure is nobody's
