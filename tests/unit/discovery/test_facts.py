from __future__ import annotations

import pytest

from trunkline.core.tool import Tool
from trunkline.discovery.facts import SHORT, Facts, facts_of, shortened


def facts(definition: bytes) -> Facts:
    return facts_of(Tool("s", "t", definition))


def test_what_a_definition_says() -> None:
    schema = b'{"type":"object","properties":{"a":{},"b":true}}'
    definition = b'{"name":"t","title":"T","description":"d","inputSchema":%b,"annotations":{"title":"U"}}' % schema
    assert facts(definition) == Facts("T", "d", ("a", "b"), schema)


def test_a_title_may_stand_among_the_annotations() -> None:
    assert facts(b'{"annotations":{"title":"U"}}').title == "U"


@pytest.mark.parametrize(
    "definition",
    [
        b"{}",
        b"[]",
        b"not json",
        b'{"title":1,"description":null,"annotations":[],"inputSchema":7}',
        b'{"inputSchema":{"properties":[]},"annotations":{"title":{}}}',
        b'{"inputSchema":%b}' % (b"[" * 10_000 + b"]" * 10_000),
    ],
)
def test_what_cannot_be_read_was_not_said(definition: bytes) -> None:
    read = facts(definition)
    assert (read.title, read.description, read.parameters) == ("", "", ())


def test_a_schema_comes_on_one_line() -> None:
    assert facts(b'{"inputSchema":{\n"properties":\r\n{"a":{}}}}').input_schema == b'{"properties":{"a":{}}}'


def test_a_description_is_shortened_to_its_first_line() -> None:
    assert shortened("\n \n  First   line. \nSecond") == "First line."
    assert shortened("") == ""
    cut = shortened("word, " * 100)
    assert len(cut) <= SHORT
    assert cut.endswith("word…")
    assert len(shortened("x" * 500)) == SHORT
