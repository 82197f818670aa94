from __future__ import annotations

import json

import pytest

from trunkline.protocol.mcp.server_requests import refusal


@pytest.mark.parametrize(
    ("capabilities", "method", "params", "code"),
    [
        (b'{"elicitation":{}}', "elicitation/create", b'{"message":"m"}', None),
        (b'{"elicitation":{"url":{}}}', "elicitation/create", b'{"mode":"url"}', None),
        (b'{"elicitation":{"url":{}}}', "elicitation/create", b"{}", -32602),
        (b'{"elicitation":{"form":{}}}', "elicitation/create", b'{"mode":"url"}', -32602),
        (b'{"elicitation":{}}', "elicitation/create", b'{"mode":"form","mode":"url"}', -32602),
        (b'{"elicitation":{}}', "elicitation/create", b"null", -32602),
        (b'{"elicitation":true}', "elicitation/create", b"{}", -32602),
        (b'{"sampling":{}}', "sampling/createMessage", b'{"tools":[]}', -32602),
        (b'{"sampling":{"tools":{}}}', "sampling/createMessage", b'{"tools":[]}', None),
        (b'{"sampling":{}}', "roots/list", b"{}", -32601),
        (b'{"roots":{}}', "roots/list", b"{}", None),
        (b'{"":{}}', "tools/call", b"{}", -32601),
    ],
)
def test_what_may_be_asked_of_whom(capabilities: bytes, method: str, params: bytes, code: int | None) -> None:
    refused = refusal(capabilities, method, params)
    assert (None if refused is None else json.loads(refused)["code"]) == code
