"""Running one question to its end: Ctrl+C, and errors as every command shows them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

import click

from trunkline.cli.client.interface import GatewayClient, open_client
from trunkline.cli.client.target import LocalTarget, RemoteTarget, find_target
from trunkline.cli.spinner import Spinner, spinning
from trunkline.cli.terminal import complain
from trunkline.core.call import Outcome
from trunkline.core.errors import GatewayError
from trunkline.runtime.own_process import run_event_loop, unignored_signals

T = TypeVar("T")
INTERRUPTED: Final = 130

Question = Callable[[GatewayClient, Spinner], Awaitable[T]]
Show = Callable[[T], int]
"""Prints an answer; what it returns is the exit status."""


def run_with_client(
    question: Question[T],
    show: Show[T],
    config: Path | None,
    url: str | None,
    *,
    only: str = "",
    what: str = "asking",
    taken_back: str = "",
) -> NoReturn:
    """Ask, show the answer, and end the program; whatever goes wrong ends it with a message and its exit status.

    `only` names the tool that it is about, `what` what is waited for at first, `taken_back` what Ctrl+C has done.
    """
    waiting = Spinner(what)
    try:
        whom = find_target(config, url)
        status = run_event_loop(lambda: _until_interrupted(_answer(question, show, whom, waiting, only), waiting))
    except GatewayError as error:
        status = report(error)
    except asyncio.CancelledError:
        click.echo(f"interrupted{f': {taken_back}' if taken_back and not waiting.answered else ''}", err=True)
        status = INTERRUPTED
    sys.exit(status)


async def _answer(
    question: Question[T], show: Show[T], whom: RemoteTarget | LocalTarget, waiting: Spinner, only: str
) -> int:
    """The answer is shown before servers that were started for it are ended: that may take a while."""
    async with AsyncExitStack() as stack:
        async with spinning(waiting):
            desk = await stack.enter_async_context(open_client(whom, waiting.say, only=only))
            answer = await question(desk, waiting)
        waiting.answered = True
        return show(answer)


async def _until_interrupted(work: Coroutine[Any, Any, T], waiting: Spinner) -> T:
    """Ctrl+C takes back what was asked, here and at the gateway; once more ends the program at once."""
    loop = asyncio.get_running_loop()
    task = loop.create_task(work)
    presses = 0

    def pressed() -> None:
        nonlocal presses
        presses += 1
        if presses > 1:
            waiting.clear()
            os._exit(INTERRUPTED)
        waiting.say("interrupted: ending what was begun")
        task.cancel()

    for number in unignored_signals(signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, pressed)
    return await task


def report(error: GatewayError) -> int:
    """Show a problem as every command does; the exit status it owns."""
    problem = error.problem
    where = f"{problem.where}: " if problem.where else ""
    complain(f"{where}{problem.code}: {problem.message}", problem.hint)
    for detail in error.details:
        complain(str(detail))
    if problem.executed == "unknown":
        click.echo("the tool may have run", err=True)
    return problem.code.exit or 1


# Waiting for a call and saying what for: a server may take long to start, and nobody likes to guess.

_TELL_EVERY_S: Final = 1.5


async def show_delays(call: Awaitable[Outcome], desk: GatewayClient, name: str, waiting: Spinner) -> Outcome:
    """The call's outcome. Whoever waits longer learns what for, as a server that has not started yet."""
    calling = asyncio.ensure_future(call)
    try:
        while not calling.done():
            await asyncio.wait([calling], timeout=_TELL_EVERY_S)
            if not calling.done():
                waiting.say(await desk.held_up_by(name))
        return calling.result()
    finally:
        calling.cancel()
        await asyncio.wait([calling])
