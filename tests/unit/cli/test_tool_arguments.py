from __future__ import annotations

import json
from typing import Any

import click
import pytest

from trunkline.cli.tool_arguments import (
    check_name,
    check_text,
    is_whole,
    kinds_of,
    read_pairs,
    read_whole,
    split_pair,
)

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "ratio": {"type": "number"},
        "deep": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "options": {"type": "object"},
        "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "either": {"oneOf": [{"type": "integer"}, {"type": "string"}]},
        "both": {"type": ["boolean", "null"]},
        "level": {"$ref": "#/$defs/Level"},
        "colour": {"$ref": "#/$defs/Colour"},
        "wrapped": {"allOf": [{"$ref": "#/$defs/Level"}], "default": 1},
        "one": {"const": 1.5},
        "odd": {"enum": [1, None]},
        "loop": {"$ref": "#/properties/loop"},
        "far": {"$ref": "https://example.com/schema"},
        "broken": {"type": 7, "anyOf": "x", "$ref": 3},
        "strange": "not a schema",
    },
    "$defs": {"Level": {"enum": [1, 2, 3]}, "Colour": {"type": "string", "enum": ["red"]}},
}


def pairs(*typed: str, schema: dict[str, Any] = SCHEMA) -> Any:
    return json.loads(read_pairs(typed, schema))


def refusal(*typed: str) -> str:
    with pytest.raises(click.UsageError) as refused:
        read_pairs(typed, SCHEMA)
    return str(refused.value)


# Pairs ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        ("text=5", "5"),
        ("text=a=b", "a=b"),
        ("text=", ""),
        ('text="quoted"', '"quoted"'),
        ("text=größer 東京", "größer 東京"),
        ("count=5", 5),
        ("count=-1", -1),
        ("ratio=1.5e3", 1500.0),
        ("deep=true", True),
        ('tags=["a", "b"]', ["a", "b"]),
        ('options={"a": null}', {"a": None}),
        ("maybe=5", 5),
        ("maybe=null", None),
        ("either=5", "5"),
        ("both=false", False),
        ("level=2", 2),
        ("colour=red", "red"),
        ("wrapped=3", 3),
        ("one=1.5", 1.5),
        ("odd=1", 1),
        ("unknown=5", "5"),
        ("loop=5", "5"),
        ("far=5", "5"),
        ("broken=5", "5"),
        ("strange=5", "5"),
        ("text:=5", 5),
        ("text:=null", None),
        ("unknown:=[1]", [1]),
    ],
)
def test_a_value_is_what_the_schema_says(typed: str, value: Any) -> None:
    assert list(pairs(typed).values()) == [value]


def test_without_a_schema_a_value_is_text() -> None:
    assert pairs("a=5", "b=true", "c:=5", schema={}) == {"a": "5", "b": "true", "c": 5}
    assert pairs(schema={}) == {}


def test_numbers_are_passed_on_to_the_last_digit() -> None:
    typed = ["count=123456789012345678901234567890", "ratio=1.10", "big:= 1e999 "]
    assert read_pairs(typed, SCHEMA) == b'{"count":123456789012345678901234567890,"ratio":1.10,"big":1e999}'


def test_a_key_may_need_quotes_in_json() -> None:
    assert pairs('a"b=1', "é=2") == {'a"b': "1", "é": "2"}


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("count=five", "`count` must be a whole number, not `five`"),
        ("deep=yes", "`deep` must be `true` or `false`, not `yes`"),
        ("tags=a,b", "`tags` must be a JSON list, not `a,b`"),
        ("options=a", "`options` must be a JSON object, not `a`"),
        ("maybe=", "`maybe` must be a whole number or `null`, not ``"),
        ("ratio=NaN", "`ratio` must be a number, not `NaN`"),
        ("x:=Infinity", "`x` must be JSON"),
        ("x:=a", "`x` must be JSON"),
        ("x:=" + "[" * 100_000, "`x` must be JSON"),
        ("count=" + "x" * 1000, "x…`"),
        ("nothing", "`nothing` is neither `key=value` nor a JSON object"),
        ("=5", "`=5` is neither"),
        (":=5", "`:=5` is neither"),
        ("-", "`-` is neither"),
        ("[1]", "`[1]` is neither"),
    ],
)
def test_what_cannot_be_understood_is_told(typed: str, said: str) -> None:
    assert said in refusal(typed)
    assert len(refusal(typed)) < 200


def test_a_key_is_given_once() -> None:
    assert refusal("a=1", "b=2", "a:=3") == "`a` is given twice"


def test_a_json_object_stands_alone() -> None:
    assert "must be the only argument" in refusal('{"a": "b=c"}', "d=1")


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(click.UsageError, match=r"`a=\\udcff` is not valid UTF-8"):
        split_pair("a=\udcff")
    with pytest.raises(click.UsageError):
        check_text("\ud800")
    check_text("é")


def test_a_name_is_neither_empty_nor_endless() -> None:
    for name in ("", "x" * 1001, "\udcff"):
        with pytest.raises(click.UsageError):
            check_name(name)
    check_name("x" * 1000)


def test_what_the_schema_allows_is_read_however_it_is_written() -> None:
    assert kinds_of(SCHEMA, "maybe") == {"integer", "null"}
    assert kinds_of(SCHEMA, "odd") == {"integer", "null"}
    assert kinds_of({"properties": []}, "x") == set()
    assert kinds_of({"properties": {"x": {"$ref": "#/a~1b/c~0d"}}, "a/b": {"c~d": {"type": "null"}}}, "x") == {"null"}


# One object -----------------------------------------------------------------------------------------------------------


def test_one_object_is_told_from_pairs() -> None:
    assert is_whole(['  {"a": 1}'])
    assert is_whole(["{"])
    assert not is_whole(['{"a": 1}', "b=1"])
    assert not is_whole(["a={}"])
    assert not is_whole([])


def test_json_is_passed_on_as_it_was_written_on_one_line() -> None:
    assert read_whole('  {"n": 1.10, "big": 1e999}\n') == b'{"n": 1.10, "big": 1e999}'
    assert read_whole('{\n  "a": "é\\n",\r\n  "n": 123456789012345678901234567890\n}') == (
        '{"a":"é\\n","n":123456789012345678901234567890}'.encode()
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": 1', "line 1 column 8"),
        ('{"a": 1,\n"b" 2}', "line 2"),
        ("{'a': 1}", "double quotes"),
        ('{"a": NaN}', "not a JSON object"),
        ('{"a": 1, "a": 2}', "twice"),
        ("[1]", "must be one JSON object"),
        ("", "not a JSON object"),
        ('{"a": 1} {"b": 2}', "Extra data"),
        ("{" * 100_000, "not a JSON object"),
        ('{"a":' + "[" * 100_000 + "]" * 100_000 + "}", "not a JSON object"),
        ('{"a": "\udcff"}', "UTF-8"),
    ],
)
def test_what_is_no_json_object_is_told_with_its_place(text: str, said: str) -> None:
    with pytest.raises(click.UsageError) as refused:
        read_whole(text)
    assert said in str(refused.value)
