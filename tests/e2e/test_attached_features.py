"""Server requests, notifications and the like, for a client that joined a running gateway by `trunkline stdio`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp
import mcp_types as types
import pytest
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.subscriptions import listen
from tests.support.conformance.layouts import Layout, standing
from tests.support.gateway import TRUNKLINE
from tests.support.waiting import PATIENCE_S, until

MODERN = "2026-07-28"


@pytest.fixture(scope="module")
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("attached_features")
    with standing(Layout(f"gateway, {request.param} backend", request.param), folder) as url:
        yield url


class Heard:
    """What the client was told and asked."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.logged: list[str] = []
        self.asked = 0
        self.progress: list[float] = []

    async def on_message(self, message: Any) -> None:
        self.messages.append(type(message).__name__)

    async def on_log(self, params: types.LoggingMessageNotificationParams) -> None:
        self.logged.append(params.level)

    async def on_question(self, *_: Any) -> types.ElicitResult:
        self.asked += 1
        return types.ElicitResult(action="accept", content={"username": "u", "email": "u@example.com"})

    async def on_progress(self, done: float, total: float | None, message: str | None) -> None:
        self.progress.append(done)


@asynccontextmanager
async def attached(url: str, era: str, folder: Path) -> AsyncIterator[tuple[Any, Heard]]:
    heard = Heard()
    command = StdioServerParameters(command=TRUNKLINE, args=["stdio", "--url", url])
    with (folder / "relay.log").open("w") as log:
        client = mcp.Client(
            stdio_client(command, errlog=log),
            mode=era,
            message_handler=heard.on_message,
            logging_callback=heard.on_log,
            elicitation_callback=heard.on_question,
        )
        async with asyncio.timeout(4 * PATIENCE_S), client:
            yield client, heard


@pytest.mark.filterwarnings("ignore:The logging capability is deprecated")
@pytest.mark.parametrize("era", ["legacy", MODERN])
@pytest.mark.parametrize("url", ["stdio", "http"], indirect=True)
async def test_server_requests_progress_notifications_and_arguments_in_headers_pass(
    url: str, era: str, tmp_path: Path
) -> None:
    async with attached(url, era, tmp_path) as (client, heard):
        assert client.protocol_version == (MODERN if era == MODERN else "2025-11-25")
        result = await client.call_tool("test_tool_with_progress", {}, progress_callback=heard.on_progress)
        assert not result.is_error
        await until(lambda: len(heard.progress) >= 3, "the progress was told")
        result = await client.call_tool("test_x_mcp_header", {"region": "Grüße"})
        assert not result.is_error
        if era == "legacy":
            assert "accept" in (await client.call_tool("test_elicitation", {"message": "who?"})).content[0].text
            assert heard.asked == 1
            await log_messages_and_notifications_reach_a_session(client, heard)
        else:
            await a_subscription_is_told_of_changes(client)


async def log_messages_and_notifications_reach_a_session(client: Any, heard: Heard) -> None:
    await client.session.set_logging_level("debug")
    await client.call_tool("test_tool_with_logging", {})
    await until(lambda: len(heard.logged) >= 3, "the log messages came")
    heard.messages.clear()
    await client.call_tool("test_trigger_tool_change", {})
    await until(lambda: "ToolListChangedNotification" in heard.messages, "the news came")


async def a_subscription_is_told_of_changes(client: Any) -> None:
    async with listen(client.session, tools_list_changed=True) as notifications:
        await client.call_tool("test_trigger_tool_change", {})
        await asyncio.wait_for(anext(notifications), PATIENCE_S)
