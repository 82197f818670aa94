from __future__ import annotations

import json

import pytest

from trunkline.protocol.mcp.tool_results import error_result, result_of


def text(value: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": value}]


@pytest.mark.parametrize(
    ("value", "result"),
    [
        (b'"hello \\u00e9"', {"content": text("hello é")}),
        (b' {"a": 1.10} ', {"content": text('{"a": 1.10}'), "structuredContent": {"a": 1.1}}),
        (b"[1,2]", {"content": text("[1,2]")}),
        (b"null", {"content": text("null")}),
        (b"true", {"content": text("true")}),
        (b"12345678901234567890123", {"content": text("12345678901234567890123")}),
        (
            b'{"content":"page"}',
            {"content": text('{"content":"page"}'), "structuredContent": {"content": "page"}},
        ),
        (b'{"content":[]}', {"content": text('{"content":[]}'), "structuredContent": {"content": []}}),
        (b'{"content":[1]}', {"content": text('{"content":[1]}'), "structuredContent": {"content": [1]}}),
    ],
)
def test_a_plain_value_becomes_a_result(value: bytes, result: dict[str, object]) -> None:
    assert json.loads(result_of(value)) == result


def test_the_value_stays_as_it_was_written() -> None:
    value = b'{"z":1.10,"big":123456789012345678901234567890,"a":"\\u00e9"}'
    assert b'"structuredContent":' + value in result_of(value)


def test_line_breaks_between_tokens_do_not_reach_the_frame() -> None:
    made = result_of(b'{\n"a":\r\n"b c"\n}')
    assert b"\n" not in made and b"\r" not in made
    assert json.loads(made)["structuredContent"] == {"a": "b c"}


def test_a_result_of_mcp_is_left_as_it_is() -> None:
    image = {"content": [{"type": "image", "data": "aGk=", "mimeType": "image/png"}], "isError": False}
    assert json.loads(result_of(json.dumps(image).encode())) == image


@pytest.mark.parametrize(
    "document",
    [
        {"content": [{"type": "paragraph", "text": "of a document"}]},
        {"content": [{"type": "text"}]},
        {"content": [{"type": "image", "data": "aGk="}]},
        {"content": text("x"), "isError": "no"},
        {"content": text("x"), "_meta": 3},
    ],
)
def test_what_only_looks_like_a_result_of_mcp_is_data(document: dict[str, object]) -> None:
    made = json.loads(result_of(json.dumps(document).encode()))
    assert made["structuredContent"] == document
    assert json.loads(made["content"][0]["text"]) == document


def test_a_failure_is_marked() -> None:
    own = json.dumps({"content": text("no"), "isError": False}).encode()
    assert json.loads(result_of(own, is_error=True)) == {"content": text("no"), "isError": True}
    assert json.loads(result_of(b'{"why":1}', is_error=True))["isError"] is True
    assert json.loads(result_of(json.dumps({"content": text("no")}).encode(), is_error=True))["isError"] is True
    assert json.loads(error_result('it "broke"')) == {"content": text('it "broke"'), "isError": True}


def test_meta_is_added_to_what_is_there() -> None:
    assert json.loads(result_of(b'"x"', meta={"a/b": b"[1]"}))["_meta"] == {"a/b": [1]}
    own = json.dumps({"content": text("x"), "_meta": {"c": 1, "a/b": 0}}).encode()
    assert json.loads(result_of(own))["_meta"] == {"c": 1, "a/b": 0}
    assert json.loads(result_of(own, meta={"a/b": b"[1]"}))["_meta"] == {"c": 1, "a/b": [1]}
