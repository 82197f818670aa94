"""A modern client's subscription ends cleanly when the client cancels it and when the gateway shuts down."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from mcp.client.subscriptions import listen
from tests.support.gateway import Gateway, stdio_gateway
from tests.support.peers.clients import MODERN, connect
from tests.support.peers.direct import ModernStdioClient
from tests.support.waiting import PATIENCE_S, until

LISTEN = {"notifications": {"toolsListChanged": True}}


async def test_a_gateway_that_stops_closes_the_subscription_gracefully(tmp_path: Path) -> None:
    """The SDK's iterator ends; it would raise if the stream had just broken off."""
    with Gateway(tmp_path) as gateway:
        url = f"http://127.0.0.1:{gateway.port}/mcp"
        async with (
            connect("sdk", MODERN, url, tmp_path / "client.log") as client,
            listen(client.client.session, tools_list_changed=True) as subscription,
        ):
            assert subscription.honored.tools_list_changed
            assert gateway.terminate() == 0
            async with asyncio.timeout(PATIENCE_S):
                assert [event async for event in subscription] == []


@pytest.mark.parametrize("wanted", [LISTEN, {"notifications": {}}])
async def test_over_stdio_an_open_subscription_is_answered_when_the_client_leaves(wanted: dict, tmp_path: Path) -> None:
    plain = stdio_gateway(tmp_path)
    async with ModernStdioClient(plain.command, plain.log_path) as client:
        listening = asyncio.ensure_future(client.request("subscriptions/listen", wanted, id="mine"))
        await until(lambda: client.notices, "the subscription is acknowledged")
        client.end_input()
        result = (await listening).result
        assert result == {"resultType": "complete", "_meta": {"io.modelcontextprotocol/subscriptionId": "mine"}}


async def test_over_stdio_a_subscription_taken_back_is_not_answered_and_told_nothing_more(tmp_path: Path) -> None:
    plain = stdio_gateway(tmp_path)
    async with ModernStdioClient(plain.command, plain.log_path) as client:
        listening = asyncio.ensure_future(client.request("subscriptions/listen", LISTEN, id="mine"))
        await until(lambda: client.notices, "the subscription is acknowledged")
        client.cancel("mine")
        assert await client.tools() == []
        client.end_input()
        assert await client.wait() == 0
        with pytest.raises(EOFError):
            await listening
