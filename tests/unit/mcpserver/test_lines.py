"""Lines are cut out of a stream in whatever pieces it comes."""

from __future__ import annotations

import pytest

from trunkline.mcpserver.lines import Lines


@pytest.mark.parametrize("piece", [1, 2, 3, 100])
def test_the_pieces_do_not_matter(piece: int) -> None:
    data = b"one\n\ntwo words\nrest"
    lines = Lines(100)
    found = [line for start in range(0, len(data), piece) for line in lines.feed(data[start : start + piece])]
    assert found == [b"one", b"", b"two words"]
    assert lines.last() == [b"rest"]


@pytest.mark.parametrize("piece", [1, 4, 5, 6, 100])
def test_a_line_over_the_limit_is_told_of_once_and_the_next_one_is_read(piece: int) -> None:
    data = b"12345\n123456789\nnext\n123456"
    lines = Lines(5)
    found = [line for start in range(0, len(data), piece) for line in lines.feed(data[start : start + piece])]
    assert found == [b"12345", None, b"next", None]
    assert lines.last() == []


def test_nothing_is_left_of_a_stream_that_ended_with_a_line() -> None:
    lines = Lines(5)
    assert lines.feed(b"a\n") == [b"a"]
    assert lines.last() == []
