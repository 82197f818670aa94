from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.sources.builtin.text_style import TextStyle, with_newlines


@given(st.binary(max_size=200))
def test_any_bytes_survive_the_way_there_and_back(data: bytes) -> None:
    style = TextStyle.of(data)
    try:
        text = style.decode(data)
    except UnicodeDecodeError:
        assert style.encoding.startswith(("utf-16", "utf-32"))
    else:
        again = style.encode(text)
        # a second mark is dropped: no program writes two
        assert again == data or data.startswith(style.mark * 2)


@pytest.mark.parametrize(
    ("data", "newline"),
    [
        (b"", "\n"),
        (b"one", "\n"),
        (b"a\nb", "\n"),
        (b"a\r\nb", "\r\n"),
        (b"a\r\nb\n", "\n"),
        (b"a\r\nb\r\nc\n", "\r\n"),
        ("\ufeffa\r\n".encode("utf-16-le"), "\r\n"),
    ],
)
def test_lines_end_as_most_of_them_do(data: bytes, newline: str) -> None:
    assert TextStyle.of(data).newline == newline


def test_a_mark_is_written_once() -> None:
    assert TextStyle.of(b"\xef\xbb\xbfx").encode("\ufeffy") == b"\xef\xbb\xbfy"
    assert TextStyle.of(b"x").encode("\ufeffy") == b"\xef\xbb\xbfy"


def test_line_ends_are_made_alike() -> None:
    assert with_newlines("a\nb\r\nc\rd", "\r\n") == "a\r\nb\r\nc\rd"
    assert with_newlines("a\nb\r\nc\rd", "\n") == "a\nb\nc\rd"
