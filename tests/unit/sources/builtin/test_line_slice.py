from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.pairs import IN_FULL

from trunkline.sources.builtin.read import LineSlice, as_utf8, read_blocks

LINES = st.lists(st.sampled_from([b"", b"x", b"\xc3\xa9\r", b"\r", b"\xff", b"long " * 600]), max_size=12)


def lines_of(data: bytes) -> list[bytes]:
    lines = data.split(b"\n")
    return lines[:-1] if not lines[-1] else lines


def shown(line: bytes) -> str:
    text = line.removesuffix(b"\r").decode(errors="replace")
    return text if len(text) <= 2000 else f"{text[:2000]}… [cut: the line has {len(line):,} bytes]"


@settings(max_examples=300 if IN_FULL else 100)
@given(
    lines=LINES,
    ended=st.booleans(),
    first=st.integers(1, 14),
    most=st.integers(1, 14),
    cuts=st.lists(st.integers(0, 20_000), max_size=8),
)
def test_a_slice_is_the_same_however_the_file_comes_in_blocks(
    lines: list[bytes], ended: bool, first: int, most: int, cuts: list[int]
) -> None:
    data = b"\n".join(lines) + (b"\n" if ended and lines else b"")
    places = [0, *sorted(cuts), len(data)]
    part = LineSlice(first, most, 1_000_000)
    for begin, end in itertools.pairwise(places):
        part.feed(data[begin:end])
    part.end()
    every = lines_of(data)
    assert part.lines == [shown(line) for line in every[first - 1 : first - 1 + most]]
    assert part.total == len(every)


def test_a_slice_ends_where_there_is_no_more_room_but_has_one_line_at_least() -> None:
    part = LineSlice(1, 100, 50)
    part.feed(b"x" * 30 + b"\n" + b"y" * 30 + b"\nz\n")
    assert (part.lines, part.full, part.next_line, part.total) == (["x" * 30], True, 2, 3)
    part = LineSlice(1, 100, 10)
    part.feed(b"x" * 30 + b"\n")
    assert part.lines == ["x" * 30]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
@given(text=st.text(max_size=50), size=st.integers(1, 7))
def test_text_of_any_encoding_becomes_utf8_whatever_the_blocks(encoding: str, text: str, size: int) -> None:
    mark = "\ufeff".encode(encoding)
    data = mark + text.encode(encoding)
    # the mark lies in the first block, as it does in a file
    blocks = [data[: len(mark) + size], *(data[at : at + size] for at in range(len(mark) + size, len(data), size))]
    assert b"".join(as_utf8(blocks, encoding, mark)).decode() == text


def test_a_file_that_never_ends_is_read_up_to_a_limit() -> None:
    with open("/dev/zero", "rb") as zeros:
        assert b"".join(read_blocks(zeros.fileno(), 600_000)) == bytes(600_000)
