from __future__ import annotations

import random

import pytest

from trunkline.runtime.child_io import HeadTailBuffer
from trunkline.sources.builtin.bash import MOST_OUTPUT_CHARACTERS, MOST_OUTPUT_LINES, output_text
from trunkline.sources.builtin.text_length import units


def text(data: bytes, *, head_bytes: int = 64 << 10, tail_bytes: int = 256 << 10) -> str:
    output = HeadTailBuffer(head_bytes=head_bytes, tail_bytes=tail_bytes)
    for start in range(0, len(data), 5000):
        output.add(data[start : start + 5000])
    return output_text(output)


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (b"", ""),
        (b"one\n", "one"),
        (b"\n\none\n\n\n", "\n\none"),
        (b"tab\tstays\n", "tab\tstays"),
        (b"one\r\ntwo\r\n", "one\ntwo"),
        (b"10%\r 50%\r100%\ndone\n", "100%\ndone"),
        (b"working\r", "working"),
        (b"\x1b[1;31mred\x1b[0m and \x1b[38;5;12mblue\x1b[m", "red and blue"),
        (b"\x1b]0;a title\x07text \x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "text link"),
        (b"\x1bP1$r0m\x1b\\device\x1b(B \x1b7cursor\x1b8", "device cursor"),
        (b"\x1b]no end\nnext line", "no end\nnext line"),
        (b"bell\x07 null\x00 back\x08", "bell null back"),
        (b"caf\xc3\xa9 \xff\xfe", "café \ufffd\ufffd"),
        ("\x9b31m".encode(), "31m"),
    ],
)
def test_what_is_shown_is_plain_text(written: bytes, shown: str) -> None:
    assert text(written) == shown


def test_of_many_lines_the_first_and_above_all_the_last_are_shown() -> None:
    shown = text(b"".join(b"line %d\n" % number for number in range(100_000)))
    lines = shown.split("\n")
    assert lines[0] == "line 0"
    assert lines[-1] == "line 99999"
    assert len(lines) < MOST_OUTPUT_LINES + 5
    middle = next(number for number, line in enumerate(lines) if "left out" in line)
    assert middle < len(lines) / 3
    assert lines[: middle - 1] == [f"line {n}" for n in range(middle - 1)]
    hidden = 100_000 - (len(lines) - 3)
    assert f"{hidden:,} lines" in lines[middle]


@pytest.mark.parametrize("width", [1, 7, 100, 3000, 29_000, 400_000])
@pytest.mark.parametrize("letter", ["x", "é", "𝄞"])
def test_whatever_is_written_the_text_stays_within_the_limits(width: int, letter: str) -> None:
    shown = text((letter * width + "\n").encode() * (400_000 // width))
    assert units(shown) <= MOST_OUTPUT_CHARACTERS + 100
    assert shown.count("\n") <= MOST_OUTPUT_LINES + 5
    assert "left out" in shown
    assert "\ufffd" not in shown


def test_what_just_fits_is_shown_whole() -> None:
    exactly = b"x" * (MOST_OUTPUT_CHARACTERS - 2 * (MOST_OUTPUT_LINES - 1)) + b"\ny" * (MOST_OUTPUT_LINES - 1)
    assert text(exactly + b"\n") == exactly.decode()
    assert "left out" in text(exactly + b"z")


def test_junk_of_any_kind_is_shown_without_delay() -> None:
    junk = random.Random(5)
    for alphabet in (b"\x1b", b"\x1b]", b"\x1b[;", b"\r", b"\x1bP", b"\x1b\\]x\n\r", bytes(range(256))):
        shown = text(bytes(junk.choices(alphabet, k=100_000)))
        assert units(shown) <= MOST_OUTPUT_CHARACTERS + 100
        assert "\x1b" not in shown
