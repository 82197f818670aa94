"""The messages that a relay parses."""

from __future__ import annotations

import pytest

from trunkline.frontends.relay.messages import (
    is_progress,
    kind_of,
    request_headers,
    response_in,
    version_in,
)
from trunkline.protocol.jsonrpc import parse_message

META = '"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}'


def request(method: str, params: str = "{}", id: str = "7") -> bytes:  # noqa: A002
    return f'{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}'.encode()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            request("tools/call", f'{{"name":"a_b",{META}}}'),
            {"mcp-method": "tools/call", "mcp-protocol-version": "2026-07-28", "mcp-name": "a_b"},
        ),
        (
            request("resources/read", f'{{"name":"n","uri":"file:///x",{META}}}'),
            {"mcp-method": "resources/read", "mcp-protocol-version": "2026-07-28", "mcp-name": "file:///x"},
        ),
        (
            request("tools/list", f'{{"name":"n",{META}}}'),
            {"mcp-method": "tools/list", "mcp-protocol-version": "2026-07-28"},
        ),
        (
            request("tools/call", f'{{"name":"gr\\u00fcn\\r\\nX: y",{META}}}'),
            {
                "mcp-method": "tools/call",
                "mcp-protocol-version": "2026-07-28",
                "mcp-name": "=?base64?Z3LDvG4NClg6IHk=?=",
            },
        ),
        (
            request("a\\r\\nb", f"{{{META}}}"),
            {"mcp-method": "=?base64?YQ0KYg==?=", "mcp-protocol-version": "2026-07-28"},
        ),
        (
            request("tools/call", f'{{"name":5,{META}}}'),
            {"mcp-method": "tools/call", "mcp-protocol-version": "2026-07-28"},
        ),
        (request("tools/call", '{"name":"n","_meta":[]}'), {"mcp-method": "tools/call"}),
        (
            request("tools/call", '{"name":"n","_meta":{"io.modelcontextprotocol/protocolVersion":5}}'),
            {"mcp-method": "tools/call", "mcp-name": "n"},
        ),
        (request("tools/call", "[]"), {"mcp-method": "tools/call"}),
    ],
)
def test_headers_repeat_what_the_body_says(line: bytes, expected: dict[str, str]) -> None:
    headers = {name.decode(): value.decode() for name, value in request_headers(parse_message(line))}
    assert headers == expected


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b'{"jsonrpc":"2.0","id":7,"result":{}}', "response"),
        (b'{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":""}}', "response"),
        (b'{"jsonrpc":"2.0","id":"7","result":{}}', "malformed"),
        (b'{"jsonrpc":"2.0","id":8,"result":{}}', "malformed"),
        (b'{"jsonrpc":"2.0","id":null,"error":{}}', "malformed"),
        (b'{"jsonrpc":"2.0","id":7}', "malformed"),
        (b'{"jsonrpc":"2.0","id":7,"result":{},"error":{}}', "malformed"),
        (b'{"jsonrpc":"2.0","method":"notifications/x"}', "notification"),
        (b'{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage"}', "notification"),
        (b'{"jsonrpc":"2.0","id":9,"method":"x","result":{}}', "malformed"),
        (b'{"jsonrpc":"2.0","id":7,"method":"x","error":{}}', "malformed"),
        (b"[]", "malformed"),
        (b"{", "malformed"),
        (b'{"jsonrpc":"2.0","id":7,"result":"\xff"}', "malformed"),
        (b'{"jsonrpc":"2.0","id":7,"result":' + b"[" * 100_000, "malformed"),
    ],
)
def test_a_message_is_an_answer_when_it_has_the_requests_id(data: bytes, kind: str) -> None:
    assert kind_of(data, 7) == kind


def test_no_depth_is_an_answer_that_cannot_be_put_on_one_line() -> None:
    message = parse_message(request("x"))
    for depth in range(800, 1100):
        body = b'{"jsonrpc":"2.0","id":7,\n"result":' + b"[" * depth + b"]" * depth + b"}"
        assert response_in(body, message) in (None, body.replace(b"\n", b""))


def test_an_answer_passes_as_it_came_on_one_line() -> None:
    message = parse_message(request("x"))
    spaced = b'{"jsonrpc": "2.0", "id": 7, "result": {"n": 1.00, "b": 1, "a": 2}}'
    assert response_in(spaced, message) == spaced
    assert response_in(b'{"jsonrpc":"2.0",\r\n"id":7,\n"result":{"n":1.00}}', message) == (
        b'{"jsonrpc":"2.0","id":7,"result":{"n":1.00}}'
    )


def test_an_error_without_an_id_becomes_the_answer_to_its_request() -> None:
    message = parse_message(request("x", id='"ü"'))
    error = response_in(b'{"jsonrpc":"2.0","id":null,"error":{"code":421,\n"message":"Host"}}', message)
    assert error == '{"jsonrpc":"2.0","id":"ü","error":{"code":421,"message":"Host"}}'.encode()
    for body in (b"", b"<html>", b"{}", b'{"error":"text"}', b'{"error":null}', b'{"id":"other","result":{}}'):
        assert response_in(body, message) is None


def test_the_version_of_a_handshake_is_read_where_it_can_go_into_a_header() -> None:
    assert version_in(b'{"id":1,"result":{"protocolVersion":"2025-06-18"}}') == "2025-06-18"
    for body in (
        b"",
        b'{"id":1,"error":{}}',
        b'{"id":1,"result":{"protocolVersion":5}}',
        b'{"id":1,"result":{"protocolVersion":"1\\r\\nX: y"}}',
    ):
        assert version_in(body) is None


def test_only_progress_is_progress() -> None:
    assert is_progress(b'{"jsonrpc":"2.0","method":"notifications/progress","params":{}}')
    assert not is_progress(b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}')
