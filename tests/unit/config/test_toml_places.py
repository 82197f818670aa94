"""Positions in TOML, also in invalid text."""

from __future__ import annotations

from trunkline.config.toml_parser import find_spans


def test_places_found_before_the_text_goes_wrong_are_kept() -> None:
    for rest in ("?", "[", "a.", "b = [", "b = {", 'b = "', "b = {x", "= 1"):
        found = find_spans(f"good = 1\n{rest}")
        assert found["good",].key == (1, 1, 1, 5)
        assert found["good",].value == (1, 8, 1, 9)


def test_a_value_of_several_lines_has_its_end_too() -> None:
    found = find_spans('a = [\n  1,\n]\nb = """\nx"""')
    assert found["a",].value == (1, 5, 3, 2)
    assert found["b",].value == (4, 5, 5, 5)


def test_a_very_deep_text_is_given_up() -> None:
    assert find_spans("a = " + "[" * 100_000) == {}
