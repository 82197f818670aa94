from __future__ import annotations

import json
from typing import Any

import pytest

from trunkline.search.definitions import MAX_NAMES, MAX_TEXT, SchemaWords


def words_of(schema: Any) -> SchemaWords:
    return SchemaWords(json.dumps(schema).encode())


def test_names_and_descriptions_of_parameters() -> None:
    read = words_of({"properties": {"city": {"description": "Where"}, "days": {"type": "integer"}}})
    assert (read.names, read.inner_names, read.texts) == (["city", "days"], [], ["Where"])


def test_parameters_inside_others_are_read_too() -> None:
    inner = {"type": "object", "properties": {"street": {"description": "With number"}}}
    schema = {"properties": {"home": inner, "others": {"type": "array", "items": inner}, "odd": {"anyOf": [inner, {}]}}}
    read = words_of(schema)
    assert read.names == ["home", "others", "odd"]
    assert read.inner_names == ["street"] * 3
    assert read.texts == ["With number"] * 3


def test_many_parameters_are_read_to_a_bound() -> None:
    read = words_of({"properties": {f"p{number}": {"description": "x" * 100} for number in range(1000)}})
    assert len(read.names) == MAX_NAMES
    assert sum(map(len, read.texts)) <= MAX_TEXT


def test_deep_ones_too() -> None:
    schema: dict[str, Any] = {}
    for _ in range(100):
        schema = {"properties": {"inner": schema}}
    assert len(words_of(schema).inner_names) < 10


@pytest.mark.parametrize(
    "schema",
    [
        b"",
        b"{",
        b"7",
        b"[]",
        b'{"properties":[]}',
        b'{"properties":{"a":7,"b":null}}',
        b"\xff",
        b'{"properties":{"\xff":{}}}',
        b'{"properties":{"a":{"description":3,"properties":4,"items":[],"anyOf":{}}}}',
        b"[" * 100_000,
    ],
)
def test_what_cannot_be_read_was_not_said(schema: bytes) -> None:
    assert SchemaWords(schema).texts == []
    assert set(SchemaWords(schema).names) <= {"a", "b"}
