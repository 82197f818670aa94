"""Buffered output: readers that do not read, and readers that leave."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from errno import ENOBUFS, EPIPE

import pytest

from trunkline.cli.run_output import OutputBuffer, buffered_output

MUCH = b"x" * 300_000
"""More than a pipe holds."""


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    read, write = os.pipe()
    yield read, write
    os.close(write)


def read_all(fd: int, size: int) -> bytes:
    text = b""
    while len(text) < size:
        text += os.read(fd, size - len(text))
    return text


def test_everything_leaves_in_order_as_soon_as_it_is_read(pipe: tuple[int, int]) -> None:
    read, write = pipe
    buffer = OutputBuffer()
    for text in (b"first ", MUCH, b" last"):
        buffer.put(write, text)
    assert read_all(read, len(MUCH) + 11) == b"first " + MUCH + b" last"
    buffer.finish(None)
    assert buffer.errors == {}
    os.close(read)


def test_a_reader_that_does_not_read_is_waited_for_only_so_long(pipe: tuple[int, int]) -> None:
    read, write = pipe
    buffer = OutputBuffer()
    buffer.put(write, MUCH)
    buffer.put(write, b"more")
    buffer.finish(0.01)
    os.close(read)  # the thread hears of it, and ends


def test_what_nobody_reads_does_not_fill_the_memory(pipe: tuple[int, int]) -> None:
    read, write = pipe
    buffer = OutputBuffer(most_bytes=len(MUCH))
    buffer.put(write, MUCH)
    with pytest.raises(OSError) as refused:
        buffer.put(write, b"y")
    assert refused.value.errno == ENOBUFS
    os.close(read)
    buffer.finish(5)


def test_what_went_wrong_is_known_at_the_end_and_told_to_whoever_goes_on(pipe: tuple[int, int]) -> None:
    read, write = pipe
    os.close(read)
    buffer = OutputBuffer()
    buffer.put(write, b"to nobody")
    with pytest.raises(BrokenPipeError):
        while True:
            buffer.put(write, b"again")
    buffer.finish(5)
    assert buffer.errors[write].errno == EPIPE


def test_stdout_and_stderr_are_streams_as_before(capfd: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout, sys.stderr
    with capfd.disabled(), buffered_output() as buffer:
        stdout, stderr = sys.stdout, sys.stderr
        assert (stdout.fileno(), stderr.fileno()) == (1, 2)
        assert stdout.isatty() == os.isatty(1)
        assert stdout.encoding == sys.__stdout__.encoding if sys.__stdout__ else True
        buffer.finish(5)
    assert (sys.stdout, sys.stderr) == before
