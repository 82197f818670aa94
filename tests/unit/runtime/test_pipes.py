"""Pipes that are read and written without a task."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from tests.support.waiting import until
from tests.unit.runtime.scripted_server import both_loops, run_on

from trunkline.runtime.child_io import PipeReader, PipeWriter

Loop = Callable[[], asyncio.AbstractEventLoop]


def open_pipe() -> tuple[int, int]:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    return reader, writer


@both_loops
def test_everything_that_is_fed_comes_out_and_the_end_too(loop_factory: Loop) -> None:
    async def main() -> None:
        data = os.urandom(3_000_000)
        heard = bytearray()
        reader, writer = open_pipe()
        reading = PipeReader(reader, heard.extend)
        feeding = PipeWriter(writer, data)
        await until(lambda: len(heard) == len(data), "all of it came")
        reading.close()
        feeding.close()
        assert heard == data

    run_on(loop_factory, main())


@both_loops
def test_what_is_in_the_pipe_at_the_end_is_still_read(loop_factory: Loop) -> None:
    async def main() -> None:
        heard = bytearray()
        reader, writer = open_pipe()
        reading = PipeReader(reader, heard.extend)
        os.write(writer, b"last words")
        reading.close()  # before the loop had a turn
        os.close(writer)
        assert heard == b"last words"

    run_on(loop_factory, main())


@both_loops
def test_a_reader_that_goes_away_ends_the_feeding(loop_factory: Loop) -> None:
    async def main() -> None:
        reader, writer = open_pipe()
        feeding = PipeWriter(writer, bytes(1_000_000))
        os.close(reader)
        await until(lambda: not is_open(writer), "the pipe is closed")
        feeding.close()

    run_on(loop_factory, main())


@both_loops
def test_nothing_to_feed_is_the_end_at_once(loop_factory: Loop) -> None:
    async def main() -> None:
        reader, writer = open_pipe()
        PipeWriter(writer, b"")
        assert os.read(reader, 1) == b""
        os.close(reader)

    run_on(loop_factory, main())


@both_loops
def test_a_feeding_that_is_given_up_closes_its_pipe(loop_factory: Loop) -> None:
    async def main() -> None:
        reader, writer = open_pipe()
        feeding = PipeWriter(writer, bytes(1_000_000))
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
