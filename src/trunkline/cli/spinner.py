"""A spinner on stderr, with the latest message about what a command is waiting for."""

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

from trunkline.cli.terminal import plain, terminal_width, truncated, wants_colour

_FRAMES: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_AFTER_S: Final = 0.5
_EVERY_S: Final = 0.1
_SHOW_TIME_AFTER_S: Final = 3.0
_CLEAR_LINE: Final = "\r\x1b[2K"


class Spinner:
    """Draws nothing unless stderr is a terminal."""

    def __init__(self, message: str) -> None:
        self._message = message
        self._visible = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._frames = cycle(_FRAMES)
        self._since = time.monotonic()
        self._on_screen = False

    def update(self, message: str) -> None:
        """Replace the message; an empty one changes nothing."""
        if message:
            self._message = message

    def restart(self, message: str) -> None:
        """Replace the message and start counting time again."""
        self._message, self._since = message, time.monotonic()

    def draw(self) -> None:
        if not self._visible:
            return
        waited_s = time.monotonic() - self._since
        seconds = f" ({waited_s:.0f}s)" if waited_s >= _SHOW_TIME_AFTER_S else ""
        room = terminal_width(sys.stderr) - 1 - len(seconds)
        line = truncated(f"{next(self._frames)} {plain(self._message)}", room) + seconds
        self._on_screen = True
        sys.stderr.write(_CLEAR_LINE + (click.style(line, dim=True) if wants_colour(os.environ) else line))
        sys.stderr.flush()

    def clear(self) -> None:
        if self._on_screen:
            self._on_screen = False
            sys.stderr.write(_CLEAR_LINE)
            sys.stderr.flush()


@asynccontextmanager
async def spinning(spinner: Spinner) -> AsyncGenerator[None, None]:
    """Draw the spinner, after a moment, for as long as the block runs; it leaves nothing on the screen."""

    async def spin() -> None:
        await asyncio.sleep(_AFTER_S)
        while True:
            spinner.draw()
            await asyncio.sleep(_EVERY_S)

    task = asyncio.get_running_loop().create_task(spin())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        spinner.clear()
