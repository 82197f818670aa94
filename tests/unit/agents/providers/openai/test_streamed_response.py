"""Deadlines of a streamed response."""

from __future__ import annotations

import asyncio
import time

import pytest
from tests.support.waiting import at_most

from trunkline.agents.providers.openai.client import StreamedResponse

SOON_S = 0.05


async def test_what_came_while_we_were_stopped_was_in_time() -> None:
    loop = asyncio.get_running_loop()
    incoming = StreamedResponse(b"")

    def stop(then: object, *given: object) -> None:
        """The loop sees what came only after it has seen the time."""
        time.sleep(SOON_S + 0.5)
        loop.call_later(SOON_S, then, *given)

    loop.call_soon(stop, incoming.on_head, 200, {})
    assert await incoming.head(SOON_S) == 200
    loop.call_soon(stop, incoming.on_body, b"piece")
    assert await incoming.piece(SOON_S) == b"piece"
    loop.call_soon(stop, incoming.on_end)
    assert await incoming.piece(SOON_S) == b""


async def test_silence_is_not_waited_for_longer_than_is_said() -> None:
    incoming = StreamedResponse(b"")
    async with asyncio.timeout(at_most(15)):
        with pytest.raises(TimeoutError):
            await incoming.head(SOON_S)
        with pytest.raises(TimeoutError):
            await incoming.piece(SOON_S)
