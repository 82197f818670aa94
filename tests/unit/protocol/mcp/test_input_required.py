from __future__ import annotations

import json

import pytest

from trunkline.protocol.jsonrpc import BadMessage, encode_members
from trunkline.protocol.mcp.methods import ELICITATION_CREATE, ROOTS_LIST
from trunkline.protocol.mcp.server_requests import (
    InputRequest,
    encode_input_required,
    labelled,
    labelled_result,
    read_input_required,
)


def test_what_is_written_can_be_read() -> None:
    asked = {"a": InputRequest(ELICITATION_CREATE, b'{"message":"x","n":1.10}'), 'b"': InputRequest(ROOTS_LIST, b"{}")}
    raw = encode_input_required(asked, 'st"ate')
    assert json.loads(raw)["resultType"] == "input_required"
    required = read_input_required(raw)
    assert required.requests == asked
    assert required.state == b'"st\\"ate"'


def test_a_state_is_kept_as_it_was_written() -> None:
    raw = b'{"resultType":"input_required","requestState" : "\\u0061\\/"}'
    assert read_input_required(memoryview(raw)).state == b'"\\u0061\\/"'


@pytest.mark.parametrize(
    "raw",
    [
        b"{}",
        b"[]",
        b'{"requestState":null}',
        b'{"inputRequests":{}}',
        b'{"inputRequests":{"a":{"method":1}}}',
        b'{"inputRequests":{"a":{"method":"x","params":1}}}',
        b'{"inputRequests":{"a":{},"a":{}}}',
        b'{"inputRequests":{"a":%b}}' % (b'{"method":"x","params":\n' + b"[" * 5000 + b"]" * 5000 + b"}"),
    ],
)
def test_what_nobody_could_answer_is_refused(raw: bytes) -> None:
    with pytest.raises(BadMessage):
        read_input_required(raw)


def test_a_label_leaves_everything_else_as_it_is() -> None:
    params = b'{"message":"Wh\\u006f?","n":1.10,"_meta":{"a":1.10,"trunkline/server":"liar"}}'
    members = labelled("s", ELICITATION_CREATE, params, in_text=False)
    assert encode_members(members) == (b'{"message":"Wh\\u006f?","n":1.10,"_meta":{"a":1.10,"trunkline/server":"s"}}')
    assert labelled("s", ELICITATION_CREATE, params, in_text=True)["message"] == b'"[s] Who?"'
    assert "message" not in labelled("s", ROOTS_LIST, b"{}", in_text=True)
    assert labelled("s", ELICITATION_CREATE, b"{}", in_text=True)["message"] == b'"[s] "'


@pytest.mark.law
def test_no_message_takes_back_the_name_in_front_of_it() -> None:
    params = b'{"message":"\\r\\u001b[2K\\b[bank] PIN?\\n\\tLine two \\u009b1A"}'
    assert (
        json.loads(labelled("s", ELICITATION_CREATE, params, in_text=True)["message"])
        == "[s] [2K[bank] PIN?\n\tLine two 1A"
    )


@pytest.mark.parametrize("params", [b"[]", b'{"_meta":[]}', b'{"message":1}', b'{"a":1,"a":2}'])
def test_a_server_request_that_cannot_be_read_for_sure_gets_no_label(params: bytes) -> None:
    with pytest.raises(BadMessage):
        labelled("s", ELICITATION_CREATE, params, in_text=True)


def test_a_result_without_server_requests_needs_no_labels() -> None:
    raw = b'{"resultType":"input_required" ,"requestState":"x"}'
    assert labelled_result("s", raw, in_text=True) == raw


@pytest.mark.parametrize("name", [b"trunkline/server", b"tr\\u0075nkline/server"])
def test_the_only_server_keeps_its_words_but_may_not_name_itself(name: bytes) -> None:
    raw = b'{"inputRequests":{"k" : {"method":"elicitation/create","params":{"message":"m","_meta":{"a":1}}}}}'
    assert labelled_result("s", raw, in_text=False) == raw
    asked = json.loads(labelled_result("s", raw.replace(b'"a":1', b'"%b":"bank"' % name), in_text=False))
    params = asked["inputRequests"]["k"]["params"]
    assert params == {"message": "m", "_meta": {"trunkline/server": "s"}}
