"""One client on standard input and output."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

from tests.support.pipes import Pipes
from tests.support.waiting import at_most, until
from tests.unit.doors.rig import Loop, both_loops, run_on

from trunkline.doors.stdio_pipes import StdioPipes

LIMIT = 1000


class Taken:
    """Keeps what comes."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.unread_bytes = 0
        self.rooms = 0

    def line(self, line: bytes) -> None:
        self.lines.append(line)

    def unread(self, size_bytes: int) -> None:
        self.unread_bytes = size_bytes

    def room(self) -> None:
        self.rooms += 1


@contextlib.asynccontextmanager
async def both_ends() -> AsyncIterator[tuple[Taken, StdioPipes, Pipes]]:
    taken, far = Taken(), Pipes()
    await far.start()
    near = StdioPipes(taken, limit_bytes=LIMIT, stdin_fd=far.door_in, stdout_fd=far.door_out)
    serving = asyncio.get_running_loop().create_task(near.serve())
    try:
        yield taken, near, far
        far.end_input()
        await asyncio.wait_for(serving, at_most(15))
        await near.close()
    finally:
        serving.cancel()
        await asyncio.wait([serving])
        await far.close()


@both_loops
def test_lines_come_in_and_messages_go_out(loop_factory: Loop) -> None:
    async def main() -> None:
        async with both_ends() as (taken, near, far):
            far.send(b"one\ntwo", b"", b"three\r")
            await until(lambda: len(taken.lines) == 3, "the lines are in")
            assert taken.lines == [b"one", b"two", b"three"]
            near.write(b'{"a"', b":1}")
            near.write(b"{}")
            assert [await far.next(), await far.next()] == [{"a": 1}, {}]

    run_on(loop_factory, main())


@both_loops
def test_a_line_that_is_too_long_is_refused_under_its_id(loop_factory: Loop) -> None:
    async def main() -> None:
        async with both_ends() as (taken, _, far):
            far.send(b'{"jsonrpc":"2.0","id":7,"x":"' + b"y" * LIMIT + b'"}', b"next")
            refusal = await far.next()
            assert (refusal["id"], refusal["error"]["data"]["code"]) == (7, "TL308")
            await until(lambda: taken.lines == [b"next"], "the next line is taken")

    run_on(loop_factory, main())


@both_loops
def test_a_client_that_is_held_is_not_read_from(loop_factory: Loop) -> None:
    async def main() -> None:
        async with both_ends() as (taken, near, far):
            far.send(b"one")
            await until(lambda: taken.lines == [b"one"], "the first is in")
            near.hold(True)
            far.send(b"two")
            near.write(b"{}")
            await far.next()
            assert taken.lines == [b"one"]
            near.hold(False)
            await until(lambda: taken.lines == [b"one", b"two"], "the second is in")

    run_on(loop_factory, main())


@both_loops
def test_a_client_that_does_not_read_is_not_read_from_and_that_is_told(loop_factory: Loop) -> None:
    async def main() -> None:
        async with both_ends() as (taken, near, far):
            far.send(b"one")
            await until(lambda: taken.lines == [b"one"], "the first is in")
            far.pause()
            message = json.dumps("x" * 2_000_000).encode()
            near.write(message)
            await until(lambda: taken.unread_bytes > 1_000_000, "it is told how much waits")
            assert near.crowded
            far.send(b"two")
            far.resume()
            assert len(json.dumps(await far.next())) == len(message)
            await until(lambda: taken.lines == [b"one", b"two"], "the second is in")
            assert taken.rooms
            assert not near.crowded

    run_on(loop_factory, main())


@both_loops
def test_files_are_read_to_their_end_and_written_to(loop_factory: Loop, tmp_path: Path) -> None:
    async def main() -> None:
        (tmp_path / "in").write_bytes(b"one\ntwo\n")
        source, target = os.open(tmp_path / "in", os.O_RDONLY), os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT)
        taken = Taken()
        pipes = StdioPipes(taken, limit_bytes=LIMIT, stdin_fd=source, stdout_fd=target)
        await pipes.serve()
        pipes.write(b"{}")
        await pipes.close()
        os.close(source)
        os.close(target)
        assert taken.lines == [b"one", b"two"]
        assert (tmp_path / "out").read_bytes() == b"{}\n"

    run_on(loop_factory, main())


@both_loops
def test_whoever_closes_its_output_ends_it(loop_factory: Loop) -> None:
    async def main() -> None:
        async with both_ends() as (_, near, far):
            far.close_output()
            near.write(b"{}")
            await until(lambda: near.out_gone, "it is noticed")

    run_on(loop_factory, main())
