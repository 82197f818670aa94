"""Turns signals into interrupts: the first ends a run in an orderly way within a deadline, a second one at once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from time import monotonic
from typing import Any, Final, TypeVar

from trunkline.core.errors import STEP_INTERRUPTED, GatewayError, Problem
from trunkline.runtime.process_setup import unignored_signals

INTERRUPTED: Final = 130
ORDERLY_S: Final = 4.0
"""What has not ended by then is left to the supervisors, which end everything once this process is gone."""
_ALL_S: Final = 4.6
_REPORT_S: Final = 0.5
"""After a second signal, to report how the run ended."""
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
T = TypeVar("T")


class Interrupt:
    """A request to end the run early. `received` gets the name of the first signal; `second` is done on another one,
    after which nothing is waited for any more."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.received: asyncio.Future[str] = self._loop.create_future()
        self.second: asyncio.Future[None] = self._loop.create_future()
        self._at = 0.0

    @property
    def signal(self) -> str:
        """The name of the first signal; empty while there was none."""
        return self.received.result() if self.received.done() else ""

    @property
    def left_s(self) -> float | None:
        """The time left for cleaning up; None while there was no signal."""
        return max(0.0, self._at + _ALL_S - monotonic()) if self.received.done() else None

    def on_signal(self, number: int) -> None:
        if self.second.done():
            os._exit(INTERRUPTED)
        if self.received.done():
            self.second.set_result(None)
            self._at = monotonic() - _ALL_S
            self._loop.call_later(_REPORT_S, os._exit, INTERRUPTED)
            return
        self._at = monotonic()
        self.received.set_result(signal.Signals(number).name)

    async def until_ended(self, task: asyncio.Task[Any]) -> None:
        """Wait for a task to end. On a signal, or if this is cancelled, the task is cancelled; it is not done
        afterwards if it did not end within the time for an orderly end."""
        try:
            await asyncio.wait({task, self.received}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task, self.second}, timeout=ORDERLY_S, return_when=asyncio.FIRST_COMPLETED)

    async def run(self, work: Coroutine[Any, Any, T], name: str | None = None) -> asyncio.Task[T]:
        """Run `work` in a task until that ends; on a signal it is cancelled. Work that does not end then ends with this
        process, and the supervisors end the rest."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        await self.until_ended(task)
        if not task.done():
            os._exit(INTERRUPTED)
        return task


@contextmanager
def interrupt_on_signals() -> Generator[Interrupt, None, None]:
    """An interrupt that signals trigger while this lasts."""
    interrupt = Interrupt()
    with handle_signals(interrupt.on_signal):
        yield interrupt


@contextmanager
def handle_signals(on_signal: Callable[[int], None]) -> Generator[None, None, None]:
    """Call `on_signal` for all signals that end a process, except those that we were started to ignore, as with
    `nohup`. None is lost: one that the loop had no time left to deliver is delivered at the end."""
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    handled = unignored_signals(*_SIGNALS)
    received: set[int] = set()
    delivered: set[int] = set()

    def note(number: int, _frame: object) -> None:
        received.add(number)

    def deliver(number: int) -> None:
        delivered.add(number)
        on_signal(number)

    for number in handled:
        loop.add_signal_handler(number, deliver, number)
        signal.signal(number, note)  # replaces asyncio's empty handler; the loop is woken all the same
    try:
        yield
    finally:
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, handled)
        for number in handled:
            loop.remove_signal_handler(number)
            signal.signal(number, before[number] or signal.SIG_DFL)  # asyncio does not restore earlier handlers
        for number in received - delivered:
            on_signal(number)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


async def unless_interrupted(work: Coroutine[Any, Any, T]) -> T | None:
    """The result of `work`, or None if a signal came before its end."""
    with interrupt_on_signals() as interrupt:
        task = await interrupt.run(work)
    if not interrupt.signal:
        return task.result()
    if not task.cancelled():
        task.exception()  # retrieved, or asyncio would log it
    return None


# Sessions: while a person talks with an agent, Ctrl+C belongs to the agent; every other signal ends the session.

_IMPATIENT_AFTER: Final = 3
_GRACE_S: Final = 1.0
"""For a headless agent to end by the Ctrl+C that it received as well."""


class SessionSignals:
    """The signals of a session. `pressed`: Ctrl+C came while the agent had the terminal, so it received that as well.
    The loop gets a signal even while its handler is an empty one, as with an agent in the foreground."""

    def __init__(self) -> None:
        self.interrupt = Interrupt()
        self.pressed = False
        self._with_agent = self._headless = False
        self._grace: asyncio.TimerHandle | None = None
        self._status: int | None = None
        self._late = 0

    @contextmanager
    def agent_has_terminal(self, *, headless: bool) -> Generator[None, None, None]:
        """In a conversation, Ctrl+C is the agent's business. A headless agent has to end by it."""
        self._with_agent, self._headless = True, headless
        try:
            yield
        finally:
            self._with_agent = False
            if self._grace is not None:
                self._grace.cancel()

    def agent_ended(self, status: int) -> None:
        """Only cleaning up is left: a Ctrl+C too many changes nothing, but after several the process ends at once."""
        self._status = status

    def on_signal(self, number: int) -> None:
        if number != signal.SIGINT:
            self.interrupt.on_signal(number)
        elif self._with_agent:
            self._on_ctrl_c_with_agent(number)
        elif self._status is None:
            self.interrupt.on_signal(number)
        else:
            self._late += 1
            if self._late == _IMPATIENT_AFTER:
                os._exit(self._status)

    def _on_ctrl_c_with_agent(self, number: int) -> None:
        again, self.pressed = self.pressed, True
        if self._headless and again:
            self.interrupt.on_signal(number)
        elif self._headless:

            def grace_is_over() -> None:
                if not self.interrupt.received.done():
                    self.interrupt.on_signal(number)

            self._grace = asyncio.get_running_loop().call_later(_GRACE_S, grace_is_over)

    async def unless_interrupted(self, work: Coroutine[Any, Any, T], what: str) -> T:
        """The result of `work`. Raises GatewayError if a signal ended it."""
        task = await self.interrupt.run(work, what)
        if task.cancelled():
            raise GatewayError(interrupted_problem(what, self.interrupt.signal))
        return task.result()


def interrupted_problem(what: str, name: str) -> Problem:
    message = f"Interrupted by {name}: `{what}` and everything it started were stopped"
    return Problem(code=STEP_INTERRUPTED, message=message, where=what)
