"""A server as people write them: `common_server (fastmcp | sdk) (stdio | http PORT)`.

It speaks every version, as servers do once their library does, and asks its client while a call runs, which only the
versions before 2026-07-28 allow: so it works for an old client, if whoever is in between lets the two speak as before.
"""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

from mcp.server.mcpserver import Context as SdkContext
from mcp.server.mcpserver import MCPServer
from mcp.shared.exceptions import MCPDeprecationWarning
from mcp_types import SamplingMessage, TextContent
from pydantic import BaseModel

if "fastmcp" in sys.argv:  # half a second that the other does without
    from fastmcp import Context as FastMcpContext
    from fastmcp import FastMCP

warnings.simplefilter("ignore", MCPDeprecationWarning)


class Person(BaseModel):
    """What the form asks for."""

    name: str
    age: int


async def ask_user(context: Any) -> str:
    answer = await context.elicit("Who are you?", Person)
    return f"{answer.data.name} is {answer.data.age}" if answer.action == "accept" else answer.action


async def ask_model(context: Any) -> str:
    message = SamplingMessage(role="user", content=TextContent(text="engines"))
    session, request = context.session, context.request_id
    answer = await session.create_message([message], max_tokens=10, related_request_id=request)
    return answer.content.text


def on_fastmcp() -> FastMCP[Any]:
    server: FastMCP[Any] = FastMCP("common")

    @server.tool
    async def survey(ctx: FastMcpContext) -> str:
        return await ask_user(ctx)

    @server.tool
    async def think(ctx: FastMcpContext) -> str:
        return await ask_model(ctx)

    @server.tool
    def whoami() -> int:
        return os.getpid()

    return server


def on_sdk() -> MCPServer:
    server = MCPServer("common", log_level="ERROR")

    @server.tool()
    async def survey(ctx: SdkContext[Any, Any]) -> str:
        return await ask_user(ctx)

    @server.tool()
    async def think(ctx: SdkContext[Any, Any]) -> str:
        return await ask_model(ctx)

    @server.tool()
    def whoami() -> int:
        return os.getpid()

    return server


def main(library: str, transport: str, port: str = "0") -> None:
    if library == "fastmcp":
        options: dict[str, Any] = {"port": int(port)} if transport == "http" else {}
        on_fastmcp().run(transport, show_banner=False, log_level="ERROR", **options)
    elif transport == "http":
        on_sdk().run("streamable-http", port=int(port))
    else:
        on_sdk().run("stdio")


if __name__ == "__main__":
    main(*sys.argv[1:])
