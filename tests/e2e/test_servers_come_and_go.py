"""Servers come, change and go while one client stays connected with the configuration it always had.

What it finds follows; what it calls of a server that is gone says so; what it was given comes back with its server.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import MCPError
from tests.support.catalogs import definitions_of, entry_of, http_server, stdio_server
from tests.support.gateway import Gateway, write_config
from tests.support.http_wire import Reply, fetch
from tests.support.peers.clients import MODERN, RealClient, connect
from tests.support.servers import HttpFaults
from tests.support.waiting import PATIENCE_S, START_WAIT_S, until

OPERATOR = "an-operators-token"
FORECAST = "openweather_getForecast"
SEND = "mail_send-email"
SERVERS = "/api/mcp/servers"
SETTINGS: dict[str, Any] = {
    "meta_tools": True,
    "disclosure": "search",
    "operator_token": OPERATOR,
    "start_wait": START_WAIT_S,
}


class Rig:
    """A gateway, its operator, and one client that never hears of a configuration."""

    def __init__(self, gateway: Gateway, client: RealClient, folder: Path) -> None:
        self.gateway = gateway
        self.client = client
        self.folder = folder

    async def operate(self, method: str, path: str, body: Any = None) -> Reply:
        headers = {"Authorization": f"Bearer {OPERATOR}", "Content-Type": "application/json"}
        data = None if method == "DELETE" else json.dumps(body or {}).encode()
        reply = await fetch(self.gateway.port, method, path, headers, data)
        assert reply.status in (200, 201, 202), reply.body
        return reply

    async def reload(self, *entries: dict[str, Any]) -> None:
        listen = f"127.0.0.1:{self.gateway.port}"
        write_config(self.folder, *entries, listen=listen, **SETTINGS)
        await self.operate("POST", "/api/reload")

    async def found(self, query: str, **more: Any) -> list[str]:
        result = await self.client.call("discover_tools", {"query": query, "limit": 20, **more})
        return [tool["tool_id"] for tool in json.loads(result.content[0].text)["tools"]]

    async def finds(self, query: str, tool: str) -> None:
        async def look() -> bool:
            return tool in await self.found(query)

        await until(look, f"`{query}` finds {tool}")

    async def finds_no_more(self, query: str, prefix: str) -> None:
        async def look() -> bool:
            return not any(tool.startswith(prefix) for tool in await self.found(query, provision=False))

        await until(look, f"`{query}` finds nothing of {prefix}")

    async def lists(self, tool: str, *, listed: bool = True) -> None:
        async def look() -> bool:
            return (tool in await self.client.names()) == listed

        await until(look, f"{tool} is {'' if listed else 'no longer '}listed")

    async def refused(self, tool: str) -> tuple[int, str, str]:
        """How a direct call and one by `execute_tool` fail, which is the same."""
        caught: list[MCPError] = []
        for name, arguments in ((tool, {}), ("execute_tool", {"tool_id": tool, "arguments": {}})):
            with pytest.raises(MCPError) as error:
                await self.client.call(name, arguments)
            caught.append(error.value)
        direct, executed = ((error.error.code, error.error.message) for error in caught)
        assert direct == executed
        return *direct, caught[0].error.data["executed"]

    @asynccontextmanager
    async def told(self) -> AsyncIterator[None]:
        """The client hears of a changed list because of what is done inside."""
        async with self.client.listening() as changed:
            self.client.list_changed.clear()
            yield
            async with asyncio.timeout(PATIENCE_S):
                await changed()


@asynccontextmanager
async def rig(folder: Path, *entries: dict[str, Any], era: str = "legacy") -> AsyncIterator[Rig]:
    with Gateway(folder, *entries, **SETTINGS) as gateway:
        url = f"http://127.0.0.1:{gateway.port}/mcp"
        async with connect("sdk", era, url, folder / "client.log") as client:
            yield Rig(gateway, client, folder)


@pytest.mark.parametrize("era", ["legacy", MODERN])
async def test_what_is_found_follows_the_file(era: str, tmp_path: Path) -> None:
    weather, mail = (entry_of(stdio_server(tmp_path, name)) for name in ("openweather", "mail"))
    async with rig(tmp_path, weather, era=era) as at:
        await at.finds("weather forecast", FORECAST)
        await at.finds_no_more("send an e-mail", "mail_")

        await at.reload(weather, mail)
        await at.finds("send an e-mail", SEND)
        assert not (await at.client.call(SEND, {"to": "ada@example.com"})).is_error

        async with at.told():
            await at.reload(mail)
        await at.finds_no_more("weather forecast", "openweather_")
        assert FORECAST not in await at.client.names()
        assert SEND in await at.client.names()
        assert await at.refused(FORECAST) == (-32602, f"Unknown tool: {FORECAST}", "no")

        async with at.told():
            await at.reload(mail, weather)
        await at.lists(FORECAST)
        assert not (await at.client.call("execute_tool", {"tool_id": FORECAST, "arguments": {}})).is_error


async def test_what_is_found_follows_the_operator(tmp_path: Path) -> None:
    weather = entry_of(stdio_server(tmp_path, "openweather"))
    with http_server(tmp_path, "mail") as mail:
        async with rig(tmp_path, weather) as at:
            await at.finds_no_more("send an e-mail", "mail_")
            await at.operate("POST", SERVERS, {"name": "mail", "url": mail.url})
            await at.finds("send an e-mail", SEND)
            await at.lists(SEND)

            await at.operate("DELETE", f"{SERVERS}/mail")
            await at.finds_no_more("send an e-mail", "mail_")
            assert await at.refused(SEND) == (-32602, f"Unknown tool: {SEND}", "no")

            await at.operate("POST", SERVERS, {"name": "mail", "url": mail.url})
            await at.lists(SEND)
            assert not (await at.client.call("execute_tool", {"tool_id": SEND, "arguments": {}})).is_error


async def test_a_server_that_is_replaced_is_found_as_it_is_now(tmp_path: Path) -> None:
    old = [tool for tool in definitions_of("openweather") if tool["name"] == "getForecast"]
    new = [
        {"name": "getForecast", "description": "Expected sales of the next quarter", "inputSchema": {"type": "object"}},
        {"name": "getTides", "description": "High and low water at a harbour", "inputSchema": {"type": "object"}},
    ]
    allow = {"allow": ["get*"]}
    first, second = (HttpFaults(tmp_path, "openweather", tools=tools) for tools in (old, new))
    with first, second:
        async with rig(tmp_path, first.entry(tools=allow)) as at:
            await at.finds("weather forecast", FORECAST)
            async with at.told():
                await at.reload(second.entry(tools=allow))
            await at.finds("high water", "openweather_getTides")
            await at.finds("sales of the next quarter", FORECAST)

            async def shown() -> bool:
                tools = {tool.name: tool for tool in await at.client.tools()}
                return FORECAST in tools and tools[FORECAST].description == new[0]["description"]

            await until(shown, "what was given under this name is shown as it is now")


async def test_tools_of_a_server_that_is_away_come_back_with_it(tmp_path: Path) -> None:
    github = entry_of(stdio_server(tmp_path, "github"))
    with http_server(tmp_path, "openweather") as weather:
        async with rig(tmp_path, github, entry_of(weather, grace=0)) as at:
            await at.finds("weather forecast", FORECAST)
            await at.lists(FORECAST)
            weather.stop()
            await at.operate("POST", f"{SERVERS}/openweather/reconnect")
            await at.lists(FORECAST, listed=False)
            await at.finds_no_more("weather forecast", "openweather_")
            code, message, executed = await at.refused(FORECAST)
            assert (code, executed) == (503, "no")
            assert message.startswith("Server openweather is down: ")
            assert "github_create_issue" in await at.found("create an issue")

            weather.start()
            await at.operate("POST", f"{SERVERS}/openweather/reconnect")
            await at.lists(FORECAST)
            assert not (await at.client.call("execute_tool", {"tool_id": FORECAST, "arguments": {}})).is_error


async def test_a_tool_that_its_server_adds_while_it_runs_is_found(tmp_path: Path) -> None:
    server = stdio_server(tmp_path, "github")
    async with rig(tmp_path, entry_of(server, "grow", "grown*")) as at:
        assert not [tool for tool in await at.found("grown in the meantime") if "grown" in tool]
        await at.client.call("github_grow", {"name": "grown_in_the_meantime"})
        await at.finds("grown in the meantime", "github_grown_in_the_meantime")
        await at.lists("github_grown_in_the_meantime")
