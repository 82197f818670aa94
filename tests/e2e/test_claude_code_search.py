"""Claude Code behind a gateway with more tools than its budget: it has a search of its own and sees everything, unless
it is told to search like the others. Only its model is scripted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.catalogs import definitions_of, entry_of, stdio_server
from tests.support.claude_code import run_claude
from tests.support.gateway import TRUNKLINE, Gateway
from tests.support.scripted_model import ModelRequest, Script, ScriptedModel, Turn, Use, calls, in_order, says
from tests.support.waiting import START_WAIT_S

pytestmark = [pytest.mark.node, pytest.mark.slow, pytest.mark.timeout(120)]
SEARCHING = {"discover_tools", "provision_tools", "unprovision_tools", "execute_tool", "execute_read_only_tool"}
ISSUE = "github_create_issue"
QUERY = "create an issue in a repository"
MOST_TURNS = 40


def entries(folder: Path) -> list[dict[str, Any]]:
    return [entry_of(stdio_server(folder, name)) for name in ("github", "browser", "calendar", "openweather")]


def ours(tool: str, **arguments: Any) -> Use:
    return Use(f"mcp__trunkline__{tool}", arguments)


def names(request: ModelRequest) -> set[str]:
    return {name.removeprefix("mcp__trunkline__") for name in request.tools}


async def follow(gateway: Gateway, folder: Path, script: Script, frontend: str = "url") -> ScriptedModel:
    entry: dict[str, Any] = {"type": "http", "url": f"http://127.0.0.1:{gateway.port}/mcp"}
    if frontend == "command":
        entry = {"type": "stdio", "command": TRUNKLINE, "args": ["stdio", "-c", str(gateway.config)]}
    async with ScriptedModel(script) as model:
        finished = await run_claude(model, {"trunkline": entry}, folder / "claude")
    assert (finished.status, finished.servers) == (0, {"trunkline": "connected"}), finished.errors
    assert finished.said == "All done."
    return model


@pytest.mark.parametrize("frontend", ["url", "command"])
async def test_it_searches_by_itself_so_it_is_shown_everything(frontend: str, tmp_path: Path) -> None:
    script = in_order(calls(ours(ISSUE, title="It is broken")), says("All done."))
    with Gateway(tmp_path, *entries(tmp_path), meta_tools=True, start_wait=START_WAIT_S) as gateway:
        model = await follow(gateway, tmp_path, script, frontend)
    shown = names(model.requests[0])
    assert {ISSUE, "openweather_getForecast", "list_servers"} <= shown
    assert not shown & SEARCHING
    assert json.loads(model.result(0).text) == {"title": "It is broken"}


@pytest.mark.parametrize("frontend", ["url", "command"])
async def test_told_to_search_it_finds_executes_and_then_has_the_tool(frontend: str, tmp_path: Path) -> None:
    """It asks for the new list at once and shows it to its model some turns later; until then, `execute_tool` runs
    what was found, and a call by name would not leave Claude Code."""

    def script(request: ModelRequest) -> Turn:
        if request.turn == 0:
            return calls(ours("discover_tools", query=QUERY))
        if request.turn == 1:
            return calls(ours("execute_tool", tool_id=ISSUE, arguments={"title": "executed"}))
        if request.turn > MOST_TURNS or any("by its name" in result.text for result in request.results.values()):
            return says("All done.")
        if ISSUE in names(request):
            return calls(ours(ISSUE, title="by its name"))
        return calls(ours("discover_tools", query=QUERY, provision=False))

    with Gateway(
        tmp_path, *entries(tmp_path), meta_tools=True, disclosure="search", start_wait=START_WAIT_S
    ) as gateway:
        model = await follow(gateway, tmp_path, script, frontend)
    assert names(model.requests[0]) == SEARCHING
    found = json.loads(model.result(0).text)
    assert ISSUE in [tool["tool_id"] for tool in found["tools"]]
    assert json.loads(model.result(1).text) == {"title": "executed"}
    assert len(model.requests) < MOST_TURNS
    (theirs,) = [tool for tool in definitions_of("github") if tool["name"] == "create_issue"]
    shown = model.requests[-1].tools[f"mcp__trunkline__{ISSUE}"]
    assert (shown["description"], shown["input_schema"]) == (theirs["description"], theirs["inputSchema"])
