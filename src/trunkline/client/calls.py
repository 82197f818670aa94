"""The calls that run: how many at once, what becomes of their result, and how one is cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from .errors import CallCancelled, ToolError
from .link import Link, TooLong
from .news import News
from .progress import Progress
from .threads import Starter, started
from .tool import Tool
from .values import NotJson, plain

MAX_WAITING: Final = 1_000
MAX_ERROR_CHARACTERS: Final = 10_000
CLOSE_DEADLINE_S: Final = 5.0
log = logging.getLogger(__package__)


class Slots:
    """How many calls of an app run at once. A function in a thread has its slot until it really ends."""

    def __init__(self, count: int, start: Starter) -> None:
        self._free = asyncio.Semaphore(count)
        self._start = start

    async def run(self, tool: Tool, arguments: dict[str, Any], progress: Progress) -> Any:
        await self._free.acquire()
        if tool.is_async:
            try:
                progress.enter()
                return await tool.function(**arguments)
            finally:
                self._free.release()
        return await self._run_elsewhere(partial(tool.function, **arguments), progress)

    async def _run_elsewhere(self, function: Callable[[], Any], progress: Progress) -> Any:
        progress.enter()
        try:
            running = started(function, self._start)
        except BaseException:
            self._free.release()
            raise
        running.add_done_callback(lambda _: self._free.release())
        result = await asyncio.shield(running)
        return await result if inspect.isawaitable(result) else result


class Calls:
    """Those of one connection. What is still running when that ends is cancelled: nobody would hear the answer."""

    def __init__(self, link: Link, slots: Slots) -> None:
        self._link = link
        self._slots = slots
        self._running: dict[Any, tuple[asyncio.Task[None], Progress]] = {}
        self._loop = asyncio.get_running_loop()

    def start(self, tool: Tool, correlation_id: Any, given: Any) -> None:
        if len(self._running) >= MAX_WAITING:
            self.fail(correlation_id, f"The app is busy: {MAX_WAITING:,} calls of it are open")
            return
        news = News(partial(self._show, correlation_id), lambda: self._link.is_congested)
        progress = Progress(news.post)
        task = self._loop.create_task(self._run(tool, correlation_id, given, progress))
        self._running[correlation_id] = (task, progress)
        task.add_done_callback(lambda _: self._running.pop(correlation_id, None))

    def cancel(self, correlation_id: Any) -> None:
        if found := self._running.get(correlation_id):
            task, progress = found
            progress.cancel()
            task.cancel()

    def fail(self, correlation_id: Any, message: str) -> None:
        self._link.post(_response(correlation_id, error=message))

    async def close(self) -> None:
        running = list(self._running.values())
        for task, progress in running:
            progress.cancel()
            task.cancel()
        if running:
            _, stubborn = await asyncio.wait({task for task, _ in running}, timeout=CLOSE_DEADLINE_S)
            for task in stubborn:
                log.warning("A tool does not end although it was cancelled: %r", task)

    async def _run(self, tool: Tool, correlation_id: Any, given: Any, progress: Progress) -> None:
        response = await self._outcome(tool, correlation_id, given, progress)
        with contextlib.suppress(OSError):  # the connection is gone, and so is the call
            try:
                await self._link.send(response)
            except TooLong as error:
                await self._link.send(_response(correlation_id, error=f"The result of `{tool.name}` {error}"))

    async def _outcome(self, tool: Tool, correlation_id: Any, given: Any, progress: Progress) -> dict[str, Any]:
        try:
            result = await self._slots.run(tool, tool.arguments(given, progress), progress)
            return _response(correlation_id, data=plain(result))
        except (ToolError, CallCancelled) as error:
            return _response(correlation_id, error=str(error) or f"`{tool.name}` failed")
        except NotJson as error:
            log.error("The result of tool `%s` cannot be sent: %s", tool.name, error)
            return _response(correlation_id, error=f"The result of `{tool.name}` cannot be sent: {error}")
        except asyncio.CancelledError:
            if progress.cancelled:
                raise
            return _response(correlation_id, error=f"`{tool.name}` was cancelled by the app")
        except Exception as error:
            log.exception("Tool `%s` failed", tool.name)
            return _response(correlation_id, error=_told(error))

    def _show(self, correlation_id: Any, said: dict[str, Any]) -> None:
        if correlation_id in self._running:
            self._link.post({"type": "toolProgress", "correlationId": correlation_id, **said})


def _told(error: Exception) -> str:
    """What an agent is told: the kind and the text, never a traceback."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _response(correlation_id: Any, *, data: Any = None, error: str | None = None) -> dict[str, Any]:
    result = {"success": error is None, "data": data, "error": error and error[:MAX_ERROR_CHARACTERS]}
    return {"type": "toolResponse", "correlationId": correlation_id, "result": result}
