"""The signals that end a run: the first one in an orderly way and within a deadline, a second one at once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

INTERRUPTED: Final = 130
ORDERLY_S: Final = 4.0
"""What has not ended by then is left to the supervisors, which end everything as soon as we are gone."""
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupt:
    """Whether the run is to end early. `came` is done with the name of the signal once one has come."""

    def __init__(self) -> None:
        self.came: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @property
    def signal(self) -> str:
        """The name of the signal that came, empty while none has."""
        return self.came.result() if self.came.done() else ""

    def strike(self, number: int) -> None:
        if self.came.done():
            os._exit(INTERRUPTED)
        self.came.set_result(signal.Signals(number).name)


@contextmanager
def listening() -> Generator[Interrupt, None, None]:
    """Signals interrupt the run while this lasts, whichever of them comes."""
    interrupt = Interrupt()
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, interrupt.strike, number)
    try:
        yield interrupt
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
