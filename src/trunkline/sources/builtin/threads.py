"""The few threads in which one source does what may block."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_MOST: Final = 8
_LEAVE_S: Final = 5.0


class Threads:
    """Started when first needed; whoever awaits and is cancelled leaves the work to end by itself."""

    def __init__(self, name: str, most: int = _MOST) -> None:
        self._pool = ThreadPoolExecutor(most, thread_name_prefix=f"trunkline-{name}")
        self._running: set[Future[Any]] = set()

    async def run(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        future = self._pool.submit(work, *args, **kwargs)
        self._running.add(future)
        future.add_done_callback(self._running.discard)
        return await asyncio.wrap_future(future)

    async def close(self) -> None:
        """Nothing new begins; what is under way gets a moment to end."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        running = [asyncio.wrap_future(future) for future in list(self._running)]
        if running:
            await asyncio.wait(running, timeout=_LEAVE_S)
        for future in running:
            if not future.cancel() and not future.cancelled():
                future.exception()  # seen, so that nobody complains of it: whoever wanted to know is gone
