"""Waiting for a call and saying what for: a server may take long to start, and nobody likes to guess."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final

from trunkline.cli.ask.desk import Desk
from trunkline.cli.ask.waiting import Waiting
from trunkline.core.call import Outcome

_TELL_EVERY_S: Final = 1.5


async def told_what_holds_up(call: Awaitable[Outcome], desk: Desk, name: str, waiting: Waiting) -> Outcome:
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
