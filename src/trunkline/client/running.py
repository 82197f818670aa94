"""An app in a thread of its own, seen from a program that has no event loop."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Final

from .life import Life
from .registration import Registration

STOP_DEADLINE_S: Final = 10.0
log = logging.getLogger(__package__)


class Running:
    """What `run_in_thread` returns. `stop` it, or use it in a `with`; it also ends with the program."""

    def __init__(self, app_name: str, life: Life, registration: Registration) -> None:
        self.error: Exception | None = None
        """Why it ended by itself, where it did."""
        self._app_name = app_name
        self._life = life
        self._registration = registration
        self._thread = threading.Thread(target=self._run, name=f"trunkline-app-{app_name}", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def wait_until_registered(self, timeout_s: float = 30.0) -> str:
        """The app's name among the gateway's servers. Raises Refused, or TimeoutError when it takes longer."""
        try:
            return self._registration.wait_in_thread(timeout_s)
        except TimeoutError:
            raise TimeoutError(f"`{self._app_name}` was not registered within {timeout_s:g} s") from None

    def stop(self, timeout_s: float = STOP_DEADLINE_S) -> None:
        """Disconnect and end the thread."""
        self._life.stop()
        if threading.current_thread() is self._thread:
            return  # a tool of ours ends us: nothing to wait for
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise TimeoutError(f"`{self._app_name}` did not stop within {timeout_s:g} s")

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            asyncio.run(self._life.run())
        except Exception as error:
            self.error = error
            log.error("`%s` is not connected any more: %s", self._app_name, error)
