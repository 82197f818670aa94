"""JSON-RPC messages: what is read, what is refused and with which code."""

from __future__ import annotations

import json

import pytest

from trunkline.mcpserver.messages import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    PARSE_ERROR,
    Message,
    RpcError,
    decode,
    encode,
    read_message,
    refusal,
    response,
)


@pytest.mark.parametrize(
    "line",
    [b"nonsense", b"{", b'{"a":NaN}', b"[1e", b'"\xff"', b"[" * 100_000, b"1" * 10_000, b"\xef\xbb\xbf{}", b"{}{}"],
    ids=["words", "half", "NaN", "half number", "not UTF-8", "deep", "endless number", "BOM", "two"],
)
def test_what_is_not_json_is_a_parse_error(line: bytes) -> None:
    with pytest.raises(RpcError) as refused:
        decode(line)
    assert refused.value.code == PARSE_ERROR


@pytest.mark.parametrize(
    ("value", "code", "number"),
    [
        (1, INVALID_REQUEST, None),
        ([], INVALID_REQUEST, None),
        ({}, INVALID_REQUEST, None),
        ({"jsonrpc": "1.0", "id": 5, "method": "ping"}, INVALID_REQUEST, 5),
        ({"jsonrpc": "2.0", "id": 5}, INVALID_REQUEST, 5),
        ({"jsonrpc": "2.0", "id": 5, "method": 3}, INVALID_REQUEST, 5),
        ({"jsonrpc": "2.0", "id": None, "method": "ping"}, INVALID_REQUEST, None),
        ({"jsonrpc": "2.0", "id": True, "method": "ping"}, INVALID_REQUEST, None),
        ({"jsonrpc": "2.0", "id": 1.5, "method": "ping"}, INVALID_REQUEST, None),
        ({"jsonrpc": "2.0", "id": "a", "method": "ping", "params": []}, INVALID_PARAMS, "a"),
    ],
)
def test_what_is_no_message_is_refused_with_its_id_where_that_can_be_read(value, code, number) -> None:
    with pytest.raises(RpcError) as refused:
        read_message(value)
    assert (refused.value.code, refused.value.message_id) == (code, number)


def test_a_request_keeps_the_type_of_its_id_and_a_notification_has_none() -> None:
    assert read_message({"jsonrpc": "2.0", "id": "1", "method": "ping"}) == Message("ping", {}, "1")
    assert read_message({"jsonrpc": "2.0", "method": "x", "params": {"a": 1}}) == Message("x", {"a": 1}, None)


def test_parameters_that_are_null_are_as_good_as_none() -> None:
    assert read_message({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": None}) == Message("ping", {}, 1)


@pytest.mark.parametrize("members", [{"result": {}}, {"error": {"code": 1}}])
def test_a_response_is_nothing_to_answer(members) -> None:
    assert read_message({"jsonrpc": "2.0", "id": 1, **members}) is None
    assert read_message({"jsonrpc": "2.0", "id": None, "error": {}}) is None


def test_meta_that_is_no_object_is_as_good_as_none() -> None:
    assert Message("x", {"_meta": 3}, 1).meta == {}
    assert Message("x", {"_meta": {"a": 1}}, 1).meta == {"a": 1}


def test_answers_are_one_line_of_json() -> None:
    assert json.loads(response("a", b'{"x":1}')) == {"jsonrpc": "2.0", "id": "a", "result": {"x": 1}}
    error = json.loads(refusal(None, RpcError(-32022, "no\nway", {"supported": []})))
    assert error == {
        "jsonrpc": "2.0",
        "id": None,
        "error": {"code": -32022, "message": "no\nway", "data": {"supported": []}},
    }
    assert b"\n" not in encode({"text": "two\nlines"})


def test_half_a_surrogate_pair_becomes_something_that_everybody_can_read() -> None:
    assert encode("a\ud800b") == b'"a?b"'
    assert encode("ä\u2028") == '"ä\u2028"'.encode()
