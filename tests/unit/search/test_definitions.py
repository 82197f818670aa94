from __future__ import annotations

import pytest

from trunkline.core.tool import ToolDefinition
from trunkline.router.catalog import says_read_only
from trunkline.search.definitions import MAX_TAGS, SHORT, ParsedDefinition, parse_definition, shortened


def facts(definition: bytes) -> ParsedDefinition:
    return parse_definition(ToolDefinition("s", "t", definition))


def test_what_a_definition_says() -> None:
    schema = b'{"type":"object","properties":{"a":{},"b":true}}'
    definition = b'{"name":"t","title":"T","description":"d","inputSchema":%b,"annotations":{"title":"U"}}' % schema
    assert facts(definition) == ParsedDefinition("T", "d", schema)


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
    assert (read.title, read.description, read.tags) == ("", "", ())


def test_a_schema_comes_on_one_line() -> None:
    assert facts(b'{"inputSchema":{\n"properties":\r\n{"a":{}}}}').input_schema == b'{"properties":{"a":{}}}'


def test_a_description_is_shortened_to_its_first_line() -> None:
    assert shortened("\n \n  First   line. \nSecond") == "First line."
    assert shortened("") == ""
    cut = shortened("word, " * 100)
    assert len(cut) <= SHORT
    assert cut.endswith("word…")
    assert len(shortened("x" * 500)) == SHORT


def test_tags_and_keywords_are_read_wherever_servers_put_them() -> None:
    definition = (
        b'{"tags":["a"],"keywords":["b"],"_meta":{"tags":["c","a"],"x/y":{"tags":["d"]},"z":{"keywords":["e"]}}}'
    )
    assert facts(definition).tags == ("a", "b", "c", "d", "e")


@pytest.mark.parametrize("tags", [b"7", b'"a"', b"[1,null,{}]", b'["", "%b"]' % (b"x" * 100), b'{"a":1}'])
def test_tags_of_another_shape_were_not_said(tags: bytes) -> None:
    assert facts(b'{"tags":%b,"_meta":%b}' % (tags, tags)).tags == ()
    assert facts(b'{"_meta":{"tags":%b,"more":{"tags":%b}}}' % (tags, tags)).tags == ()


def test_there_is_a_bound_on_tags() -> None:
    many = b",".join(b'"t%d"' % number for number in range(1000))
    assert len(facts(b'{"tags":[%b]}' % many).tags) == MAX_TAGS


@pytest.mark.parametrize(
    "annotations, read_only",
    [
        (b'{"readOnlyHint":true}', True),
        (b'{"readOnlyHint":false}', False),
        (b'{"readOnlyHint":"true"}', False),
        (b'{"readOnlyHint":1,"title":"T"}', False),
        (b"{}", False),
        (b"[]", False),
    ],
)
def test_only_a_plain_true_says_read_only(annotations: bytes, read_only: bool) -> None:
    assert says_read_only(b'{"annotations":%b}' % annotations) is read_only
