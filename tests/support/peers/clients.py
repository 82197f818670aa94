"""The official SDK's client and FastMCP's, behind one small interface."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

import fastmcp
import mcp
from fastmcp.client.transports import ClientTransport, StdioTransport, StreamableHttpTransport
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import listen
from mcp_types import CallToolResult, Implementation, Tool, ToolListChangedNotification

Kind = Literal["sdk", "fastmcp"]
Progress = Callable[[float, float | None, str | None], Awaitable[None]]
MODERN = "2026-07-28"


class RealClient:
    """One connected client. `kind` says whose code it is; results are the SDK's types either way."""

    def __init__(self, client: Any, list_changed: asyncio.Event) -> None:
        self.client = client
        self.list_changed = list_changed
        """Set when the server says that its tools have changed (legacy era)."""

    @property
    def protocol_version(self) -> str:
        return self.client.protocol_version

    async def tools(self) -> list[Tool]:
        listed = await self.client.list_tools()
        return listed if isinstance(listed, list) else listed.tools

    async def names(self) -> set[str]:
        return {tool.name for tool in await self.tools()}

    async def call(
        self, tool: str, arguments: dict[str, Any] | None = None, on_progress: Progress | None = None
    ) -> CallToolResult:
        if isinstance(self.client, mcp.Client):
            return await self.client.call_tool(tool, arguments, progress_callback=on_progress)
        return await self.client.call_tool_mcp(tool, arguments or {}, progress_handler=on_progress)

    async def ping(self) -> None:
        await self.client.session.send_ping()

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[Callable[[], Awaitable[object]]]:
        """Something to await that returns once the tools have changed, the way of the era."""
        if self.protocol_version != MODERN:
            yield self.list_changed.wait
            return
        async with listen(self.client.session, tools_list_changed=True) as subscription:
            yield subscription.__anext__


@contextlib.asynccontextmanager
async def connect(
    kind: Kind, era: str, target: str | list[str], log: Path, *, name: str = "test"
) -> AsyncIterator[RealClient]:
    """A client of a URL or of a command; `era` is the SDK's `mode`: `legacy`, `auto` or a version."""
    list_changed = asyncio.Event()
    info = Implementation(name=name, version="1")

    async def on_message(message: object) -> None:
        if isinstance(message, ToolListChangedNotification):
            list_changed.set()

    with log.open("a") as errors:
        if kind == "sdk":
            client: Any = mcp.Client(
                _sdk_transport(target, errors), mode=era, message_handler=on_message, client_info=info
            )
        else:
            client = fastmcp.Client(
                _fastmcp_transport(target, errors), mode=era, message_handler=on_message, client_info=info
            )
        async with client:
            yield RealClient(client, list_changed)


def _sdk_transport(target: str | list[str], errors: Any) -> Any:
    if isinstance(target, str):
        return streamable_http_client(target)
    return stdio_client(StdioServerParameters(command=target[0], args=target[1:]), errlog=errors)


def _fastmcp_transport(target: str | list[str], errors: Any) -> ClientTransport:
    if isinstance(target, str):
        return StreamableHttpTransport(target)
    return StdioTransport(target[0], target[1:], keep_alive=False, log_file=errors)
