from __future__ import annotations

import pytest

from trunkline.protocol.jsonrpc import parse_message
from trunkline.protocol.mcp.modern import is_modern
from trunkline.protocol.mcp.notifications import cancelled_id


def message(method: str, params: str) -> bytes:
    return b'{"jsonrpc":"2.0","method":"%b","params":%b}' % (method.encode(), params.encode())


@pytest.mark.parametrize(
    ("params", "modern"),
    [
        ('{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}', True),
        ('{"_meta":{"io.modelcontextprotocol/protocolVersion":5}}', True),
        ('{"_meta":{"x":"io.modelcontextprotocol/protocolVersion"}}', False),
        ('{"arguments":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}', False),
        ('{"_meta":["io.modelcontextprotocol/protocolVersion"]}', False),
        ('["io.modelcontextprotocol/protocolVersion"]', False),
        ("{}", False),
    ],
)
def test_a_message_is_modern_when_its_meta_names_a_version(params: str, modern: bool) -> None:
    assert is_modern(parse_message(message("tools/call", params))) is modern


@pytest.mark.parametrize(
    ("method", "params", "expected"),
    [
        ("notifications/cancelled", '{"requestId":7}', 7),
        ("notifications/cancelled", '{"requestId":"7"}', "7"),
        ("notifications/cancelled", '{"requestId":7.5}', None),
        ("notifications/cancelled", '{"requestId":null}', None),
        ("notifications/cancelled", "{}", None),
        ("notifications/cancelled", "[7]", None),
        ("notifications/progress", '{"requestId":7}', None),
    ],
)
def test_only_a_cancellation_names_a_request_that_is_taken_back(method: str, params: str, expected: object) -> None:
    assert cancelled_id(parse_message(message(method, params))) == expected
