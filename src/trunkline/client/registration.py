"""Whether the gateway has taken the app: something to wait for, from coroutines and from threads."""

from __future__ import annotations

import asyncio
import concurrent.futures


class Registration:
    def __init__(self) -> None:
        self._future: concurrent.futures.Future[str] = concurrent.futures.Future()
        self.ever = False
        """Whether it was there once in this life."""

    @property
    def is_there(self) -> bool:
        return self._future.done() and self._future.exception() is None

    def given(self, server: str) -> None:
        self.ever = True
        if self.is_there:
            self.lost()
        self._future.set_result(server)

    def lost(self) -> None:
        """Who waits from now on waits for the next one."""
        if self._future.done():
            self._future = concurrent.futures.Future()

    def ended(self, reason: Exception) -> None:
        """There will be none any more; the first reason is the true one."""
        if self.is_there:
            self.lost()
        if not self._future.done():
            self._future.set_exception(reason)

    def begin(self) -> None:
        """A new life."""
        self.ever = False
        self.lost()

    async def wait(self) -> str:
        return await asyncio.shield(asyncio.wrap_future(self._future))

    def wait_in_thread(self, timeout_s: float) -> str:
        return self._future.result(timeout_s)
