"""The first hour with Trunkline: somebody's eight servers behind it, real clients and a real agent in front of it.

The agent is Claude Code; only its model is scripted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.support.answers import DOWN, Answer
from tests.support.claude_code import Finished, run_claude
from tests.support.client import HttpClient
from tests.support.first_hour.household import META_TOOLS, Household, HouseholdGateway
from tests.support.gateway import TRUNKLINE
from tests.support.peers.clients import connect
from tests.support.scripted_model import ScriptedModel, ToolResult, Use, calls, in_order, says
from tests.support.waiting import until

pytestmark = [pytest.mark.node, pytest.mark.slow]
START_S = 45


@dataclass
class Hour:
    """A household whose gateway has run once, what it listed then, and what each server says of itself."""

    household: Household
    own_tools: dict[str, set[str]]
    first_listed: set[str]

    @property
    def expected(self) -> set[str]:
        return META_TOOLS | {f"{name}_{tool}" for name, tools in self.own_tools.items() for tool in tools}


@pytest.fixture(scope="module")
def hour(tmp_path_factory: pytest.TempPathFactory) -> Hour:
    household = Household(tmp_path_factory.mktemp("household"))
    own_tools = asyncio.run(household.own_tools())
    with household.listeners(), household.gateway() as gateway:
        listed = asyncio.run(list_when_all_are_up(gateway, household))
    return Hour(household, own_tools, listed)


async def list_when_all_are_up(gateway: HouseholdGateway, household: Household) -> set[str]:
    def all_are_up() -> bool:
        return all(f"{name} is ready" in gateway.log for name in household.servers)

    await until(all_are_up, "all eight servers are up", START_S)
    async with connect("sdk", "auto", gateway.url, household.folder / "client.log") as client:
        return await client.names()


@pytest.fixture
def gateway(hour: Hour) -> Iterator[HouseholdGateway]:
    """A later start."""
    with hour.household.changed_meanwhile(), hour.household.listeners(), hour.household.gateway() as gateway:
        yield gateway


# Starts ---------------------------------------------------------------------------------------------------------------


def test_a_clients_file_is_all_it_needs_to_list_the_tools_of_every_server(hour: Hour) -> None:
    assert hour.first_listed == hour.expected


async def test_the_first_list_of_a_second_start_is_complete_before_any_server_is_up(hour: Hour) -> None:
    household = hour.household
    with ExitStack() as stack:
        with household.held_back():
            gateway = stack.enter_context(household.gateway())
            client = await gateway.client().open()
            assert await client.tool_names() == hour.expected
        stack.enter_context(household.listeners())
        for name in ("calc", "notes", "team", "archive"):
            assert (await call_when_up(client, f"{name}_add", a=2, b=3))["total"] == 5
        await client.close()


async def call_when_up(client: HttpClient, tool: str, **arguments: Any) -> dict[str, Any]:
    """A server that is started is waited for; one that listens may have been found down, and is tried again later."""

    async def answer() -> Answer | None:
        answer = await client.call(tool, arguments)
        return None if answer.failed and answer.situation == DOWN else answer

    answered = await until(answer, f"{tool} answers", START_S)
    assert answered is not None
    return answered.structured


# The agent ------------------------------------------------------------------------------------------------------------


def ours(tool: str, **arguments: Any) -> Use:
    """A call as Claude Code's model names it."""
    return Use(f"mcp__trunkline__{tool}", arguments)


ERRAND = in_order(
    calls(
        ours("files_read_text_file", path="groceries.txt"),
        ours("everything_echo", message="hello"),
        ours("clock_days_between", first="2026-01-01", last="2026-07-28"),
    ),
    calls(
        ours("calc_add", a=2, b=3),
        ours("notes_picture"),
        ours("team_fail", reason="out of paper"),
        ours("archive_refuse", reason="not today"),
    ),
    calls(ours("text_reverse", text="live")),
    says("All done."),
)


async def test_claude_code_runs_an_errand_over_http(hour: Hour, gateway: HouseholdGateway, tmp_path: Path) -> None:
    async with ScriptedModel(ERRAND) as model:
        finished = await run_claude(model, {"trunkline": {"type": "http", "url": gateway.url}}, tmp_path)
    assert_errand_was_run(finished, model, hour)


async def test_claude_code_runs_an_errand_over_stdio(hour: Hour, tmp_path: Path) -> None:
    household = hour.household
    arguments = ["stdio", "-c", str(household.config)]
    entry = {"type": "stdio", "command": TRUNKLINE, "args": arguments, "env": household.environment}
    with household.listeners():
        async with ScriptedModel(ERRAND) as model:
            finished = await run_claude(model, {"trunkline": entry}, tmp_path)
    assert_errand_was_run(finished, model, hour)


def assert_errand_was_run(finished: Finished, model: ScriptedModel, hour: Hour) -> None:
    assert (finished.status, finished.servers) == (0, {"trunkline": "connected"}), finished.errors
    assert finished.said == "All done."
    assert [asked.turn for asked in model.asked] == [0, 1, 2, 3]
    offered = {f"mcp__trunkline__{name}" for name in hour.expected}
    assert all(asked.tools.keys() == offered for asked in model.asked)
    groceries, echo, days = (model.result(0, place) for place in range(3))
    assert groceries == text('{"content":"oat milk\\nlentils\\n"}')
    assert (echo, days) == (text("Echo: hello"), text("208"))
    total, picture, failed, refused = (model.result(1, place) for place in range(4))
    assert total == text('{"total":5,"parts":[2,3],"note":null}')
    assert (picture.content[0]["type"], picture.content[0]["source"]["media_type"]) == ("image", "image/png")
    assert failed == text("out of paper", is_error=True)
    assert refused == text("MCP error 4711: not today", is_error=True)
    assert model.result(2) == text("evil")
    assert model.unknown == []


def text(text: str, *, is_error: bool = False) -> ToolResult:
    return ToolResult([{"type": "text", "text": text}], is_error)
