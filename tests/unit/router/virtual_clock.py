"""An event loop whose time passes only when nothing else is left to do: minutes of waiting cost nothing."""

from __future__ import annotations

import asyncio
import selectors
import sys
import time
from collections.abc import Coroutine
from typing import Any

import pytest


class _NoWaiting(selectors.DefaultSelector):
    loop: ClockLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout:
            self.loop.now += timeout
        return ready


class ClockLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.now = 1000.0
        selector = _NoWaiting()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.now


def run_with_clock(monkeypatch: pytest.MonkeyPatch, main: Coroutine[Any, Any, None]) -> None:
    """Whatever of the gateway looks at the clock sees that of the loop."""
    with asyncio.Runner(loop_factory=ClockLoop) as runner, monkeypatch.context() as patched:
        loop = runner.get_loop()
        for name, module in list(sys.modules.items()):
            if name.startswith("trunkline.") and getattr(module, "monotonic", None) is time.monotonic:
                patched.setattr(module, "monotonic", loop.time)
        runner.run(main)
