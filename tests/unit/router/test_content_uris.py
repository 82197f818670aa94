from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.router.result_rewriting import map_error_uri, map_uris

LINK = {"type": "resource_link", "uri": "x://1", "name": "n"}
EMBEDDED = {"type": "resource", "resource": {"uri": "x://1", "text": "t"}}
TEXT = {"type": "text", "text": 'a "resource" with "uri": "x://1"'}


def renamed(text: str) -> str:
    return text.replace('"uri": "x://1", "', '"uri": "new", "')


@pytest.mark.parametrize(
    "result",
    [
        {"content": [TEXT, LINK, EMBEDDED], "isError": False},
        {"messages": [{"role": "user", "content": LINK}, {"role": "user", "content": [TEXT, EMBEDDED]}]},
        {"contents": [{"uri": "x://1", "text": "t"}, {"uri": "y://1", "blob": ""}]},
        {"taskId": "1", "status": "completed", "result": {"content": [LINK]}},
    ],
)
def test_uris_are_changed_where_a_result_has_them(result: dict[str, Any]) -> None:
    raw = json.dumps(result).encode()
    seen: list[str] = []

    def change(uri: str) -> str:
        seen.append(uri)
        return "new" if uri == "x://1" else uri

    changed = json.loads(map_uris(raw, change))
    expected = json.loads(renamed(json.dumps(result)))
    assert changed == expected
    assert "x://1" in seen
    assert map_uris(raw, lambda uri: uri) is raw


@pytest.mark.parametrize(
    "raw",
    [
        b'{"content":[{"type":"text","text":"x"}]}',
        b'{"content":[{"type":"resource"}]}',
        b'{"content":[{"type":"resource_link","uri":5}]}',
        b'{"content":"resource"}',
        b'{"contents":{"resource":1}}',
        b'{"messages":[[{"resource":1}]]}',
        b'{"structuredContent":{"content":[{"type":"resource_link","uri":"x"}]}}',
        b'["resource"]',
        b'{"contents":[' + b"[" * 5000,
    ],
)
def test_what_cannot_be_read_for_sure_stays_as_it_is(raw: bytes) -> None:
    assert map_uris(raw, lambda _: "new") is raw


def test_the_rest_of_a_changed_result_is_byte_for_byte_the_same() -> None:
    raw = b'{ "content":[{"type":"resource_link","uri":"x","size":1.0e3,"_meta":{"a" : 1}}],"n":12345678901234567890}'
    changed = map_uris(raw, lambda _: "y")
    assert changed == (
        b'{"content":[{"type":"resource_link","uri":"y","size":1.0e3,"_meta":{"a" : 1}}],"n":12345678901234567890}'
    )


def test_the_uri_in_an_error_is_changed() -> None:
    error = b'{"code":-32602,"message":"no","data":{"uri":"x","more":1}}'
    assert map_error_uri(error, lambda _: "y") == b'{"code":-32602,"message":"no","data":{"uri":"y","more":1}}'
    for other in (b'{"code":1,"message":"x"}', b'{"data":[1]}', b'{"data":null}'):
        assert map_error_uri(other, lambda _: "y") is other


@given(
    st.recursive(
        st.none() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["content", "contents", "messages", "resource", "type", "uri", "result"]),
                inner,
                max_size=4,
            )
        ),
    )
)
def test_no_result_makes_it_fail(result: object) -> None:
    raw = json.dumps({"content": result, "contents": result, "messages": result, "r": "resource"}).encode()
    json.loads(map_uris(raw, lambda uri: uri + "!"))


@pytest.mark.parametrize(
    "block",
    [
        b'{"type":"\\u0072esource_link","uri":"x://1"}',
        b'{"typ\\u0065":"resource_link","\\u0075ri":"x://1"}',
        b'{"type":"resource_link","uri":"y://1","uri":"x://1"}',
        b'{"type":"text","type":"resource_link","uri":"x://1"}',
        b'{"type":"resource_link","uri":"x://1","a":1,"a":2}',
        b'{"type":"\\u0072esource","\\u0072esource":{"uri":"z://1","uri":"x://1"}}',
    ],
)
@pytest.mark.parametrize("member", [b'"content"', b'"c\\u006fntent"', b'"content":[],"content"'])
def test_no_spelling_hides_a_uri(member: bytes, block: bytes) -> None:
    changed = map_uris(b"{%b:[%b]}" % (member, block), lambda uri: "new" if uri == "x://1" else "other")
    assert b"x://1" not in changed
    assert json.loads(changed)["content"][0].get("uri", "new") == "new"


@pytest.mark.parametrize(
    "odd",
    [
        b'{"type":"resource_link","uri":1e999}',
        b'{"type":1e999,"x":"resource_link"}',
        b'{"type":"resource","resource":{"uri":1e999}}',
        b'"resource"',
        b"null",
    ],
)
def test_no_odd_block_beside_it_hides_a_uri(odd: bytes) -> None:
    raw = b'{"content":[%b,{"type":"resource_link","uri":"a:b"}]}' % odd
    assert b'"uri":"changed a:b"' in map_uris(raw, lambda uri: f"changed {uri}")


def test_of_two_uris_only_the_last_is_shown_even_where_that_is_as_it_should_be() -> None:
    raw = b'{"contents":[{"uri":"hidden://1","uri":"x://1"}]}'
    assert map_uris(raw, lambda uri: uri) == b'{"contents":[{"uri":"x://1"}]}'
