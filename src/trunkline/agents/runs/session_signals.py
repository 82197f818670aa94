"""The signals of a session: while somebody talks with an agent, Ctrl+C is the agent's; all others end the session."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from trunkline.agents.runs.interrupt import INTERRUPTED, Interrupt, heard_by
from trunkline.core.errors import STEP_INTERRUPTED, GatewayError, Problem

T = TypeVar("T")
_ENOUGH: Final = 3
_GRACE_S: Final = 1.0
"""For an agent that works by itself to end by a Ctrl+C that it got as well."""


class SessionSignals:
    """`pressed` says whether Ctrl+C came while the agent had the terminal: it got that as well."""

    def __init__(self) -> None:
        self.interrupt = Interrupt()
        self.pressed = False
        self._with_agent = self._works_alone = False
        self._patience: asyncio.TimerHandle | None = None
        self._status: int | None = None
        self._late = 0

    @contextmanager
    def agent_has_terminal(self, *, works_alone: bool) -> Generator[None, None, None]:
        """To somebody who talks with an agent Ctrl+C is a word among others. One that works alone has to end by it."""
        self._with_agent, self._works_alone = True, works_alone
        try:
            yield
        finally:
            self._with_agent = False
            if self._patience is not None:
                self._patience.cancel()

    def agent_ended(self, status: int) -> None:
        """What is left is cleaning up: whoever pressed Ctrl+C once too often to leave the agent changes nothing, and
        whoever does not want to wait is not kept."""
        self._status = status

    def strike(self, number: int) -> None:
        if number != signal.SIGINT:
            self.interrupt.strike(number)
        elif self._with_agent:
            self._struck_with_agent(number)
        elif self._status is None:
            self.interrupt.strike(number)
        else:
            self._late += 1
            if self._late == _ENOUGH:
                os._exit(self._status)

    def _struck_with_agent(self, number: int) -> None:
        again, self.pressed = self.pressed, True
        if self._works_alone and again:
            self.interrupt.strike(number)
        elif self._works_alone:
            loop = asyncio.get_running_loop()
            self._patience = loop.call_later(_GRACE_S, self._out_of_patience, number)

    def _out_of_patience(self, number: int) -> None:
        if not self.interrupt.came.done():
            self.interrupt.strike(number)

    async def unless_interrupted(self, work: Coroutine[Any, Any, T], what: str) -> T:
        """Do this, unless a signal comes: then it is cancelled, and GatewayError says so. Should it not end, we do, and
        the supervisors end the rest."""
        task = asyncio.get_running_loop().create_task(work, name=what)
        try:
            await asyncio.wait({task, self.interrupt.came}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not task.done():
                await self.interrupt.ended_in_time(task)
        if not task.done():
            os._exit(INTERRUPTED)
        if task.cancelled():
            raise GatewayError(interrupted(what, self.interrupt.signal))
        return task.result()


@contextmanager
def listening_beside() -> Generator[SessionSignals, None, None]:
    """The loop hears a signal also while its handler is one that does nothing, as that of an agent in the foreground:
    that is how Ctrl+C is known then."""
    signals = SessionSignals()
    with heard_by(signals.strike):
        yield signals


def interrupted(what: str, name: str) -> Problem:
    message = f"{name} came: `{what}` and everything that it started were ended"
    return Problem(code=STEP_INTERRUPTED, message=message, where=what)
