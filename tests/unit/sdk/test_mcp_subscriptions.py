"""Clients of 2026-07-28 hear that the tools changed when they listen for it, each under its own subscription."""

from __future__ import annotations

import pytest
from tests.support.mcp_dialogue import MODERN_META, Dialogue, talking_to
from tests.support.waiting import until

from trunkline.mcpserver import Server
from trunkline.sdk.mcp_messages import INVALID_PARAMS, SUBSCRIPTION_ID

CHANGED = "notifications/tools/list_changed"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"


async def listen(client: Dialogue, number, wanted: dict) -> None:
    before = len(client.notices(ACKNOWLEDGED))
    client.request("subscriptions/listen", {"notifications": wanted, "_meta": MODERN_META}, number=number)
    await until(lambda: len(client.notices(ACKNOWLEDGED)) > before, "it is acknowledged")


async def test_what_is_honoured_is_acknowledged_first_and_then_told() -> None:
    server = Server()
    async with talking_to(server, greeted="") as client:
        await listen(client, 7, {"toolsListChanged": True, "promptsListChanged": True})
        await listen(client, "7", {"toolsListChanged": True})
        await listen(client, "other", {"promptsListChanged": True, "resourceSubscriptions": ["a://b"]})
        assert client.notices(ACKNOWLEDGED) == [
            {"notifications": {"toolsListChanged": True}, "_meta": {SUBSCRIPTION_ID: 7}},
            {"notifications": {"toolsListChanged": True}, "_meta": {SUBSCRIPTION_ID: "7"}},
            {"notifications": {}, "_meta": {SUBSCRIPTION_ID: "other"}},
        ]
        server.register_tool("t", {}, print)
        await until(lambda: len(client.notices(CHANGED)) == 2, "both are told")
        assert {repr(one["_meta"][SUBSCRIPTION_ID]) for one in client.notices(CHANGED)} == {"7", "'7'"}


async def test_one_that_was_cancelled_hears_nothing_more() -> None:
    server = Server()
    async with talking_to(server, greeted="") as client:
        await listen(client, 1, {"toolsListChanged": True})
        client.notify("notifications/cancelled", {"requestId": 1})
        await client.ask_modern("tools/list")
        server.register_tool("t", {}, print)
        await client.ask_modern("tools/list")
        assert client.notices(CHANGED) == []


@pytest.mark.parametrize("wanted", [None, [], "all"])
async def test_a_wish_that_is_no_object_is_refused(wanted) -> None:
    async with talking_to(Server(), greeted="") as client:
        answer = await client.ask_modern("subscriptions/listen", {"notifications": wanted})
        assert answer["error"]["code"] == INVALID_PARAMS
