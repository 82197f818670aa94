"""The lines between the gateway and an app that dialled in."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trunkline.protocol.app_messages import (
    AppProgress,
    AppResponse,
    BadLine,
    BadRegistration,
    Registration,
    UnknownMessage,
    cancellation,
    invocation,
    is_browser,
    parse_line,
    readable_id,
    refused,
    registered,
)

DEEP = b"[" * 100_000 + b"]" * 100_000


def response(result: bytes, number: bytes = b"7") -> bytes:
    return b'{"type":"toolResponse","correlationId":%b,"result":%b}' % (number, result)


def mcp(result: bytes) -> dict[str, Any]:
    message = parse_line(response(result))
    assert isinstance(message, AppResponse)
    return json.loads(message.result.as_mcp())


def text_of(result: dict[str, Any]) -> str:
    (block,) = result["content"]
    assert block["type"] == "text"
    return block["text"]


# Responses ------------------------------------------------------------------------------------------------------------


def test_an_object_is_shown_as_text_and_is_structured_too() -> None:
    result = mcp(b'{"success":true,"data":{"n":1.0,"big":123456789012345678901},"error":null}')
    assert text_of(result) == '{"n":1.0,"big":123456789012345678901}'
    assert result["structuredContent"] == {"n": 1.0, "big": 123456789012345678901}
    assert "isError" not in result


@pytest.mark.parametrize(
    ("data", "text"),
    [(b'"plain"', "plain"), (b"[1, 2]", "[1, 2]"), (b"null", "null"), (b"true", "true"), (b"1e400", "1e400")],
)
def test_any_other_value_is_shown_as_its_text(data: bytes, text: str) -> None:
    result = mcp(b'{"success":true,"data":%b}' % data)
    assert text_of(result) == text
    assert "structuredContent" not in result


def test_an_mcp_result_passes_unchanged() -> None:
    image = b'{"content":[{"type":"image","data":"QUJD","mimeType":"image/png"}]}'
    assert mcp(b'{"success":true,"data":%b}' % image) == json.loads(image)


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (b'{"success":false,"data":null,"error":"no such window"}', "no such window"),
        (b'{"success":false,"data":{"a":1},"error":"said"}', "said"),
        (b'{"success":false,"data":"from data"}', "from data"),
        (b'{"success":false,"error":{"code":5}}', '{"code":5}'),
        (b'{"error":"without success"}', "without success"),
        (b'{"success":false,"data":null,"error":null}', "The app reported a failure without a reason"),
    ],
)
def test_a_failure_is_an_error_with_the_apps_own_words(result: bytes, text: str) -> None:
    failed = mcp(result)
    assert failed["isError"] is True
    assert text_of(failed) == text


def test_a_result_without_success_has_succeeded_if_it_has_no_error() -> None:
    assert text_of(mcp(b'{"data":"fine"}')) == "fine"


@pytest.mark.parametrize(
    "line",
    [
        b'{"Type":"ToolResponse","CorrelationId":7,"Result":{"Success":true,"Data":"x","Error":null}}',
        b'{"result":{"data":"x","success":true},"correlationId":"7","TYPE":"toolresponse"}',
        b'\xef\xbb\xbf{"type":"toolResponse","correlationId":7,"result":{"success":true,"data":"x"}}',
        b' { "type" : "toolResponse" , "extra" : [1] , "correlationId" : 7 , "result" : {"success":true,"data":"x"} } ',
    ],
)
def test_other_spellings_are_the_same_response(line: bytes) -> None:
    message = parse_line(line)
    assert isinstance(message, AppResponse)
    assert message.correlation_id == 7
    assert text_of(json.loads(message.result.as_mcp())) == "x"


def test_half_a_character_is_replaced_and_costs_nothing_else() -> None:
    assert text_of(mcp(b'{"success":true,"data":"cut \\ud83d"}')) == "cut \ufffd"


@pytest.mark.parametrize(
    "result",
    [
        b'{"success":true,"data":NaN}',
        b'{"success":true,"data":[1,2}',
        b'{"success":true,"data":"\xff\xfe"}',
        b'{"success":true,"data":%b}' % DEEP,
        b'{"success":"maybe","data":1}',
        b'{"Success":true,"SUCCESS":false}',
        b"null",
        b"[]",
        b'"text"',
    ],
)
def test_a_broken_answer_names_its_call(result: bytes) -> None:
    with pytest.raises(BadLine) as broken:
        parse_line(response(result))
    assert broken.value.correlation_id == 7


def test_an_answer_without_a_result_names_its_call() -> None:
    with pytest.raises(BadLine) as broken:
        parse_line(b'{"correlationId":7,"type":"toolResponse"}')
    assert broken.value.correlation_id == 7


@pytest.mark.parametrize(
    "line",
    [b"hello", b"{", b"[]", b"1", b'"x"', b"\xff\xfe\x00", b'{"type":"register","type":"register"}', b"{}}", b"null"],
)
def test_what_is_no_message_names_no_call(line: bytes) -> None:
    with pytest.raises(BadLine) as broken:
        parse_line(line)
    assert broken.value.correlation_id is None


def test_an_id_is_read_only_where_an_answer_begins() -> None:
    assert readable_id(b'{"correlationId": 12, "result": {"su') == 12
    assert readable_id(b'{"Type":"toolResponse","CorrelationId":12,"res') == 12
    assert readable_id(b'{"type":"toolProgress","correlationId":12,') is None
    assert readable_id(b'{"data":{"correlationId":12,') is None
    assert readable_id(b'{"correlationId":123') is None, "there may be more digits"
    assert readable_id(b'{"correlationId":"12",') is None


@pytest.mark.parametrize("number", [b"null", b"1.5", b'"x"', b"[]", b"{}"])
def test_a_response_whose_id_is_none_belongs_to_nobody(number: bytes) -> None:
    with pytest.raises(BadLine) as broken:
        parse_line(response(b'{"success":true}', number))
    assert broken.value.correlation_id is None


# Progress -------------------------------------------------------------------------------------------------------------


def progress(**members: Any) -> dict[str, Any]:
    message = parse_line(json.dumps({"type": "toolProgress", "correlationId": 9, **members}).encode())
    assert isinstance(message, AppProgress)
    assert message.correlation_id == 9
    return json.loads(message.as_mcp(step=4))


def test_progress_has_the_members_that_mcp_knows() -> None:
    assert progress(progress=3, total=10, message="page 3") == {"progress": 3, "total": 10, "message": "page 3"}
    assert progress(Progress=0.5, other=1) == {"progress": 0.5}


def test_an_app_that_does_not_count_is_counted_for() -> None:
    assert progress() == {"progress": 4}
    assert progress(progress="half", total="all", message=None) == {"progress": 4}


@pytest.mark.parametrize(("data", "text"), [("so far", "so far"), ({"n": 1}, '{"n": 1}'), ([1], "[1]")])
def test_a_part_of_the_result_is_shown_as_the_message(data: Any, text: str) -> None:
    assert progress(progress=1, data=data) == {"progress": 1, "message": text}
    assert progress(progress=1, message="words", data=data) == {"progress": 1, "message": "words"}


# Registration ---------------------------------------------------------------------------------------------------------


def read_register(**members: Any) -> Registration:
    message = parse_line(json.dumps({"type": "register", **members}).encode())
    assert isinstance(message, Registration)
    return message


def test_a_registration_in_any_case() -> None:
    plain = read_register(appName=" Watch Tower ", tools=[{"name": "x"}], token="t", credential="c", acknowledge=True)
    assert (plain.app_name, plain.token, plain.credential, plain.acknowledge) == ("Watch Tower", "t", "c", True)
    assert [bytes(tool) for tool in plain.tools] == [b'{"name": "x"}']
    pascal = parse_line(b'{"Type":"Register","AppName":"A","Tools":null}')
    assert isinstance(pascal, Registration)
    assert (pascal.app_name, pascal.tools, pascal.token, pascal.acknowledge) == ("A", [], "", False)


@pytest.mark.parametrize(
    ("members", "word"),
    [
        ({}, "appName"),
        ({"appName": ""}, "appName"),
        ({"appName": "  "}, "appName"),
        ({"appName": 5}, "appName"),
        ({"appName": "x" * 129}, "128"),
        ({"appName": "a\nb"}, "control"),
        ({"appName": "a\u202eb"}, "control"),
        ({"appName": "a", "tools": {}}, "tools"),
        ({"appName": "a", "tools": [], "token": "x" * 1025}, "token"),
        ({"appName": "a", "tools": [], "credential": "x" * 1025}, "credential"),
    ],
)
def test_a_registration_that_cannot_be_taken_says_why(members: dict[str, Any], word: str) -> None:
    with pytest.raises(BadRegistration, match=word) as wrong:
        read_register(acknowledge=True, **members)
    assert wrong.value.acknowledge is True


@pytest.mark.parametrize("line", [b"{}", b'{"type":"hello"}', b'{"type":5}', b'{"type":"registered"}'])
def test_a_message_of_another_type_is_just_unknown(line: bytes) -> None:
    assert isinstance(parse_line(line), UnknownMessage)


def test_a_browser_is_recognised() -> None:
    assert is_browser(b"POST / HTTP/1.1")
    assert is_browser(b"OPTIONS /x?y HTTP/1.0")
    assert not is_browser(b'{"type":"register"}')
    assert not is_browser(b"POST is what I do")
    assert is_browser(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")


# To the app -----------------------------------------------------------------------------------------------------------


def test_what_an_app_is_told() -> None:
    call = invocation(5, b'"App:Tool"', memoryview(b'{"x": 1.0}'))
    assert call == b'{"type":"toolInvocation","correlationId":5,"tool":"App:Tool","parameters":{"x": 1.0}}'
    assert json.loads(cancellation(5)) == {"type": "toolCancel", "correlationId": 5}
    assert json.loads(registered('A"\n', "A", 2, ["w"])) == {
        "type": "registered",
        "appName": 'A"\n',
        "server": "A",
        "tools": 2,
        "warnings": ["w"],
    }
    assert json.loads(refused("TL415", "no\n")) == {"type": "refused", "code": "TL415", "message": "no\n"}
    assert b"\n" not in registered('A"\n', "A", 2, ["w\r\n"]) + refused("TL415", "no\r\n")
