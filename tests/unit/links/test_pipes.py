"""Pipes that are read and written without a task."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

import pytest
import uvloop
from tests.support.child_trees import run_on
from tests.support.waiting import until

from trunkline.links.pipes import PipeFeeding, PipeReading

uvloop.new_event_loop().close()  # the first one makes a pipe for signals that stays with the process


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def loop_factory(request: pytest.FixtureRequest) -> Callable[[], asyncio.AbstractEventLoop]:
    return request.param


def open_pipe() -> tuple[int, int]:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    return reader, writer


def test_everything_that_is_fed_comes_out_and_the_end_too(
    loop_factory: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def main() -> None:
        data = os.urandom(3_000_000)
        heard = bytearray()
        reader, writer = open_pipe()
        reading = PipeReading(reader, heard.extend)
        feeding = PipeFeeding(writer, data)
        await until(lambda: len(heard) == len(data), "all of it came")
        reading.close()
        feeding.close()
        assert heard == data

    run_on(loop_factory, main())


def test_what_is_in_the_pipe_at_the_end_is_still_read(loop_factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def main() -> None:
        heard = bytearray()
        reader, writer = open_pipe()
        reading = PipeReading(reader, heard.extend)
        os.write(writer, b"last words")
        reading.close()  # before the loop had a turn
        os.close(writer)
        assert heard == b"last words"

    run_on(loop_factory, main())


def test_a_reader_that_goes_away_ends_the_feeding(loop_factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def main() -> None:
        reader, writer = open_pipe()
        feeding = PipeFeeding(writer, bytes(1_000_000))
        os.close(reader)
        await until(lambda: not is_open(writer), "the pipe is closed")
        feeding.close()

    run_on(loop_factory, main())


def test_nothing_to_feed_is_the_end_at_once(loop_factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def main() -> None:
        reader, writer = open_pipe()
        PipeFeeding(writer, b"")
        assert os.read(reader, 1) == b""
        os.close(reader)

    run_on(loop_factory, main())


def test_a_feeding_that_is_given_up_closes_its_pipe(loop_factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def main() -> None:
        reader, writer = open_pipe()
        feeding = PipeFeeding(writer, bytes(1_000_000))
        feeding.close()
        assert not is_open(writer)
        os.close(reader)

    run_on(loop_factory, main())


def is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True
