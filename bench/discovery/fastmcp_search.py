"""FastMCP's tool search, run for real: its server, its BM25 transform, its client, its `search_tools`."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastmcp import Client, FastMCP
from fastmcp.server.transforms.search import BM25SearchTransform
from fastmcp.tools.base import Tool, ToolResult

from bench.discovery.sets import ToolText

Ask = Callable[[str], Awaitable[list[str]]]
TITLE = f"FastMCP {version('fastmcp')} tool search"


class _Listed(Tool):
    """A tool that is only looked for."""

    async def run(self, arguments: dict[str, object]) -> ToolResult:
        return ToolResult(content=[])


@asynccontextmanager
async def searching(tools: Sequence[ToolText], most: int) -> AsyncIterator[Ask]:
    """Ask it through an MCP client in the same process; the ids of what it finds, best first."""
    logging.getLogger("fastmcp").setLevel(logging.ERROR)  # which warns of names with spaces in the sets
    server = FastMCP("bench")
    ids: dict[str, str] = {}
    for name, tool in zip(mounted_names(tools), tools, strict=True):
        ids[name] = tool.id
        server.add_tool(_Listed(name=name, description=tool.description, parameters=tool.schema or {"type": "object"}))
    # Names are all we need of the results; the search itself is the same.
    server.add_transform(BM25SearchTransform(max_results=most, search_result_serializer=_names))
    async with Client(server) as client:

        async def ask(query: str) -> list[str]:
            answer = await client.call_tool("search_tools", {"query": query})
            return [ids[entry["name"]] for entry in answer.data]

        yield ask


async def rank_all(tools: Sequence[ToolText], queries: Iterable[str], most: int) -> list[list[str]]:
    async with searching(tools, most) as ask:
        return [await ask(query) for query in queries]


def _names(tools: Sequence[Tool]) -> list[dict[str, str]]:
    return [{"name": tool.name} for tool in tools]


def mounted_names(tools: Sequence[ToolText]) -> list[str]:
    """Behind the server's name, as FastMCP mounts servers. Some sets have several tools of one name, FastMCP knows one
    of each: those get digits behind them, one by one, which its search does not take for words.
    """
    seen: Counter[str] = Counter()
    names: list[str] = []
    for tool in tools:
        name = f"{tool.server}_{tool.name}" if tool.server else tool.name
        seen[name] += 1
        names.append(name if seen[name] == 1 else "_".join([name, *str(seen[name])]))
    return names
