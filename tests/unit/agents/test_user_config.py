"""How the configuration that users write for their agents is read and put together."""

from __future__ import annotations

import pytest

from trunkline.agents.user_config import merged, picked, read_config


def test_comments_and_last_commas_are_read_over() -> None:
    text = '{\n  // why\n  "a": [1, 2.5, -3e2, true, null, "x // y",],\n  /* more */ "b": {"c": false,},\n}'
    assert read_config(text) == {"a": [1, 2.5, -300.0, True, None, "x // y"], "b": {"c": False}}


@pytest.mark.parametrize("text", ["", "[]", "5", "{", '{"a" 1}', '{"a": 1} x', "[" * 100_000])
def test_what_is_no_object_is_nothing(text: str) -> None:
    assert read_config(text) is None


def test_of_two_values_the_later_one_counts_and_objects_are_merged() -> None:
    assert merged({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"c": 4}, "d": {"e": 5}}) == {
        "a": {"b": 1, "c": 4},
        "d": {"e": 5},
    }


def test_only_what_was_asked_for_is_picked() -> None:
    values = {"a": {"b": 1, "c": 2}, "d": 3, "e": {"f": {}}}
    assert picked(values, (("a", "b"), ("d",), ("d", "x"), ("e", "f"), ("missing",))) == {
        "a": {"b": 1},
        "d": 3,
        "e": {"f": {}},
    }
