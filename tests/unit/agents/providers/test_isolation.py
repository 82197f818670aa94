"""Reading and merging the configuration that users write for their agents."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trunkline.agents.providers.isolation import json_text, merged, picked, read_config, user_text
from trunkline.agents.providers.provider import UserSetup
from trunkline.core.errors import AGENT_FAILED, GatewayError


def test_comments_and_last_commas_are_read_over() -> None:
    text = '{\n  // why\n  "a": [1, 2.5, -3e2, true, null, "x // y",],\n  /* more */ "b": {"c": false,},\n}'
    assert read_config(text, "x.json") == {"a": [1, 2.5, -300.0, True, None, "x // y"], "b": {"c": False}}


@pytest.mark.parametrize("text", ["", " \n"])
def test_an_empty_file_is_an_empty_configuration(text: str) -> None:
    assert read_config(text, "x.json") == {}


@pytest.mark.parametrize(
    ("text", "where"),
    [
        *(("[]", "x.json"), ("5", "x.json"), ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", "x.json")),
        *(("{", "x.json:1:2"), ('{"a" 1}', "x.json:1:6"), ('{"a": 1} x', "x.json:1:10"), ("\ufeff{}", "x.json:1:1")),
        *(('{"a": 1,\n"a": 2}', "x.json:2:1"), ("[" * 100_000, "x.json")),
    ],
)
def test_what_is_no_object_is_told_with_its_place(text: str, where: str) -> None:
    with pytest.raises(GatewayError) as raised:
        read_config(text, "x.json")
    assert raised.value.problem.code is AGENT_FAILED
    assert raised.value.problem.where.startswith(where)


def test_a_file_that_is_there_and_cannot_be_read_is_told() -> None:
    place = Path("/home/user/x.json")
    home = UserSetup(folder=Path("/home/user"), environ={}, present=frozenset({place}))
    with pytest.raises(GatewayError) as raised:
        user_text(home, "x", place)
    assert raised.value.problem.where == str(place)
    assert user_text(home, "y", Path("/home/user/y.json")) == ""


def test_whatever_was_read_can_be_written() -> None:
    text = '{"half": "\\udfff", "large": 123456789012345678901234567890, "larger": 1e999, "digits": 1%s}'
    read = read_config(text % ("0" * 5000), "x.json")
    assert json.loads(json_text(read)) == {
        "half": "\udfff",
        "large": 123456789012345678901234567890,
        "larger": None,
        "digits": None,
    }


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
