"""The signals that end a run: the first one in an orderly way and within a deadline, a second one at once, but not
without a word."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from time import monotonic
from typing import Any, Final, TypeVar

from trunkline.core.errors import STEP_INTERRUPTED, GatewayError, Problem
from trunkline.runtime.heeded import heeded

INTERRUPTED: Final = 130
ORDERLY_S: Final = 4.0
"""What has not ended by then is left to the supervisors, which end everything as soon as we are gone."""
_ALL_S: Final = 4.6
_LAST_WORDS_S: Final = 0.5
"""After a second signal, to tell how the run ended."""
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
T = TypeVar("T")


class Interrupt:
    """Whether the run is to end early. `received` is done with the name of the signal once one has come, `second` once
    there was another, so that nothing is waited for any more."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.received: asyncio.Future[str] = self._loop.create_future()
        self.second: asyncio.Future[None] = self._loop.create_future()
        self._at = 0.0

    @property
    def signal(self) -> str:
        """The name of the signal that came, empty while none has."""
        return self.received.result() if self.received.done() else ""

    @property
    def left_s(self) -> float | None:
        """How long whatever is left to do may take; None while no signal has come."""
        return max(0.0, self._at + _ALL_S - monotonic()) if self.received.done() else None

    def on_signal(self, number: int) -> None:
        if self.second.done():
            os._exit(INTERRUPTED)
        if self.received.done():
            self.second.set_result(None)
            self._at = monotonic() - _ALL_S
            self._loop.call_later(_LAST_WORDS_S, os._exit, INTERRUPTED)
            return
        self._at = monotonic()
        self.received.set_result(signal.Signals(number).name)

    async def ended_in_time(self, task: asyncio.Task[Any]) -> bool:
        """Cancel a task; whether it has ended before the patience with it is over."""
        task.cancel()
        await asyncio.wait({task, self.second}, timeout=ORDERLY_S, return_when=asyncio.FIRST_COMPLETED)
        return task.done()


@contextmanager
def interrupt_on_signals() -> Generator[Interrupt, None, None]:
    """Signals interrupt the run while this lasts."""
    interrupt = Interrupt()
    with handle_signals(interrupt.on_signal):
        yield interrupt


@contextmanager
def handle_signals(on_signal: Callable[[int], None]) -> Generator[None, None, None]:
    """All signals that end something, but for those that we were started to ignore, as `nohup` does it. None is lost:
    one that the loop has no time left to hear strikes at the end."""
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    heard = heeded(*_SIGNALS)
    received: set[int] = set()
    told: set[int] = set()

    def note(number: int, _frame: object) -> None:
        received.add(number)

    def hear(number: int) -> None:
        told.add(number)
        on_signal(number)

    for number in heard:
        loop.add_signal_handler(number, hear, number)
        signal.signal(number, note)  # in place of one that does nothing: the loop is woken all the same
    try:
        yield
    finally:
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, heard)
        for number in heard:
            loop.remove_signal_handler(number)
            signal.signal(number, before[number] or signal.SIG_DFL)  # the loop knows no handlers but its own
        for number in received - told:
            on_signal(number)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


async def unless_interrupted(work: Coroutine[Any, Any, T]) -> T | None:
    """What it returns; None where a signal came before its end. It is over then, or else left to the end of this
    process."""
    with interrupt_on_signals() as interrupt:
        task = asyncio.get_running_loop().create_task(work)
        await asyncio.wait({task, interrupt.received}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done() and not await interrupt.ended_in_time(task):
            os._exit(INTERRUPTED)
    if not interrupt.signal:
        return task.result()
    if not task.cancelled():
        task.exception()  # nobody asks for it any more, and asyncio would tell of it
    return None


# The signals of a session: while somebody talks with an agent, Ctrl+C is the agent's; all others end the session.

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

    def on_signal(self, number: int) -> None:
        if number != signal.SIGINT:
            self.interrupt.on_signal(number)
        elif self._with_agent:
            self._struck_with_agent(number)
        elif self._status is None:
            self.interrupt.on_signal(number)
        else:
            self._late += 1
            if self._late == _ENOUGH:
                os._exit(self._status)

    def _struck_with_agent(self, number: int) -> None:
        again, self.pressed = self.pressed, True
        if self._works_alone and again:
            self.interrupt.on_signal(number)
        elif self._works_alone:
            loop = asyncio.get_running_loop()
            self._patience = loop.call_later(_GRACE_S, self._out_of_patience, number)

    def _out_of_patience(self, number: int) -> None:
        if not self.interrupt.received.done():
            self.interrupt.on_signal(number)

    async def unless_interrupted(self, work: Coroutine[Any, Any, T], what: str) -> T:
        """Do this, unless a signal comes: then it is cancelled, and GatewayError says so. Should it not end, we do, and
        the supervisors end the rest."""
        task = asyncio.get_running_loop().create_task(work, name=what)
        try:
            await asyncio.wait({task, self.interrupt.received}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not task.done():
                await self.interrupt.ended_in_time(task)
        if not task.done():
            os._exit(INTERRUPTED)
        if task.cancelled():
            raise GatewayError(interrupted_problem(what, self.interrupt.signal))
        return task.result()


@contextmanager
def handle_session_signals() -> Generator[SessionSignals, None, None]:
    """The loop hears a signal also while its handler is one that does nothing, as that of an agent in the foreground:
    that is how Ctrl+C is known then."""
    signals = SessionSignals()
    with handle_signals(signals.on_signal):
        yield signals


def interrupted_problem(what: str, name: str) -> Problem:
    message = f"{name} came: `{what}` and everything that it started were ended"
    return Problem(code=STEP_INTERRUPTED, message=message, where=what)
