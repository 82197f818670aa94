"""The writer's promise: whoever puts a line never waits, and every line is written whole or counted as dropped."""

from __future__ import annotations

import os
import resource
import threading
from pathlib import Path

from tests.support.waiting import at_most, wait_until

from trunkline.telemetry.log_writer import LineWriter

DEADLINE_S = at_most(10)


def report(lines: int) -> str:
    return f"lost {lines}\n"


def writer_on(fd: int, **options) -> LineWriter:
    return LineWriter(fd, loss_line=report, **options)


def read_all(fd: int) -> bytes:
    with os.fdopen(fd, "rb") as stream:
        return stream.read()


def test_lines_arrive_in_order_and_close_writes_the_rest():
    reader, target = os.pipe()
    writer = writer_on(target, batch_s=DEADLINE_S)
    for number in range(1000):
        writer.put(f"line {number}\n")
    writer.close(DEADLINE_S)
    os.close(target)
    assert read_all(reader).decode().splitlines() == [f"line {number}" for number in range(1000)]
    assert writer.dropped == 0


def test_lines_arrive_without_a_close():
    reader, target = os.pipe()
    writer = writer_on(target)
    for text in (b"one\n", b"two\n"):
        writer.put(text.decode())
        assert os.read(reader, 100) == text
    writer.close(DEADLINE_S)
    os.close(target)
    os.close(reader)


def test_a_quiet_writer_has_no_thread_and_closes():
    before = threading.active_count()
    writer = writer_on(2)
    assert threading.active_count() == before
    writer.close(DEADLINE_S)


def test_lines_after_close_are_dropped():
    reader, target = os.pipe()
    writer = writer_on(target)
    writer.close(DEADLINE_S)
    writer.put("late\n")
    os.close(target)
    assert read_all(reader) == b""
    assert writer.dropped == 1


def test_a_reader_that_stopped_costs_lines_but_nobody_waits_and_the_loss_is_reported():
    reader, target = os.pipe()
    writer = writer_on(target, limit_lines=1000)
    put = 0
    while writer.dropped < 500:
        writer.put(f"line {put:0200}\n")
        put += 1
    writer.close(deadline_s=0.05)  # the thread is stuck in its write; close returns all the same

    received = bytearray()
    while b"lost" not in received:
        received += os.read(reader, 65536)
    os.close(reader)
    os.close(target)
    lines = received.decode().splitlines()
    assert lines.pop() == f"lost {writer.dropped}"
    assert len(lines) + writer.dropped == put
    assert all(line == f"line {number:0200}" for number, line in enumerate(lines[:100]))


def test_a_stream_that_was_made_non_blocking_gets_every_line():
    reader, target = os.pipe()
    os.set_blocking(target, False)
    writer = writer_on(target, limit_lines=100_000)
    for number in range(5000):
        writer.put(f"line {number:0100}\n")  # several times what a pipe holds
    received = bytearray()
    while received.count(b"\n") < 5000:
        received += os.read(reader, 65536)
    writer.close(DEADLINE_S)
    os.close(target)
    os.close(reader)
    assert received.decode().splitlines() == [f"line {number:0100}" for number in range(5000)]


def test_a_line_that_broke_off_does_not_swallow_the_next_one(tmp_path: Path):
    """There is room for three bytes, as on a disk that is all but full, and later for more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with (tmp_path / "log").open("wb") as target:
        writer = writer_on(target.fileno())
        resource.setrlimit(resource.RLIMIT_FSIZE, (3, hard))
        try:
            writer.put("first\n")
            wait_until(lambda: writer.dropped == 1, "the line was given up")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        writer.put("second\n")
        writer.close(DEADLINE_S)
    assert (tmp_path / "log").read_bytes() == b"fir\nsecond\nlost 1\n"


def test_a_closed_stream_costs_every_line_and_nothing_else():
    reader, target = os.pipe()
    os.close(reader)
    writer = writer_on(target)
    writer.put("a\n")
    writer.put("b\n")
    writer.close(DEADLINE_S)
    os.close(target)
    assert writer.dropped == 2


def test_a_close_at_any_moment_of_a_batch_ends_the_thread():
    reader, target = os.pipe()
    for _ in range(300):
        writer = writer_on(target, batch_s=0)
        writer.put("x\n")
        assert writer.close(deadline_s=DEADLINE_S)
    os.close(target)
    assert read_all(reader) == b"x\n" * 300
