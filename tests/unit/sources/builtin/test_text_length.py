from __future__ import annotations

import pytest

from trunkline.sources.builtin.text_length import first_units, last_units, printable, units


@pytest.mark.parametrize("text, count", [("", 0), ("abc", 3), ("é…", 2), ("a😀", 3), ("\udc80", 1)])
def test_a_text_is_as_long_as_clients_find_it(text: str, count: int) -> None:
    assert units(text) == count


def test_a_text_is_cut_between_characters() -> None:
    assert first_units("abcdef", 4) == "abcd"
    assert last_units("abcdef", 4) == "cdef"
    assert first_units("a😀😀b", 4) == "a😀"
    assert last_units("a😀😀b", 4) == "😀b"


def test_names_stay_in_one_line() -> None:
    assert printable("a b é") == "a b é"
    assert printable("a\nb\x1b\udcff") == "a\\nb\\x1b\ufffd"
