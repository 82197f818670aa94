"""A sign of life while a command waits: a spinner on stderr with the newest word about what is waited for."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import cycle
from typing import Final

import click

from trunkline.cli.terminal import cut, plain, terminal_width, wants_colour

_FRAMES: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_AFTER_S: Final = 0.5
_EVERY_S: Final = 0.1
_TELL_TIME_AFTER_S: Final = 3.0
_WIPE: Final = "\r\x1b[2K"


class Spinner:
    """Silent where nobody watches."""

    def __init__(self, message: str) -> None:
        self.answered = False
        """Set once there is nothing to wait for any more."""
        self._message = message
        self._watched = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._frames = cycle(_FRAMES)
        self._since = time.monotonic()
        self._on_screen = False

    def say(self, message: str) -> None:
        """What is waited for now; nothing new leaves it as it was."""
        if message:
            self._message = message

    def begin(self, message: str) -> None:
        """Something else is waited for from now on."""
        self._message, self._since = message, time.monotonic()

    def draw(self) -> None:
        if not self._watched:
            return
        waited_s = time.monotonic() - self._since
        time_told = f" ({waited_s:.0f}s)" if waited_s >= _TELL_TIME_AFTER_S else ""
        room = terminal_width(sys.stderr) - 1 - len(time_told)
        line = cut(f"{next(self._frames)} {plain(self._message)}", room) + time_told
        self._on_screen = True
        sys.stderr.write(_WIPE + (click.style(line, dim=True) if wants_colour(os.environ) else line))
        sys.stderr.flush()

    def clear(self) -> None:
        if self._on_screen:
            self._on_screen = False
            sys.stderr.write(_WIPE)
            sys.stderr.flush()


@asynccontextmanager
async def spinning(waiting: Spinner) -> AsyncGenerator[None, None]:
    """It shows after a moment, and leaves nothing on the screen."""
    spinner = asyncio.get_running_loop().create_task(_spin(waiting))
    try:
        yield
    finally:
        spinner.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await spinner
        waiting.clear()


async def _spin(waiting: Spinner) -> None:
    await asyncio.sleep(_AFTER_S)
    while True:
        waiting.draw()
        await asyncio.sleep(_EVERY_S)
