from __future__ import annotations

import tracemalloc

import pytest

from trunkline.protocol.framing import LineFramer, LineTooLong


def test_whole_lines_in_one_chunk_come_out_at_once() -> None:
    framer = LineFramer(100)
    assert framer.feed(b"one\n") == [b"one"]
    assert framer.feed(b"one\ntwo\nthree\n") == [b"one", b"two", b"three"]
    assert not framer.partial


def test_a_line_in_several_chunks_comes_out_when_it_ends() -> None:
    framer = LineFramer(100)
    assert framer.feed(b"on") == []
    assert framer.feed(b"e\ntw") == [b"one"]
    assert framer.partial
    assert framer.buffered_bytes == 2
    assert framer.feed(b"") == []
    assert framer.feed(b"o\n") == [b"two"]
    assert framer.buffered_bytes == 0


def test_one_carriage_return_before_the_newline_is_dropped() -> None:
    framer = LineFramer(100)
    assert framer.feed(b"a\r\nb\r\r\nc\rd\n") == [b"a", b"b\r", b"c\rd"]
    assert framer.feed(b"split\r") == []
    assert framer.feed(b"\n") == [b"split"]


def test_blank_lines_are_counted_not_delivered() -> None:
    framer = LineFramer(100)
    assert framer.feed(b"\n\r\na\n\n") == [b"a"]
    assert framer.blank_lines == 3


def test_a_line_of_exactly_the_limit_passes_and_one_byte_more_does_not() -> None:
    assert LineFramer(5).feed(b"12345\n") == [b"12345"]
    with pytest.raises(LineTooLong):
        LineFramer(5).feed(b"123456\n")


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_the_limit_does_not_depend_on_chunking(size: int) -> None:
    framer = LineFramer(5)
    data = b"abc\nde\n0123456789\n"
    lines: list[bytes] = []
    with pytest.raises(LineTooLong) as caught:
        for at in range(0, len(data), size):
            lines += framer.feed(data[at : at + size])
    assert lines + caught.value.lines == [b"abc", b"de"]
    assert caught.value.head.startswith(b"012345")


def test_an_oversized_line_is_refused_before_it_ends() -> None:
    framer = LineFramer(5)
    framer.feed(b"12345")
    with pytest.raises(LineTooLong):
        framer.feed(b"6")
    assert framer.buffered_bytes == 0


def test_the_head_of_an_oversized_line_is_at_most_256_bytes_and_spans_chunks() -> None:
    framer = LineFramer(1000)
    framer.feed(b'{"id":7,')
    with pytest.raises(LineTooLong) as caught:
        framer.feed(b"x" * 2000)
    assert caught.value.head == b'{"id":7,' + b"x" * 248


def test_lines_after_an_oversized_one_are_not_lost() -> None:
    framer = LineFramer(5)
    with pytest.raises(LineTooLong) as caught:
        framer.feed(b"ab\n0123456789\ncd\nef")
    assert caught.value.lines == [b"ab"]
    assert framer.feed(b"") == [b"cd"]
    assert framer.feed(b"\n") == [b"ef"]


def test_the_rest_of_an_oversized_line_is_skipped_as_it_comes() -> None:
    framer = LineFramer(5)
    with pytest.raises(LineTooLong):
        framer.feed(b"0123456789")
    assert framer.feed(b"still the same line") == []
    assert framer.partial
    assert framer.feed(b" and its end\nnext\n") == [b"next"]


def test_a_partial_line_completed_before_an_oversized_one_is_delivered() -> None:
    framer = LineFramer(5)
    framer.feed(b"ab")
    with pytest.raises(LineTooLong) as caught:
        framer.feed(b"c\r\n\n0123456789\n")
    assert caught.value.lines == [b"abc"]
    assert framer.blank_lines == 1


def test_many_tiny_pieces_of_a_line_cost_little_more_than_their_bytes() -> None:
    framer = LineFramer(1_000_000)
    tracemalloc.start()
    try:
        for number in range(25_000):
            framer.feed(b"%04d" % (number % 10_000))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert framer.buffered_bytes == 100_000
    assert held < 2 * framer.buffered_bytes
