from __future__ import annotations

import json
import sys
from collections.abc import Callable

import msgspec
import pytest

from trunkline.core.errors import DEADLINE, INVALID_REQUEST, PARSE_ERROR, Code, Problem
from trunkline.protocol.jsonrpc import (
    BadMessage,
    Members,
    decode_server_message,
    encode_error,
    encode_notification,
    has_member,
    members_of,
    mend_surrogates,
    parse_message,
    readable_id,
    single_line,
    text_member,
)


def refusal(data: bytes) -> BadMessage:
    with pytest.raises(BadMessage) as refused:
        parse_message(data)
    return refused.value


def test_a_request_a_notification_and_a_response_are_told_apart() -> None:
    request = parse_message(b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{}}')
    assert (request.id, request.method) == (1, "ping")
    notice = parse_message(b'{"jsonrpc":"2.0","method":"x"}')
    assert (notice.id, notice.method, notice.params, notice.id_json) == (None, "x", None, b"null")
    response = parse_message(b'{"jsonrpc":"2.0","id":"a","result":{}}')
    assert (response.method, response.id, response.error) == (None, "a", None)
    error = parse_message(b'{"jsonrpc":"2.0","id":2,"error":{}}')
    assert error.result is None


@pytest.mark.parametrize("id_json", [b"0", b"-1", b"1", b'"1"', b'""', b'"\\u00e9"', b"123456789012345678901234567890"])
def test_an_id_is_kept_as_it_was_written(id_json: bytes) -> None:
    message = parse_message(b'{"jsonrpc":"2.0","id":%b,"method":"x"}' % id_json)
    assert message.id_json == id_json
    assert message.id == json.loads(id_json)


@pytest.mark.parametrize("id_json", [b"null", b"1.0", b"1e3", b"true", b"[]", b"{}", b"1.5"])
def test_an_id_is_a_string_or_an_integer(id_json: bytes) -> None:
    error = refusal(b'{"jsonrpc":"2.0","id":%b,"method":"x"}' % id_json)
    assert (error.code, error.id_json) == (INVALID_REQUEST, b"null")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b"", PARSE_ERROR),
        (b"{", PARSE_ERROR),
        (b'{"jsonrpc":"2.0","id":1,"method":"x"} x', PARSE_ERROR),
        (b'{"jsonrpc":"2.0","id":1,"method":"x"}{}', PARSE_ERROR),
        (b'{"jsonrpc":"2.0","id":1,"method":"x",}', PARSE_ERROR),
        (b'{"jsonrpc":"2.0","id":1,"method":"x","params":NaN}', PARSE_ERROR),
        (b'{"jsonrpc":"2.0","id":1,"method":"x","params":Infinity}', PARSE_ERROR),
        (b'{"jsonrpc":"2.0","id":1,"method":"x","params":"\xff"}', PARSE_ERROR),
        (b'{"jsonrpc":"2.0","id":1,"method":"x","params":"\xed\xa0\x80"}', PARSE_ERROR),
        (b'{"jsonrpc":"2.0","id":1,"method":"x","params":"a\nb"}', PARSE_ERROR),
        (b'{"jsonrpc":"2.0","id":1,"method":"x","params":%b}' % (b"[" * 100_000), PARSE_ERROR),
        (b"null", INVALID_REQUEST),
        (b"1", INVALID_REQUEST),
        (b'"x"', INVALID_REQUEST),
        (b"[]", INVALID_REQUEST),
        (b'[{"jsonrpc":"2.0","id":1,"method":"x"}]', INVALID_REQUEST),
        (b"{}", INVALID_REQUEST),
        (b'{"id":1,"method":"x"}', INVALID_REQUEST),
        (b'{"jsonrpc":2.0,"id":1,"method":"x"}', INVALID_REQUEST),
        (b'{"jsonrpc":"1.0","id":1,"method":"x"}', INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":1,"method":1}', INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":1}', INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","result":{}}', INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":1,"result":{},"error":{}}', INVALID_REQUEST),
    ],
)
def test_what_is_no_message_is_refused_with_the_right_code(text: bytes, code: Code) -> None:
    assert refusal(text).code is code


@pytest.mark.parametrize(
    "text",
    [
        b'{"jsonrpc":"2.0","id":7}',
        b'{"jsonrpc":"1.0","id":7,"method":"x"}',
        b'{"jsonrpc":"2.0","method":[],"id":7}',
    ],
)
def test_a_refusal_carries_the_id_where_it_could_be_read(text: bytes) -> None:
    assert refusal(text).id_json == b"7"


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":1,"a":2}',
        b'{"a":1, "b":2,"a":1}',
        b'{"a":1,"\\u0061":1}',
        b'{"\\u0061":1,"a":1}',
        '{"é":1,"é":1}'.encode(),
        b'{"":1,"":1}',
        b'{"a":[],"a":[]}',
        b' { "a" : 1 , "a" : 1 } ',
    ],
)
def test_a_name_that_comes_twice_is_refused_however_it_is_spelled(text: bytes) -> None:
    with pytest.raises(BadMessage, match="twice") as refused:
        members_of(text, "it")
    assert refused.value.code is INVALID_REQUEST


@pytest.mark.parametrize(
    "text", [b'{"a":1,"A":1}', b'{"a":{"a":1,"a":2}}', b'{"a":"a","b":"\\"a\\":1"}', b"{ }", b"{}"]
)
def test_names_that_only_look_alike_are_taken(text: bytes) -> None:
    assert isinstance(members_of(text, "it"), dict)


def test_a_number_of_any_length_beside_an_escaped_name_is_taken() -> None:
    assert list(members_of(b'{"\\u0061":%b}' % (b"1" * 5000), "it")) == ["a"]


def test_a_member_is_seen_however_it_is_spelled() -> None:
    assert has_member(b'{"a":1,"resul\\u0074Type":1}', "resultType")
    assert not has_member(b'{"x":{"resultType":1}}', "resultType")


def test_a_text_member_is_a_string_or_absent() -> None:
    members: Members = members_of(b'{"a":"\\u00e9","b":1}', "it")
    assert text_member(members, "a") == "é"
    assert text_member(members, "c") is None
    with pytest.raises(BadMessage):
        text_member(members, "b")


@pytest.mark.parametrize(
    ("head", "found"),
    [
        (b'{"jsonrpc":"2.0","id":12,"result":{"a', 12),
        (b'{"id":12,"result":', 12),
        (b' {\t"jsonrpc" : "2.0" , "id" : 12 }', 12),
        (b'{"id":12}', 12),
        (b'{"id":12', None),
        (b'{"id":"12","result"', None),
        (b'{"id":-12,"result"', None),
        (b'{"id":1.2,"result"', None),
        (b'{"result":{"id":12,', None),
        (b'{"method":"x","id":12,', None),
        (b'[{"id":12,', None),
        (b'{"id":1234567890123456,', None),
        (b"", None),
    ],
)
def test_only_an_id_at_the_very_start_of_a_broken_answer_is_believed(head: bytes, found: int | None) -> None:
    assert readable_id(head) == found


def test_one_line_keeps_spelling_and_order() -> None:
    odd = b'{\r\n"z" : 1.10,\n"a":[ 1E400, -0.0 ],"e":"\\u0041\\/ \xc3\xa9"}'
    assert single_line(odd) == b'{"z":1.10,"a":[1E400,-0.0],"e":"\\u0041\\/ \xc3\xa9"}'
    assert single_line(msgspec.Raw(b'{"a": 1}')) == b'{"a": 1}'
    assert single_line(memoryview(b"[\n]")) == b"[]"


def test_a_problem_becomes_an_error_object() -> None:
    problem = Problem(code=DEADLINE, message='says "no"\n', phase="sent", executed="unknown")
    error = json.loads(encode_error(problem))
    assert error["code"] == 504
    assert error["message"] == 'says "no"\n'
    assert error["data"]["code"] == "TL305"
    assert b"\n" not in encode_error(problem)


@pytest.mark.law
@pytest.mark.parametrize("method", ['x","id":1,"result":{},"z":"', "x\r\n{}", 'x"}\n{"jsonrpc":"2.0"', "\\", "é"])
def test_a_method_that_a_peer_chose_stays_one_string_on_one_line(method: str) -> None:
    for message in (encode_notification(method), encode_notification(method, b'{"a":1}')):
        assert b"\n" not in message
        notification = parse_message(message)
        assert (notification.method, notification.id, notification.result) == (method, None, None)


# Half characters -----------------------------------------------------------------------------------------------------


def test_a_text_without_half_a_character_is_not_copied() -> None:
    for text in (b"INFO " + b"x" * 5000, b"\\\\" * 5000, rb'"\u0041 \\ud83d \ud83d\ude00"'):
        assert mend_surrogates(text) is text


def test_more_halves_than_a_cut_text_has_are_left_alone() -> None:
    assert mend_surrogates(rb"\ud83d" * 10_000) == rb"\ufffd" * 10_000
    for strange in (rb"\ud83d" * 30_000, rb"\ud83d\ude00" * 30_000 + rb"\ud83d", b"\\" * 1000 + rb"\ud83d"):
        assert mend_surrogates(strange) is strange


# Nesting -------------------------------------------------------------------------------------------------------------


def nested(levels: int) -> bytes:
    params = b'{"a":' * levels + b"1" + b"}" * levels
    return b'{"jsonrpc":"2.0","id":1,"method":"x","params":%b}' % params


def accepted(data: bytes) -> bool:
    try:
        parse_message(data)
        decode_server_message(data)
    except (BadMessage, RecursionError):
        return False
    return True


def deeper(frames: int, then: Callable[[], object]) -> object:
    return deeper(frames - 1, then) if frames else then()


def test_what_is_accepted_can_be_read_again_on_a_much_deeper_stack() -> None:
    limit = sys.getrecursionlimit()
    depths = [levels for levels in range(10, 2 * limit, 10) if accepted(nested(levels))]
    assert depths[-1] > 200
    assert not accepted(nested(100_000))
    for levels in depths:
        deeper(200, lambda levels=levels: members_of(nested(levels), "it"))
    assert sys.getrecursionlimit() == limit
