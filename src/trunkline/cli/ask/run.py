"""Running one question to its end: a sign of life meanwhile, Ctrl+C, and errors as every command shows them."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NoReturn, TypeVar

import click

from trunkline.cli.ask.desk import Desk, open_desk
from trunkline.cli.ask.whom import complain, whom_to_ask
from trunkline.cli.terminal import Waiting
from trunkline.core.errors import GatewayError

T = TypeVar("T")
INTERRUPTED: Final = 130
_SPIN_AFTER_S: Final = 0.5
_SPIN_EVERY_S: Final = 0.1

Question = Callable[[Desk, Waiting], Awaitable[T]]


def ask(question: Question[T], config: Path | None, url: str | None, *, only: str = "", what: str = "asking") -> T:
    """Ask, and return the answer; whatever goes wrong ends the program with a message and its exit status."""
    try:
        whom = whom_to_ask(config, url)
        waiting = Waiting(what)

        async def main() -> T:
            async with _sign_of_life(waiting), open_desk(whom, waiting.say, only=only) as desk:
                return await question(desk, waiting)

        from trunkline.serve.loop import run

        return run(lambda: _until_interrupted(main()))
    except GatewayError as error:
        sys.exit(complain(error))
    except asyncio.CancelledError:
        _interrupted()


async def _until_interrupted(work: Awaitable[T]) -> T:
    """Ctrl+C takes back what was asked, here and at the gateway; once more ends the program at once."""
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(work)
    presses = 0

    def pressed() -> None:
        nonlocal presses
        presses += 1
        if presses > 1:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.raise_signal(signal.SIGINT)
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, pressed)
    return await task


@asynccontextmanager
async def _sign_of_life(waiting: Waiting) -> AsyncGenerator[None, None]:
    spinner = asyncio.ensure_future(_spin(waiting))
    try:
        yield
    finally:
        spinner.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await spinner
        waiting.clear()


async def _spin(waiting: Waiting) -> None:
    await asyncio.sleep(_SPIN_AFTER_S)
    while True:
        waiting.draw()
        await asyncio.sleep(_SPIN_EVERY_S)


def _interrupted() -> NoReturn:
    click.echo("interrupted: the call was cancelled", err=True)
    sys.exit(INTERRUPTED)
