"""What a call reports on its way, brought from whatever thread it runs in to the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any, Final

from .values import plain

MAX_UNSENT: Final = 100


class News:
    """Of one call. Somebody who reports faster than it can be sent loses some of it, and costs no memory."""

    def __init__(self, send: Callable[[dict[str, Any]], None], is_congested: Callable[[], bool]) -> None:
        self._send = send
        self._is_congested = is_congested
        self._loop = asyncio.get_running_loop()
        self._home = threading.get_ident()
        self._unsent = 0
        self._lock = threading.Lock()

    def post(self, said: dict[str, Any]) -> None:
        written = plain(said)
        if self._is_congested():
            return
        if threading.get_ident() == self._home:
            self._send(written)  # at once: what the call comes to is sent after it
            return
        with self._lock:
            if self._unsent >= MAX_UNSENT:
                return
            self._unsent += 1
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._send_here, written)

    def _send_here(self, written: dict[str, Any]) -> None:
        with self._lock:
            self._unsent -= 1
        self._send(written)
