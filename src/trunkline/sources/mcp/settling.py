"""The moment after a server was greeted: servers that work in the client's folders ask for them then.

Without a gateway a client greets its servers when it starts, long before the first call. Here the first call is what
starts a client's own server, so it waits until the server knows the folders; else it would be refused there, or work in
the wrong place. A server that asks nothing costs one ping.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from trunkline.runtime.deadlines import Within
from trunkline.sources.mcp.lane import Lane

_PING_S: Final = 1.0
_LONGEST_S: Final = 5.0
_SINK_IN_S: Final = 0.1
"""What a server does with an answer (it may look at the folders first) is not to be seen from outside."""


async def settle(lane: Lane) -> None:
    """Until the server has read its greeting, and has the answers to what it asked then."""
    with suppress(TimeoutError):
        async with Within(_LONGEST_S):
            await lane.ask("ping", b"{}", _PING_S)
            if lane.questions.asked_any:
                await _quiet(lane)
                await asyncio.sleep(_SINK_IN_S)


async def _quiet(lane: Lane) -> None:
    quiet = asyncio.Event()
    lane.questions.when_quiet(quiet.set)
    await quiet.wait()
