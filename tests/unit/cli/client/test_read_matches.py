from __future__ import annotations

import json

import msgspec
import pytest

from trunkline.cli.client.gateway_client import MatchedWord, MatchReasons
from trunkline.cli.client.remote import read_matches
from trunkline.core.tool import ToolDefinition

LISTED = ToolDefinition("", "s_add", b'{"name":"s_add","n":1.10}')


def test_tools_of_the_list_keep_their_definitions_and_the_order_is_that_of_the_answer() -> None:
    answer = {
        "tools": [
            {"tool_id": "s.twin", "description": "Another", "inputSchema": {"type": "object"}, "server": "s"},
            {"tool_id": "s_add", "why": {"words": [{"word": "add", "field": "name", "share": 1}], "cosine": 0.4}},
        ],
        "budget": 4000,
    }
    twin, add = read_matches(json.dumps(answer).encode(), {"s_add": LISTED})
    assert add.tool is LISTED
    assert add.why == MatchReasons([MatchedWord("add", "name", 1.0)], 0.4)
    assert json.loads(twin.tool.definition) == {
        "name": "s.twin",
        "description": "Another",
        "inputSchema": {"type": "object"},
    }
    assert twin.why == MatchReasons()


@pytest.mark.parametrize("body", [b"", b"[]", b'{"tools":[{}]}', b'{"tools":5}', b"[" * 9000])
def test_another_answer_is_not_taken_for_one(body: bytes) -> None:
    with pytest.raises((msgspec.MsgspecError, RecursionError)):
        read_matches(body, {})
