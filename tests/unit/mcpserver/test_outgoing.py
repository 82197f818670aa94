"""Messages leave in order; a client that does not read is waited for, and told no news meanwhile."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.mcp_dialogue import Heard
from tests.support.waiting import at_most, until

from trunkline.mcpserver.outgoing import Outgoing

LARGE = b"x" * (5 * 1024 * 1024)


async def test_all_that_was_sent_is_written_before_the_end() -> None:
    heard = Heard()
    out = Outgoing(heard)
    for message in (b"one", b"two"):
        out.send(message)
    out.tell(b"three")
    out.end()
    await asyncio.wait_for(out.run(), at_most(10))
    assert heard.data == b"one\ntwo\nthree\n"


async def test_a_client_that_does_not_read_gets_answers_later_and_news_never() -> None:
    heard = Heard()
    heard.open_.clear()
    out = Outgoing(heard)
    running = asyncio.get_running_loop().create_task(out.run())
    out.send(LARGE)
    room = asyncio.get_running_loop().create_task(out.room())
    out.tell(b"lost")
    out.send(b"kept")
    await until(lambda: heard.data, "the first is written")
    assert not room.done()
    heard.open_.set()
    await asyncio.wait_for(room, at_most(10))
    out.tell(b"news")
    out.end()
    await asyncio.wait_for(running, at_most(10))
    assert heard.data.split(b"\n")[1:] == [b"kept", b"news", b""]


async def test_a_stream_that_is_closed_is_a_client_that_is_gone_on_any_loop() -> None:
    class Closed(Heard):
        def write(self, data: bytes) -> None:
            raise RuntimeError("the handler is closed")

    out = Outgoing(Closed())
    out.send(b"x")
    with pytest.raises(ConnectionResetError):
        await asyncio.wait_for(out.run(), at_most(10))
