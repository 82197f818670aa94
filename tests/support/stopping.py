"""An event loop that can be stopped as a process is by SIGSTOP, without stopping the tests."""

from __future__ import annotations

import asyncio
import selectors
import time


class _Descriptors(selectors.DefaultSelector):
    stop_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if not self.stop_s:
            return super().select(timeout)
        time.sleep(self.stop_s)
        self.stop_s = 0.0
        return []  # a wait that is over is not begun again, so that nothing is read before the timers


class StoppingLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._descriptors = _Descriptors()
        super().__init__(self._descriptors)

    def stop_for(self, seconds: float) -> None:
        """When it next waits, it does so for this long, and then sees the time before it sees anything else."""
        self._descriptors.stop_s = seconds


def running() -> StoppingLoop:
    """The one that this test runs on."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, StoppingLoop)
    return loop
