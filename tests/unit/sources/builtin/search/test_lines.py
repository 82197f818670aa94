from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from trunkline.sources.builtin.search.lines import Lines, is_binary, read_text


def shown(text: str, pattern: str, before: int = 0, after: int = 0, *, multiline: bool = False) -> list[str]:
    flags = re.MULTILINE | (re.DOTALL if multiline else 0)
    lines = Lines(text, re.compile(pattern, flags), multiline=multiline)
    return [f"{number}{'-' if at < 0 else f'@{at}:'}{line}" for number, line, at in lines.shown(before, after)]


def test_matching_lines_with_their_numbers_and_places() -> None:
    assert shown("one\ntwo\nthree", "t") == ["2@0:two", "3@0:three"]
    assert shown("one\n  two\n", "t") == ["2@2:  two"]


@pytest.mark.parametrize("text", ["", "\n", "a", "a\n"])
def test_short_texts_have_no_line_too_many(text: str) -> None:
    count = len(text.splitlines())
    for multiline in (False, True):
        assert len(shown(text, "^", 2, 2, multiline=multiline)) == count


def test_a_match_does_not_reach_into_the_next_line() -> None:
    assert shown("a\nb\n", r"a\s*b") == []
    assert shown("a\nb\n", r"a\sb") == []
    assert shown("ab\nb\n", "[^x]b$") == ["1@0:ab"]


def test_lookarounds_see_their_line_only() -> None:
    assert shown("a\nb\n", r"a(?!\n)") == ["1@0:a"]
    assert shown("a\nb\n", r"\Ab") == ["2@0:b"]


def test_each_line_is_shown_once_however_near_the_matches_are() -> None:
    text = "".join(f"{number}\n" for number in range(1, 10))
    assert shown(text, "^[357]$", 1, 1) == ["2-2", "3@0:3", "4-4", "5@0:5", "6-6", "7@0:7", "8-8"]
    assert shown(text, "^[39]$", 0, 2) == ["3@0:3", "4-4", "5-5", "9@0:9"]
    assert shown(text, "^[12]$", 5) == ["1@0:1", "2@0:2"]


def test_a_match_over_several_lines_shows_all_of_them() -> None:
    assert shown("x\nab\ncd\ny\n", "b.c", multiline=True) == ["2@1:ab", "3@0:cd"]
    assert shown("ab\ncd\n", "b\n", multiline=True) == ["1@1:ab"]
    assert shown("abab\n", "a", multiline=True) == ["1@0:abab"]


def test_counting() -> None:
    text = "x x\nx\n\ny\n"
    assert Lines(text, re.compile("x"), multiline=False).count() == 2
    assert Lines(text, re.compile("x"), multiline=True).count() == 3


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"a\r\nb", "a\nb"),
        ("é".encode("utf-16"), "é"),
        (b"\xef\xbb\xbfa", "a"),
        (b"a\xff", "a\ufffd"),
        (b"a\0b", None),
        (b"a" * 9000 + b"\0", "a" * 9000 + "\0"),
        (b"", ""),
    ],
)
def test_how_files_are_read(tmp_path: Path, data: bytes, text: str | None) -> None:
    (tmp_path / "file").write_bytes(data)
    fd = os.open(tmp_path / "file", os.O_RDONLY)
    try:
        assert read_text(fd) == text
    finally:
        os.close(fd)
    assert is_binary(data) is (text is None)
