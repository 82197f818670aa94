from __future__ import annotations

import json

import pytest

from trunkline.protocol.jsonrpc import BadMessage
from trunkline.protocol.mcp.notifications import legacy_update, modern_task, modern_update

SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


def test_an_update_keeps_what_the_server_said_but_for_its_own_hop() -> None:
    params = json.dumps({"uri": "x:1", "title": "t", "_meta": {SUBSCRIPTION: 9, "own": 1}}).encode()
    assert json.loads(legacy_update(params)) == {
        "jsonrpc": "2.0",
        "method": "notifications/resources/updated",
        "params": {"uri": "x:1", "title": "t", "_meta": {"own": 1}},
    }
    update = json.loads(modern_update(params, b'"7"'))
    assert update["params"] == {"uri": "x:1", "title": "t", "_meta": {"own": 1, SUBSCRIPTION: "7"}}


def test_a_task_notification_is_the_whole_task() -> None:
    params = json.dumps({"taskId": "t", "status": "working", "_meta": {SUBSCRIPTION: 9}}).encode()
    assert json.loads(modern_task(params, b"7")) == {
        "jsonrpc": "2.0",
        "method": "notifications/tasks",
        "params": {"taskId": "t", "status": "working", "_meta": {SUBSCRIPTION: 7}},
    }


def test_an_update_is_one_line() -> None:
    params = b'{"uri":\r\n"x:1","n":1.10}'
    assert b'"n":1.10' in legacy_update(params)
    assert b"\n" not in legacy_update(params) + modern_update(params, b"1")


@pytest.mark.parametrize("params", [b"[]", b"null", b'{"uri":"x:1","uri":"x:2"}', b'{"_meta":[]}'])
def test_what_is_no_object_is_refused(params: bytes) -> None:
    for update in (legacy_update, lambda params: modern_update(params, b"1")):
        with pytest.raises(BadMessage):
            update(params)
