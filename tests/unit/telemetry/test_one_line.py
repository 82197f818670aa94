from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trunkline.telemetry.redaction import one_line


def test_plain_text_stays_as_it_is():
    assert one_line("Grüße, 世界 🙂", 50) == "Grüße, 世界 🙂"


def test_control_characters_are_written_as_escapes():
    assert one_line("a\nb\x1b[2J\u202e", 50) == r"a\nb\x1b[2J\u202e"


def test_what_is_hidden_and_yet_printable_is_written_as_an_escape_too():
    assert one_line("a\u3164\ufe0f b", 50) == r"a\u3164\ufe0f b"
    assert one_line("\u26a0\ufe0f careful", 50) == "\u26a0\ufe0f careful"


def test_long_text_is_cut_and_shows_it():
    assert one_line("abcdefgh", 5) == "abcd…"


@given(st.text(st.characters(exclude_categories=())), st.integers(2, 40))
def test_any_text_becomes_one_printable_line_within_its_limit_and_stays_so(text, limit):
    line = one_line(text, limit)
    assert line.isprintable()
    assert len(line) <= limit
    assert one_line(line, limit) == line
