from __future__ import annotations

import io
import json
import os
import pty
import sys
from contextlib import closing

import click
import pytest
from tests.support.fake_terminal import screen

from trunkline.cli.terminal import (
    echo_data,
    echo_json,
    json_text,
    plain,
    prepare_streams,
    print_error,
    print_hint,
    shown_width,
    terminal_safe,
    terminal_width,
    truncated,
    wants_colour,
)

HOSTILE = "a\x1b[31mred\x1b]0;title\x07\x9b2J\x7f\u202eevil\u2066b"


# Text from outside ----------------------------------------------------------------------------------------------------


def test_plain_text_is_one_line_of_printable_characters() -> None:
    assert plain("  two\r\n\tlines \x00\x1b[1m ") == "two lines [1m"
    assert plain(HOSTILE).isprintable()
    assert plain("größer 東京 😀") == "größer 東京 😀"


def test_tamed_text_keeps_its_lines_and_tabs_and_nothing_a_terminal_obeys() -> None:
    assert terminal_safe("a\tb\r\nc\nd") == "a\tb\nc\nd"
    assert terminal_safe("progress\rdone") == "progress\ufffddone"
    assert terminal_safe("\x1b[2J") == "\ufffd[2J"
    assert all(ch.isprintable() for ch in terminal_safe(HOSTILE))
    assert terminal_safe("مرحبا שלום") == "مرحبا שלום"


def test_what_is_hidden_is_shown_and_what_is_joined_stays() -> None:
    tagged = "x\U000e0041\u200b\u3164"
    assert plain(tagged) == terminal_safe(tagged) == "x<U+E0041><U+200B><U+3164>"
    family = "\U0001f468\u200d\U0001f469"
    assert plain(family) == terminal_safe(family) == family
    text = json_text(json.dumps({"s": tagged + family}, ensure_ascii=False).encode())
    assert r"x\udb40\udc41\u200b\u3164" in text
    assert json.loads(text) == {"s": tagged + family}


def test_what_is_tamed_depends_on_the_stream_it_goes_to(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    echo_data(HOSTILE)
    echo_data(HOSTILE, err=True)
    assert capsys.readouterr() == (f"{HOSTILE}\n", f"{HOSTILE}\n")
    error_screen = screen(monkeypatch, "stderr")
    echo_data(HOSTILE)
    echo_data(HOSTILE, err=True)
    assert capsys.readouterr().out == f"{HOSTILE}\n"
    assert error_screen.getvalue() == f"{terminal_safe(HOSTILE)}\n"


def test_json_keeps_every_digit_and_shows_nothing_that_a_terminal_obeys() -> None:
    raw = '{"n":1.10,"big":1e999,"id":123456789012345678901234567890,"s":"\x9b\x7f\u2028\u202e é"}'.encode()
    text = json_text(raw)
    assert '"n": 1.10' in text
    assert '"big": 1e999' in text
    assert '"id": 123456789012345678901234567890' in text
    assert r'"s": "\u009b\u007f\u2028\u202e é"' in text
    assert json.loads(text)["s"] == "\x9b\x7f\u2028\u202e é"
    assert text.count("\n") == 5


@pytest.mark.parametrize("raw", [b"{broken", b"[" * 100_000 + b"]" * 100_000, b'"\xff"'])
def test_json_that_cannot_be_laid_out_is_shown_as_it_is(raw: bytes) -> None:
    assert json_text(raw) == raw.decode("utf-8", "replace")


def test_values_of_our_own_are_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    echo_json({"a": ["é", 1]})
    assert json.loads(capsys.readouterr().out) == {"a": ["é", 1]}


def test_a_complaint_is_one_line_and_its_hint_another(capsys: pytest.CaptureFixture[str]) -> None:
    print_error("TL1:\nwrong\x1b[0m", "do\nthis")
    print_error("look", kind="warning")
    print_hint("then that", indent="  ")
    assert capsys.readouterr() == ("", "error: TL1: wrong [0m\nhint: do this\nwarning: look\n  hint: then that\n")


# Columns --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "width"), [("abc", 3), ("", 0), ("東京", 4), ("e\u0301", 1), ("ﾊﾟ", 2), ("😀", 2)])
def test_widths_are_columns_on_a_screen(text: str, width: int) -> None:
    assert shown_width(text) == width


@pytest.mark.parametrize("width", range(1, 12))
@pytest.mark.parametrize("text", ["hello world", "東京東京東京", "a", "e\u0301" * 20])
def test_cut_text_fits(text: str, width: int) -> None:
    found = truncated(text, width)
    assert shown_width(found) <= width
    assert found == text or found.endswith("…")


def test_the_width_is_that_of_the_terminal_behind_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    ours, theirs = pty.openpty()
    try:
        import termios

        with closing(os.fdopen(os.dup(theirs), "w")) as stream:
            termios.tcsetwinsize(theirs, (24, 61))
            assert terminal_width(stream) == 61
            termios.tcsetwinsize(theirs, (0, 0))
            assert terminal_width(stream) == 100
            monkeypatch.setenv("COLUMNS", "44")
            assert terminal_width(stream) == 44
            monkeypatch.setenv("COLUMNS", "wide")
            assert terminal_width(stream) == 100
    finally:
        os.close(ours)
        os.close(theirs)
    assert terminal_width(io.StringIO()) == 100


# Streams --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({}, True),
        ({"TERM": "xterm"}, True),
        ({"NO_COLOR": ""}, True),
        ({"NO_COLOR": "1"}, False),
        ({"TERM": "dumb"}, False),
    ],
)
def test_colours_are_wanted_unless_somebody_says_no(environ: dict[str, str], wanted: bool) -> None:
    assert wants_colour(environ) is wanted


def test_a_character_that_the_encoding_lacks_is_no_reason_to_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="latin-1", errors="strict"))
    prepare_streams()
    click.echo("… \udcff")
    sys.stdout.flush()
    assert written.getvalue() == b"\\u2026 \\udcff\n"
