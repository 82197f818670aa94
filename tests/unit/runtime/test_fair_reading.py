"""Fair reading: turns are in order, complete, divided by time, and never stuck."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable

import pytest
from tests.support.waiting import until

from trunkline.runtime.fair_reading import FairReader

LINES = b"".join(b"%d\n" % number for number in range(100_000))


class Wire:
    """What a wire does with its turns: `heard` is what was fed, `reading` whether it is read."""

    def __init__(self, *, cost_s: float = 0.0, served: Callable[[], int] | None = None) -> None:
        self.turns = FairReader(self.feed, self.read, served)
        self.heard: list[bytes] = []
        self.reading = True
        self.cost_s = cost_s
        self.on_feed: Callable[[bytes], None] = lambda _: None

    def feed(self, data: bytes) -> None:
        self.heard.append(data)
        if self.cost_s:
            time.sleep(self.cost_s)
        self.on_feed(data)

    def read(self, wanted: bool) -> None:
        self.reading = wanted

    async def done(self) -> bytes:
        await until(lambda: self.reading and not self.turns.waiting, "everything was fed")
        return b"".join(self.heard)


async def test_a_little_is_fed_at_once() -> None:
    wire = Wire()
    wire.turns.take(b"a\nb\nc")
    assert wire.heard == [b"a\nb\nc"]
    assert wire.reading


async def test_others_have_their_turns_while_much_is_fed_and_nothing_is_read_meanwhile() -> None:
    wire, turns_of_others = Wire(cost_s=0.0005), 0
    wire.turns.take(LINES)
    assert not wire.reading
    while not wire.reading:
        await asyncio.sleep(0)
        turns_of_others += 1
    assert turns_of_others > 10
    assert await wire.done() == LINES


async def test_chunks_that_follow_each_other_at_once_are_one_turn() -> None:
    wire = Wire(cost_s=0.0005)
    for _ in range(50):
        if wire.reading:
            wire.turns.take(b"x" * 100_000 + b"\n")
    assert len(wire.heard) < 50
    assert not wire.reading


async def test_a_line_is_not_divided() -> None:
    wire = Wire()
    line = b"x" * 300_000 + b"\n"
    wire.turns.take(line + b"y\n" + line)
    assert await wire.done() == line + b"y\n" + line
    assert all(piece.endswith(b"\n") for piece in wire.heard)


async def test_slices_can_be_cut_at_other_ends_or_anywhere() -> None:
    wire = Wire()
    wire.turns.line_ends = (b"\n", b"\r")
    wire.turns.take(b"\r" * 40_000)
    assert max(map(len, wire.heard)) < 16_000
    wire.turns.line_ends, wire.turns.slice_bytes = (), 64
    wire.turns.take(b"x" * 1_000)
    assert await wire.done() == b"\r" * 40_000 + b"x" * 1_000
    assert max(map(len, wire.heard[-10:])) == 64


async def test_what_comes_all_the_same_is_fed_behind_the_rest() -> None:
    wire = Wire(cost_s=0.0005)
    wire.turns.take(LINES)
    wire.turns.take(b"last\n")
    assert await wire.done() == LINES + b"last\n"


async def test_nothing_is_fed_after_the_end_and_the_rest_of_a_wire_that_is_gone_at_once() -> None:
    left, gone = Wire(cost_s=0.0005), Wire(cost_s=0.0005)
    for wire in (left, gone):
        wire.turns.take(LINES)
    left.turns.close()
    fed = len(left.heard)
    gone.turns.finish()
    assert b"".join(gone.heard) == LINES
    await asyncio.sleep(0.01)
    assert len(left.heard) == fed
    assert b"".join(gone.heard) == LINES


async def test_a_line_that_ends_it_is_the_last_one() -> None:
    wire = Wire()
    wire.on_feed = lambda _: wire.turns.close()
    wire.turns.take(LINES)
    assert len(wire.heard) == 1
    assert not wire.turns.waiting


async def test_whoever_asks_for_a_rest_gets_it_before_the_next_slice() -> None:
    wire = Wire()
    wire.on_feed = lambda _: wire.turns.rest(0.01)
    wire.turns.take(b"a\n")
    assert wire.turns.waiting
    wire.turns.take(LINES[:20_000])
    assert wire.heard == [b"a\n"]
    wire.on_feed = lambda _: None
    assert await wire.done() == b"a\n" + LINES[:20_000]


@pytest.mark.parametrize("of_use", [False, True])
async def test_only_one_who_brings_nothing_of_use_rests(of_use: bool) -> None:
    passes: list[int] = []
    """Of the loop, until the next turn."""
    served = 0
    wire = Wire(cost_s=0.003, served=lambda: served)
    wire.turns.take(LINES[: wire.turns.slice_bytes * 60])
    while not wire.reading:
        heard = len(wire.heard)
        served += of_use
        passes.append(0)
        while len(wire.heard) == heard and not wire.reading:
            await asyncio.sleep(0)
            passes[-1] += 1
    assert (sum(passes[40:]) > 3 * len(passes[40:])) == (not of_use)


async def test_however_many_wait_one_has_its_turn_in_a_round_of_the_loop() -> None:
    wires = [Wire(cost_s=0.001) for _ in range(10)]
    for wire in wires:
        wire.turns.take(LINES)
    while any(not wire.reading for wire in wires):
        before = [len(wire.heard) for wire in wires]
        await asyncio.sleep(0)
        assert sum(len(wire.heard) > heard for wire, heard in zip(wires, before, strict=True)) <= 1
    for wire in wires:
        assert await wire.done() == LINES


async def test_one_that_leaves_while_it_waits_holds_up_nobody() -> None:
    wires = [Wire(cost_s=0.001) for _ in range(3)]
    for wire in wires:
        wire.turns.take(LINES)
    wires[0].turns.close()
    wires[1].turns.finish()
    assert await wires[2].done() == LINES
    assert wires[0].turns.held_bytes == wires[1].turns.held_bytes == 0


async def test_an_error_over_one_slice_costs_that_slice() -> None:
    loop, errors = asyncio.get_running_loop(), 0

    def count(_: object, context: dict[str, object]) -> None:
        nonlocal errors
        errors += 1

    def fail_in_the_middle(data: bytes) -> None:
        if b"\n50000\n" in data:
            raise ValueError

    loop.set_exception_handler(count)
    wire = Wire(cost_s=0.0001)
    wire.on_feed = fail_in_the_middle
    wire.turns.take(LINES)
    assert await wire.done() == LINES
    assert errors == 1
    loop.set_exception_handler(None)


async def test_whether_something_follows_is_known_while_a_slice_is_fed() -> None:
    wire, more = Wire(), list[bool]()
    wire.on_feed = lambda _: more.append(wire.turns.more)
    wire.turns.take(b"a\n")
    wire.turns.take(os.urandom(1) * wire.turns.slice_bytes + b"\n" + b"b\n")
    assert more == [False, True, False]
