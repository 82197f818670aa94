"""The first hour with Trunkline: somebody's eight servers behind it, real clients and a real agent in front of it.

The agent is Claude Code; only its model is scripted.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.support.claude_code import run_claude
from tests.support.first_hour.audience import Audience, Outcome, audience_of
from tests.support.first_hour.household import CLIENT, GROCERIES, META_TOOLS, Household, HouseholdGateway
from tests.support.gateway import TRUNKLINE
from tests.support.models.script import turn_after
from tests.support.peers.clients import connect
from tests.support.scripted_model import ModelRequest, Script, ScriptedModel, ToolResult, Turn, Use, calls, says
from tests.support.waiting import until

pytestmark = [pytest.mark.node, pytest.mark.slow, pytest.mark.timeout(180)]
START_S = 45
WAYS = ["url", "alone", "joins"]


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
    async with connect("sdk", "auto", gateway.url, household.folder / "client.log", name=CLIENT) as client:
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
    async with AsyncExitStack() as stack:
        with hour.household.held_back():  # and nobody listens on the ports of the other two
            gateway = stack.enter_context(hour.household.gateway())
            client = await stack.enter_async_context(gateway.client(name=CLIENT))
            assert await client.tool_names() == hour.expected
        for name in ("calc", "notes"):
            assert (await client.call(f"{name}_add", {"a": 2, "b": 3})).structured["total"] == 5


# Changes --------------------------------------------------------------------------------------------------------------


async def test_servers_come_break_and_are_repaired_and_a_broken_file_changes_nothing_while_clients_stay_connected(
    hour: Hour, gateway: HouseholdGateway, tmp_path: Path
) -> None:
    async with audience_of(gateway.url, tmp_path) as audience:
        await audience.sees(hour.expected)
        processes = await untouched_processes(audience)
        await come_and_go(hour, audience)
        await break_and_be_repaired(hour, audience)
        assert await untouched_processes(audience) == processes
        await break_the_file(hour, gateway, audience)
        assert await untouched_processes(audience) == processes


async def come_and_go(hour: Hour, audience: Audience) -> None:
    servers, save = hour.household.servers, hour.household.save
    servers["words"] = servers["text"]
    save()
    await audience.sees(hour.expected | {f"words_{tool}" for tool in hour.own_tools["text"]})
    assert (await audience.gets("words_reverse", text="live")).text == "evil"

    del servers["words"]
    save()
    await audience.sees(hour.expected)
    gone = "Unknown tool: words_reverse"
    assert await audience.gets("words_reverse", text="live") == Outcome(gone, refused=-32602)


async def break_and_be_repaired(hour: Hour, audience: Audience) -> None:
    servers, save = hour.household.servers, hour.household.save
    working = servers["calc"]
    servers["calc"] = {**working, "command": "pythn"}
    save()
    await audience.sees({name for name in hour.expected if not name.startswith("calc_")})
    down = "Server calc is down: command not found: `pythn`"
    assert await audience.gets("calc_add", a=2, b=3) == Outcome(down, refused=503)
    assert (await audience.gets("text_reverse", text="live")).text == "evil"

    servers["calc"] = working
    save()
    await audience.sees(hour.expected)
    assert (await audience.gets("calc_add", a=2, b=3)).structured == {"total": 5, "parts": [2, 3], "note": None}


async def break_the_file(hour: Hour, gateway: HouseholdGateway, audience: Audience) -> None:
    """What is wrong is reported; a file that is right again counts again."""

    def refused() -> list[dict[str, Any]]:
        return [event for event in gateway.events() if event["event"] == "reload_refused"]

    hour.household.config.write_text('{\n  "mcpServers": {\n    "calc": {"command": "python"\n')
    (event,) = await until(refused, "the log says what is wrong")
    assert "the old one stays in effect" in event["message"] and f"{hour.household.config}:" in event["message"]
    assert (await audience.gets("calc_add", a=2, b=3)).structured == {"total": 5, "parts": [2, 3], "note": None}
    await audience.sees(hour.expected)

    del hour.household.servers["text"]
    hour.household.save()
    await audience.sees({name for name in hour.expected if not name.startswith("text_")})


async def untouched_processes(audience: Audience) -> list[list[int]]:
    """Which process of each server that nobody touches answers each client."""
    tools = ("notes_whoami", "team_whoami", "archive_whoami")
    return [[(await client.call(tool)).structured["pid"] for tool in tools] for client in audience.clients]


# The agent ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Way:
    """How Claude Code comes to Trunkline: what it is told, and the gateway it must end up at, if one runs already."""

    entry: dict[str, Any]
    gateway: HouseholdGateway | None = None


@contextmanager
def way(name: str, household: Household) -> Iterator[Way]:
    """A URL, or a command, which serves Claude Code by itself or joins what runs."""
    arguments = ["stdio", "-c", str(household.config)]
    command = {"type": "stdio", "command": TRUNKLINE, "args": arguments, "env": household.environment}
    with household.changed_meanwhile(), household.listeners():
        if name == "alone":
            yield Way(command)
            return
        with household.gateway() as gateway:
            yield Way(command if name == "joins" else {"type": "http", "url": gateway.url}, gateway)


async def follow(script: Script, way: Way, folder: Path) -> ScriptedModel:
    """Run Claude Code to its end; the model tells what it was asked."""
    async with ScriptedModel(script) as model:
        finished = await run_claude(model, {"trunkline": way.entry}, folder)
    assert (finished.status, finished.servers) == (0, {"trunkline": "connected"}), finished.errors
    assert finished.said == "All done."
    assert model.unknown == []
    if way.gateway is not None:
        assert {event["client"] for event in way.gateway.events() if event["event"] == "call"} == {"claude-code"}
    return model


def ours(tool: str, **arguments: Any) -> Use:
    """A call, by the name that Claude Code gives the tool."""
    return Use(f"mcp__trunkline__{tool}", arguments)


def text(text: str, *, is_error: bool = False) -> ToolResult:
    return ToolResult([{"type": "text", "text": text}], is_error)


ERRAND = (
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
)
NEW = ours("words_reverse", text="no")
FOR_WHOM_CAN_BE_ASKED = {
    f"mcp__trunkline__everything_{tool}" for tool in ("get-roots-list", "trigger-elicitation-request")
}


def script(household: Household) -> Script:
    """The errand, after which a server is added and used as soon as its tool is there."""

    async def add_server() -> None:
        household.servers["words"] = household.servers["text"]
        household.save()

    def answer(asked: ModelRequest) -> Turn:
        if asked.turn < len(ERRAND):
            return ERRAND[asked.turn]
        if asked.turn == len(ERRAND):
            return calls(ours("text_reverse", text="live"), meanwhile=add_server)
        if text("on") in asked.results.values():
            return says("All done.")
        return calls(NEW) if NEW.tool in asked.tools else calls(ours("clock_now"), meanwhile=a_moment)

    return answer


async def a_moment() -> None:
    """The agent learns of a change when it has time to, so its model does not answer at once."""
    await asyncio.sleep(0.1)


@pytest.fixture(scope="module", params=WAYS)
def errand(request: pytest.FixtureRequest, hour: Hour, tmp_path_factory: pytest.TempPathFactory) -> ScriptedModel:
    """What the model saw of a run of Claude Code that is over."""
    folder = tmp_path_factory.mktemp(request.param)
    project = folder / "project"  # where Claude Code works; it tells so to the server of files
    project.mkdir()
    (project / "groceries.txt").write_text(GROCERIES)
    with way(request.param, hour.household) as told:
        return asyncio.run(follow(script(hour.household), told, folder))


def test_claude_code_runs_an_errand_with_all_eight_servers(hour: Hour, errand: ScriptedModel) -> None:
    offered = {f"mcp__trunkline__{name}" for name in hour.expected}
    assert [asked.turn for asked in errand.requests[:4]] == [0, 1, 2, 3]
    assert errand.requests[0].tools.keys() == offered
    for asked in errand.requests[1:4]:  # its own `everything` has seen by now what Claude Code can be asked
        assert asked.tools.keys() - offered <= FOR_WHOM_CAN_BE_ASKED and asked.tools.keys() >= offered
    groceries, echo, days = (errand.result(0, place) for place in range(3))
    assert groceries == text(json.dumps({"content": GROCERIES}, separators=(",", ":")))
    assert (echo, days) == (text("Echo: hello"), text("208 days"))
    total, picture, failed, refused = (errand.result(1, place) for place in range(4))
    assert total == text('{"total":5,"parts":[2,3],"note":null}')
    assert [(block["type"], block["source"]["media_type"]) for block in picture.content] == [("image", "image/png")]
    assert failed == text("out of paper", is_error=True)
    assert refused == text("MCP error 4711: not today", is_error=True)
    assert errand.result(2) == text("evil")


def test_claude_code_uses_a_server_that_was_added_during_its_run(errand: ScriptedModel) -> None:
    assert [NEW.tool in asked.tools for asked in (errand.requests[0], errand.requests[-1])] == [False, True]
    later = {call: result for call, result in errand.requests[-1].results.items() if turn_after([call]) > len(ERRAND)}
    assert text("on") in later.values()
    assert not any(result.is_error for result in later.values())
