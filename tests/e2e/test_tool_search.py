"""A client that is shown tools to search with: it finds some, sees them in its list, calls them and gives them back.

The dialogue is the same for the SDK's client and FastMCP's, in both eras, through every frontend.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import MCPError
from mcp_types import CallToolResult
from tests.support.catalogs import definitions_of, entry_of, http_server, stdio_server
from tests.support.gateway import TRUNKLINE, Gateway, write_config
from tests.support.peers.clients import MODERN, RealClient, connect
from tests.support.waiting import PATIENCE_S, START_WAIT_S, until, wait_until

SEARCHING = {"discover_tools", "provision_tools", "unprovision_tools", "execute_tool", "execute_read_only_tool"}
FORECAST = "openweather_getForecast"
SCREENSHOT = "browser_browser_take_screenshot"
REQUESTS = [
    ("will it rain in Porto over the weekend, and how warm will it be", FORECAST),
    ("take a picture of the page as it looks now", SCREENSHOT),
    ("propose my feature branch for inclusion in main", "github_create_pull_request"),
    ("when could the five of us meet for 45 minutes next week", "calendar_find-free-slots"),
]
_handles = itertools.count(1)


class Places:
    """A gateway with servers of several kinds, and how clients get to it or to one like it."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        weather = stack.enter_context(http_server(folder, "openweather"))
        self.entries = [
            entry_of(stdio_server(folder, "github"), "refuse", "fail"),
            entry_of(stdio_server(folder, "browser")),
            entry_of(stdio_server(folder, "calendar")),
            entry_of(weather),
        ]
        state = str(folder / "state")  # what is known of the meaning of tools serves all of them
        self.settings: dict[str, Any] = {"meta_tools": True, "start_wait": START_WAIT_S, "state_dir": state}
        self.gateway = stack.enter_context(Gateway(folder, *self.entries, **self.settings))
        self.url = f"http://127.0.0.1:{self.gateway.port}/mcp"
        wait_until(lambda: self.gateway.log.count(" is ready") == len(self.entries), "all servers are up", START_WAIT_S)

    def target(self, frontend: str, folder: Path) -> str | list[str]:
        if frontend == "stdio":
            config = write_config(folder, *self.entries, **self.settings)
            return [TRUNKLINE, "stdio", "--alone", "-c", str(config)]
        if frontend == "attached":
            return [TRUNKLINE, "stdio", "--url", self.url]
        return self.url


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    with ExitStack() as stack:
        yield Places(tmp_path_factory.mktemp("places"), stack)


class Setting:
    def __init__(self, kind: str, era: str, frontend: str, places: Places, folder: Path) -> None:
        self.kind, self.era, self.frontend = kind, era, frontend
        self.places = places
        self._folder = folder

    @asynccontextmanager
    async def client(self) -> AsyncIterator[RealClient]:
        target = self.places.target(self.frontend, self._folder)
        async with connect(self.kind, self.era, target, self._folder / "client.log") as client:
            yield client
            if self.era == MODERN:  # what it holds is its principal's, and stays
                await give_all_back(client)


WAYS = [
    ("sdk", "legacy", "http"),
    ("sdk", MODERN, "http"),
    ("sdk", "legacy", "stdio"),
    ("sdk", "legacy", "attached"),
    ("sdk", MODERN, "attached"),
    ("fastmcp", "legacy", "http"),
    ("fastmcp", MODERN, "stdio"),
]


@pytest.fixture(params=WAYS, ids="-".join)
def setting(request: pytest.FixtureRequest, places: Places, tmp_path: Path) -> Setting:
    return Setting(*request.param, places, tmp_path)


@pytest.fixture
def simply(places: Places, tmp_path: Path) -> Setting:
    """Where the way does not matter."""
    return Setting("sdk", "legacy", "http", places, tmp_path)


def read(result: CallToolResult) -> dict[str, Any]:
    """What one of our own tools answered."""
    assert not result.is_error, result
    (content,) = result.content
    return json.loads(content.text)


async def discover(client: RealClient, query: str, **more: Any) -> list[str]:
    found = read(await client.call("discover_tools", {"query": query, **more}))
    return [tool["tool_id"] for tool in found["tools"]]


async def discover_by_meaning(client: RealClient, query: str, tool: str) -> dict[str, Any]:
    """Until a gateway knows what its tools mean, it finds them by their words."""

    async def knows() -> bool:
        return tool in await discover(client, query, provision=False)

    await until(knows, f"{tool} is found by `{query}`", START_WAIT_S)
    return read(await client.call("discover_tools", {"query": query}))


async def give_all_back(client: RealClient) -> None:
    if held := sorted(await client.names() - SEARCHING):
        await client.call("unprovision_tools", {"tool_ids": held})


@asynccontextmanager
async def told_of_a_change(client: RealClient) -> AsyncIterator[None]:
    """The client hears of a changed list because of what is done inside."""
    async with client.listening() as changed:
        client.list_changed.clear()
        yield
        async with asyncio.timeout(PATIENCE_S):
            await changed()


# The dialogue ---------------------------------------------------------------------------------------------------------


async def test_tools_are_found_listed_called_and_given_back(setting: Setting) -> None:
    async with setting.client() as client:
        assert await client.names() == SEARCHING

        async with told_of_a_change(client):
            found = await discover_by_meaning(client, REQUESTS[0][0], FORECAST)
        ids = [tool["tool_id"] for tool in found["tools"]]
        assert FORECAST in ids
        assert found["provisioned"] is True
        assert 0 < found["tokens"] <= found["budget"] == 4000

        listed = {tool.name: tool for tool in await client.tools()}
        assert listed.keys() == SEARCHING | set(ids)
        (theirs,) = [tool for tool in definitions_of("openweather") if tool["name"] == "getForecast"]
        (shown,) = [tool for tool in found["tools"] if tool["tool_id"] == FORECAST]
        assert shown["inputSchema"] == listed[FORECAST].input_schema == theirs["inputSchema"]
        assert shown["description"] == listed[FORECAST].description == theirs["description"]

        asked = {"city": "Porto", "days": 2}
        direct = await client.call(FORECAST, asked)
        assert direct.structured_content == asked
        executed = await client.call("execute_tool", {"tool_id": FORECAST, "arguments": asked})
        assert executed == direct

        async with told_of_a_change(client):
            answer = read(await client.call("unprovision_tools", {"tool_ids": [FORECAST]}))
        assert answer["removed"] == [FORECAST]
        assert await client.names() == SEARCHING | set(ids) - {FORECAST}
        await executes_at_once_what_it_finds(client)


async def executes_at_once_what_it_finds(client: RealClient) -> None:
    """Without a new list."""
    for query, tool in REQUESTS:
        await discover_by_meaning(client, query, tool)
        result = await client.call("execute_tool", {"tool_id": tool, "arguments": {"asked": query}})
        assert result.structured_content == {"asked": query}


# What may be run ------------------------------------------------------------------------------------------------------


async def test_only_what_says_that_it_reads_runs_as_read_only(simply: Setting) -> None:
    async with simply.client() as client:
        assert FORECAST in await discover(client, "weather forecast")
        assert "github_create_issue" in await discover(client, "create an issue in a repository")
        only_reads = await client.call("execute_read_only_tool", {"tool_id": FORECAST, "arguments": {"city": "Porto"}})
        assert only_reads.structured_content == {"city": "Porto"}
        with pytest.raises(MCPError) as caught:
            await client.call("execute_read_only_tool", {"tool_id": "github_create_issue", "arguments": {}})
        assert caught.value.error.code == -32602
        assert caught.value.error.message == "Tool github_create_issue is not annotated as read-only"
        assert caught.value.error.data["executed"] == "no"


async def test_the_two_ways_to_execute_say_truly_what_they_may_do(simply: Setting) -> None:
    async with simply.client() as client:
        tools = {tool.name: tool for tool in await client.tools()}
    assert tools["execute_read_only_tool"].annotations.read_only_hint is True
    anything = tools["execute_tool"].annotations
    assert (anything.read_only_hint, anything.destructive_hint) == (False, True)


NOT_EXECUTED = {
    FORECAST: f"Tool {FORECAST} not provisioned. Use provision_tools first.",
    "openweather_makeItRain": "Unknown tool: openweather_makeItRain",
    "weather": "Invalid tool ID format: weather",
    "discover_tools": "Unknown tool: discover_tools",
}


async def test_what_was_not_found_or_does_not_exist_is_not_executed(simply: Setting) -> None:
    async with simply.client() as client:
        for tool_id, message in NOT_EXECUTED.items():
            with pytest.raises(MCPError) as caught:
                await client.call("execute_tool", {"tool_id": tool_id, "arguments": {}})
            assert (caught.value.error.code, caught.value.error.message) == (-32602, message)
            assert caught.value.error.data["executed"] == "no", tool_id


async def test_a_tool_that_is_not_shown_can_be_called_by_its_name(simply: Setting) -> None:
    async with simply.client() as client:
        assert (await client.call(FORECAST, {"city": "Porto"})).structured_content == {"city": "Porto"}
        assert await client.names() == SEARCHING


async def test_arguments_are_taken_as_models_write_them(simply: Setting) -> None:
    async with simply.client() as client:
        await discover(client, "weather forecast")
        for arguments in (None, "", "{}", '{"city": "Porto"}', {"city": "Porto"}):
            result = await client.call("execute_tool", {"tool_id": FORECAST, "arguments": arguments})
            taken = {"city": "Porto"} if "Porto" in str(arguments) else {}
            assert json.loads(result.content[0].text) == taken, arguments


async def test_a_servers_own_error_comes_through_execute_as_it_is(simply: Setting) -> None:
    async with simply.client() as client:
        await client.call("provision_tools", {"tool_ids": ["github_refuse", "github_fail"]})
        refused = {"code": 4711, "message": "not today", "data": {"why": [1, None]}}
        with pytest.raises(MCPError) as caught:
            await client.call("execute_tool", {"tool_id": "github_refuse", "arguments": refused})
        with pytest.raises(MCPError) as direct:
            await client.call("github_refuse", refused)
        assert caught.value.error == direct.value.error
        failed = await client.call("execute_tool", {"tool_id": "github_fail", "arguments": {}})
        assert failed.is_error
        assert failed == await client.call("github_fail", {})


# The budget -----------------------------------------------------------------------------------------------------------


async def test_what_does_not_fit_into_the_budget_is_said_with_its_reason(simply: Setting) -> None:
    wanted = [FORECAST, "github_create_pull_request", "github_no_such_tool"]
    async with simply.client() as client:
        answer = read(await client.call("provision_tools", {"tool_ids": wanted, "context_tokens": 100}))
        (given,) = answer["provisioned"]
        assert given["tool_id"] == FORECAST
        assert given["tokens"] == answer["tokens"] <= answer["budget"] == 100
        too_large, unknown = answer["refused"]
        assert too_large["tool_id"] == "github_create_pull_request"
        assert too_large["why"].startswith(f"needs {too_large['tokens']} tokens and {100 - given['tokens']} are left")
        assert unknown["tool_id"] == "github_no_such_tool"
        assert "no such tool" in unknown["why"]
        assert await client.names() == SEARCHING | {FORECAST}

        more = read(await client.call("provision_tools", {"tool_ids": wanted[1:2], "context_tokens": 1000}))
        assert [tool["tool_id"] for tool in more["provisioned"]] == wanted[1:2]
        assert await client.names() == SEARCHING | set(wanted[:2])


async def test_what_was_found_before_makes_room_and_can_still_be_executed(simply: Setting) -> None:
    async with simply.client() as client:
        await client.call("provision_tools", {"tool_ids": ["calendar_list-events"], "context_tokens": 400})
        first = await discover(client, "weather forecast", limit=1)
        seen: set[str] = set()
        for query in ("create a pull request", "merge a pull request", "find free slots", "search code"):
            seen |= set(await discover(client, query, limit=2))
            assert "calendar_list-events" in await client.names()
        assert first == [FORECAST]
        assert FORECAST not in await client.names()
        assert len(seen & await client.names()) < len(seen)
        result = await client.call("execute_tool", {"tool_id": FORECAST, "arguments": {"city": "Porto"}})
        assert not result.is_error


async def test_a_search_that_provisions_nothing_changes_nothing(simply: Setting) -> None:
    async with simply.client() as client:
        assert FORECAST in await discover(client, "weather forecast", provision=False)
        assert await client.names() == SEARCHING
        with pytest.raises(MCPError, match="not provisioned"):
            await client.call("execute_tool", {"tool_id": FORECAST, "arguments": {}})


# Whose list it is -----------------------------------------------------------------------------------------------------


@pytest.mark.law
async def test_each_session_has_a_list_of_its_own_that_ends_with_it(simply: Setting) -> None:
    async with simply.client() as one, simply.client() as other:
        await discover(one, "weather forecast")
        assert FORECAST in await one.names()
        other.list_changed.clear()
        assert await other.names() == SEARCHING
        with pytest.raises(MCPError, match="not provisioned"):
            await other.call("execute_tool", {"tool_id": FORECAST, "arguments": {}})
        assert not other.list_changed.is_set(), "it was told of a change that is none of its own"
    async with simply.client() as later:
        assert await later.names() == SEARCHING
        with pytest.raises(MCPError, match="not provisioned"):
            await later.call("execute_tool", {"tool_id": FORECAST, "arguments": {}})


@pytest.mark.law
async def test_without_a_session_the_list_is_the_principals(places: Places, tmp_path: Path) -> None:
    setting = Setting("sdk", MODERN, "http", places, tmp_path)
    async with setting.client() as one, setting.client() as other:
        async with told_of_a_change(other):
            await discover(one, "weather forecast")
        assert FORECAST in await other.names()
        assert not (await other.call("execute_tool", {"tool_id": FORECAST})).is_error


@pytest.mark.law
async def test_a_handle_keeps_what_is_held_apart(places: Places, tmp_path: Path) -> None:
    setting = Setting("sdk", MODERN, "http", places, tmp_path)
    mine = f"conversation-{next(_handles)}"
    async with setting.client() as client:
        assert FORECAST in await discover(client, "weather forecast", session=mine)
        assert await client.names() == SEARCHING, "the list is of those without a handle"
        executed = await client.call("execute_tool", {"tool_id": FORECAST, "session": mine})
        assert not executed.is_error
        for other in ({}, {"session": f"not-{mine}"}):
            with pytest.raises(MCPError, match="not provisioned"):
                await client.call("execute_tool", {"tool_id": FORECAST, **other})
        taken = read(await client.call("unprovision_tools", {"tool_ids": [FORECAST], "session": mine}))
        assert taken["removed"] == [FORECAST]
        with pytest.raises(MCPError, match="not provisioned"):
            await client.call("execute_tool", {"tool_id": FORECAST, "session": mine})


# Settings -------------------------------------------------------------------------------------------------------------


async def test_what_is_shown_follows_the_file_while_clients_stay(tmp_path: Path) -> None:
    entries = [stdio_server(tmp_path, name).entry() for name in ("github", "browser", "calendar")]
    with Gateway(tmp_path, *entries, meta_tools=True, disclosure="all", start_wait=START_WAIT_S) as gateway:
        listen = {"listen": f"127.0.0.1:{gateway.port}", "meta_tools": True, "start_wait": START_WAIT_S}
        url = f"http://127.0.0.1:{gateway.port}/mcp"
        async with connect("sdk", "legacy", url, tmp_path / "client.log") as client:
            everything = await client.names()
            assert {"github_create_issue", SCREENSHOT, "list_servers"} <= everything
            assert not everything & SEARCHING

            async def shows(names: set[str]) -> bool:
                return await client.names() == names

            async with told_of_a_change(client):
                pinned = {"search": {"pinned": ["github.create_issue", "browser_browser_take*"]}}
                write_config(tmp_path, *entries, disclosure="search", **pinned, **listen)
            assert await client.names() == SEARCHING | {"github_create_issue", SCREENSHOT}
            executed = await client.call("execute_tool", {"tool_id": "github_create_issue", "arguments": {}})
            assert not executed.is_error, "what is pinned needs no search"

            write_config(tmp_path, *entries, disclosure="search", require_provisioning=False, **listen)
            await until(lambda: shows(SEARCHING), "nothing is pinned")
            assert not (await client.call("execute_tool", {"tool_id": SCREENSHOT})).is_error

            write_config(tmp_path, *entries, search={"show_all_to": ["test"]}, **listen)
            await until(lambda: shows(everything), "a client that searches by itself gets everything")


async def test_a_small_catalog_is_shown_whole(tmp_path: Path) -> None:
    few = {"tools": {"allow": ["get*"]}}
    with Gateway(
        tmp_path, stdio_server(tmp_path, "openweather").entry(**few), meta_tools=True, start_wait=START_WAIT_S
    ) as gateway:
        url = f"http://127.0.0.1:{gateway.port}/mcp"
        async with connect("sdk", "legacy", url, tmp_path / "client.log") as client:
            names = await client.names()
            assert FORECAST in names
            assert not names & SEARCHING
            assert FORECAST in await discover(client, "weather forecast")


async def test_tags_of_the_operator_narrow_a_search(tmp_path: Path) -> None:
    tags = {"tags": {"outdoors": ["openweather.*"], "code": ["github_*"]}}
    entries = [stdio_server(tmp_path, name).entry() for name in ("github", "openweather")]
    with Gateway(tmp_path, *entries, meta_tools=True, search=tags, start_wait=START_WAIT_S) as gateway:
        url = f"http://127.0.0.1:{gateway.port}/mcp"
        async with connect("sdk", "legacy", url, tmp_path / "client.log") as client:
            found = await discover(client, "list what is new", tags=["outdoors"], limit=50)
            assert all(tool.startswith("openweather_") for tool in found)
            both = await discover(client, "create an issue about the weather", tags=["outdoors", "code"], limit=50)
            assert {tool.partition("_")[0] for tool in both} == {"github", "openweather"}
            assert await discover(client, "weather forecast", tags=["no-such-tag"]) == []
