"""The signals that end a run: the first one in an orderly way and within a deadline, a second one at once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Generator
from contextlib import contextmanager
from time import monotonic
from typing import Final

INTERRUPTED: Final = 130
ORDERLY_S: Final = 4.0
"""What has not ended by then is left to the supervisors, which end everything as soon as we are gone."""
_ALL_S: Final = 4.8
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupt:
    """Whether the run is to end early. `came` is done with the name of the signal once one has come."""

    def __init__(self) -> None:
        self.came: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._at = 0.0

    @property
    def signal(self) -> str:
        """The name of the signal that came, empty while none has."""
        return self.came.result() if self.came.done() else ""

    @property
    def left_s(self) -> float | None:
        """How long whatever is left to do may take; None while no signal has come."""
        return max(0.0, self._at + _ALL_S - monotonic()) if self.came.done() else None

    def strike(self, number: int) -> None:
        if self.came.done():
            os._exit(INTERRUPTED)
        self._at = monotonic()
        self.came.set_result(signal.Signals(number).name)


@contextmanager
def listening() -> Generator[Interrupt, None, None]:
    """Signals interrupt the run while this lasts, but for those that we were started to ignore, as `nohup` does it."""
    interrupt = Interrupt()
    loop = asyncio.get_running_loop()
    heard = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    for number in heard:
        loop.add_signal_handler(number, interrupt.strike, number)
    try:
        yield interrupt
    finally:
        for number in heard:
            loop.remove_signal_handler(number)
