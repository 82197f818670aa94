"""Claude Desktop's entry, as our pages and `trunkline connect` give it: exactly that command is started, as Claude
Desktop starts it, and a tool is found and called through it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp
import pytest
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_types import Implementation
from tests.support.catalogs import entry_of, stdio_server
from tests.support.docs_pages import DOCS, blocks
from tests.support.gateway import TRUNKLINE, Gateway, write_config
from tests.support.waiting import START_WAIT_S, at_most

TOKEN = "a-clients-token"
SEARCHING = {"discover_tools", "provision_tools", "unprovision_tools", "execute_tool", "execute_read_only_tool"}
ISSUE = "github_create_issue"
DESKTOP = Implementation(name="claude-ai", version="0.1.0")
SETTINGS: dict[str, Any] = {"meta_tools": True, "start_wait": START_WAIT_S}


def entries(folder: Path) -> list[dict[str, Any]]:
    return [entry_of(stdio_server(folder, name)) for name in ("github", "browser", "calendar", "mail")]


@asynccontextmanager
async def claude_desktop(server: dict[str, Any], folder: Path) -> AsyncIterator[mcp.Client]:
    """It gives a program a short PATH, its home and what the entry says."""
    environment = {"HOME": str(folder), "PATH": "/usr/bin:/bin", **server.get("env", {})}
    started = StdioServerParameters(command=server["command"], args=server["args"], env=environment, cwd=folder)
    with (folder / "desktop.log").open("a") as log:
        async with mcp.Client(stdio_client(started, errlog=log), mode="legacy", client_info=DESKTOP) as client:
            yield client


async def finds_and_calls(server: dict[str, Any], folder: Path) -> None:
    async with claude_desktop(server, folder) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == SEARCHING
        found = await client.call_tool("discover_tools", {"query": "create an issue in a repository"})
        assert ISSUE in [tool["tool_id"] for tool in json.loads(found.content[0].text)["tools"]]
        assert ISSUE in {tool.name for tool in (await client.list_tools(cache_mode="bypass")).tools}
        arguments = {"owner": "ada", "title": "It is broken"}
        assert (await client.call_tool(ISSUE, arguments)).structured_content == arguments
        executed = await client.call_tool("execute_tool", {"tool_id": ISSUE, "arguments": arguments})
        assert executed.structured_content == arguments


@pytest.mark.parametrize("token", ["", TOKEN], ids=["open", "token"])
async def test_what_connect_prints_is_all_it_needs(token: str, tmp_path: Path) -> None:
    with Gateway(tmp_path, *entries(tmp_path), token=token, **SETTINGS) as gateway:
        command = [TRUNKLINE, "connect", "claude-desktop", "--url", f"http://127.0.0.1:{gateway.port}/mcp"]
        shown = subprocess.run(command, capture_output=True, text=True, timeout=at_most(60), check=True).stdout
        server = json.loads(shown.replace("$TRUNKLINE_TOKEN", token))["mcpServers"]["trunkline"]
        assert server["command"] == TRUNKLINE
        await finds_and_calls(server, tmp_path)


def entry_of_the_page(config: Path) -> dict[str, Any]:
    """The first example of the page, with the two paths that a reader would write."""
    (example, *_) = blocks(DOCS / "frontends" / "stdio.md", "json")
    server = json.loads(example.text)["mcpServers"]["trunkline"]
    assert server["command"] == "trunkline"
    assert server["args"][-1] == "/home/me/trunkline.yaml"
    return {**server, "command": TRUNKLINE, "args": [*server["args"][:-1], str(config)]}


async def test_the_entry_of_the_page_serves_by_itself(tmp_path: Path) -> None:
    config = write_config(tmp_path, *entries(tmp_path), **SETTINGS)
    await finds_and_calls(entry_of_the_page(config), tmp_path)


async def test_the_entry_of_the_page_joins_a_gateway_that_runs(tmp_path: Path) -> None:
    with Gateway(tmp_path, *entries(tmp_path), **SETTINGS) as gateway:
        await finds_and_calls(entry_of_the_page(gateway.config), tmp_path)
    assert '"client":"claude-ai"' in gateway.log
