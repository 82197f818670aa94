"""The writer's promise: whoever puts a line never waits, and every line is written whole or counted as dropped."""

from __future__ import annotations

import os
import threading
import time

from trunkline.telemetry.writer import LineWriter

DEADLINE_S = 10


def report(lines: int) -> str:
    return f"lost {lines}\n"


def wait_until(condition) -> None:
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, "the writer did not get there"
        time.sleep(0.005)


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
    writer.close()
    os.close(target)
    assert read_all(reader).decode().splitlines() == [f"line {number}" for number in range(1000)]
    assert writer.dropped == 0


def test_lines_arrive_without_a_close():
    reader, target = os.pipe()
    writer = writer_on(target)
    for text in (b"one\n", b"two\n"):
        writer.put(text.decode())
        assert os.read(reader, 100) == text
    writer.close()
    os.close(target)
    os.close(reader)


def test_a_quiet_writer_has_no_thread_and_closes():
    before = threading.active_count()
    writer = writer_on(2)
    assert threading.active_count() == before
    writer.close()


def test_lines_after_close_are_dropped():
    reader, target = os.pipe()
    writer = writer_on(target)
    writer.close()
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
    writer.close()
    os.close(target)
    os.close(reader)
    assert received.decode().splitlines() == [f"line {number:0100}" for number in range(5000)]


def test_a_line_that_broke_off_does_not_swallow_the_next_one():
    class Breaking(LineWriter):
        """Its stream fails once, after three bytes."""

        failures = 1

        def _write_some(self, data):
            if self.failures:
                if len(data) < len(b"first\n"):
                    self.failures -= 1
                    raise OSError
                return os.write(self._fd, data[:3])
            return super()._write_some(data)

    reader, target = os.pipe()
    writer = Breaking(target, loss_line=report)
    writer.put("first\n")
    wait_until(lambda: writer.dropped == 1)
    writer.put("second\n")
    writer.close()
    os.close(target)
    assert read_all(reader) == b"fir\nsecond\nlost 1\n"


def test_a_closed_stream_costs_every_line_and_nothing_else():
    reader, target = os.pipe()
    os.close(reader)
    writer = writer_on(target)
    writer.put("a\n")
    writer.put("b\n")
    writer.close()
    os.close(target)
    assert writer.dropped == 2


def test_a_close_at_any_moment_of_a_batch_ends_the_thread():
    reader, target = os.pipe()
    for _ in range(300):
        writer = writer_on(target, batch_s=0)
        writer.put("x\n")
        writer.close(deadline_s=DEADLINE_S)
        assert writer._thread is not None and not writer._thread.is_alive()
    os.close(target)
    assert read_all(reader) == b"x\n" * 300
