"""The event loop, and what must be in order before it runs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def _fill_standard_descriptors() -> None:
    """Some launchers close them. A socket that then gets number 2 would receive our log."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def run(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run to the end on the fastest loop there is. What Ctrl+C does before this it does afterwards, too: a loop forgets
    whose handler it replaced."""
    _fill_standard_descriptors()
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    if os.environ.get("TRUNKLINE_LOOP") != "asyncio":
        with contextlib.suppress(ImportError):
            import uvloop

            factory = uvloop.new_event_loop
    before = signal.getsignal(signal.SIGINT)
    try:
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(main())
    finally:
        signal.signal(signal.SIGINT, before)
