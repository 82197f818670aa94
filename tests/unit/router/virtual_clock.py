"""An event loop whose time passes only when nothing else is left to do: minutes of waiting cost nothing."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any

import pytest

from trunkline.core import call as call_module
from trunkline.router import deadlines as deadlines_module
from trunkline.router import router as router_module
from trunkline.router import summary as summary_module


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
    with asyncio.Runner(loop_factory=ClockLoop) as runner:
        loop = runner.get_loop()
        monkeypatch.setattr(router_module, "monotonic", loop.time)
        monkeypatch.setattr(deadlines_module, "monotonic", loop.time)
        monkeypatch.setattr(summary_module, "monotonic", loop.time)
        monkeypatch.setattr(call_module, "monotonic", loop.time)
        runner.run(main)
