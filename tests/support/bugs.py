"""Exceptions of our own that must cost only the work they were raised in: the loop's handler reports them."""

from __future__ import annotations

import asyncio


class Bug(Exception):
    """Raised by a test in the middle of several things."""


def broken(*_: object) -> None:
    raise Bug("a bug")


def reported_bugs() -> list[BaseException]:
    """What is reported from now on, on this loop; nothing of it is left for asyncio to log."""
    reported: list[BaseException] = []

    def hear(loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        error = context.get("exception")
        assert isinstance(error, BaseException), context
        reported.append(error)

    asyncio.get_running_loop().set_exception_handler(hear)
    return reported
