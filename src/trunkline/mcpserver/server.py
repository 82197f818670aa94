"""The server of a program: its tools, and the ways to serve them."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from types import MappingProxyType
from typing import Any

from trunkline.mcpserver.connection import LIMIT_BYTES, Connection, Reader
from trunkline.mcpserver.messages import Json
from trunkline.mcpserver.outgoing import Writer
from trunkline.mcpserver.tool import Handler, Tool, new_tool


class Server:
    """An MCP server. `instructions` are a word to the model about all tools together; a message of a client that is
    longer than `limit_bytes` is refused."""

    def __init__(
        self,
        name: str = "server",
        version: str = "0",
        instructions: str = "",
        *,
        title: str = "",
        limit_bytes: int = LIMIT_BYTES,
    ) -> None:
        self._info: Json = {"name": name, "version": version} | ({"title": title} if title else {})
        self._instructions = instructions
        self._limit_bytes = limit_bytes
        self._tools: dict[str, Tool] = {}
        self._changing = threading.Lock()  # handlers in threads may add and remove tools
        self._connections: set[Connection] = set()

    @property
    def info(self) -> Json:
        """How it introduces itself."""
        return dict(self._info)

    @property
    def instructions(self) -> str:
        return self._instructions

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The tools by name, in the order in which clients see them."""
        return MappingProxyType(self._tools)

    # -- tools ----------------------------------------------------------------------------------------------------

    def register_tool(
        self,
        name: str,
        schema: Mapping[str, Any] | None,
        handler: Handler,
        *,
        description: str | None = "",
        title: str | None = "",
        annotations: Mapping[str, Any] | None = None,
        output_schema: Mapping[str, Any] | None = None,
    ) -> None:
        """Offer a tool, also to clients that are connected already. `schema` is the JSON Schema of its arguments.

        Raises ValueError for a name that is taken, and for a definition that no client could use.
        """
        tool = new_tool(
            name,
            schema,
            handler,
            description=description,
            title=title,
            annotations=annotations,
            output_schema=output_schema,
        )
        with self._changing:
            if name in self._tools:
                raise ValueError(f"there is a tool `{name}` already")
            self._tools = {**self._tools, name: tool}
        self._tell_changed()

    def remove_tool(self, name: str) -> None:
        """Offer it no longer; calls that run go on. Raises KeyError where there is no such tool."""
        with self._changing:
            tools = dict(self._tools)
            del tools[name]
            self._tools = tools
        self._tell_changed()

    def _tell_changed(self) -> None:
        for connection in tuple(self._connections):
            connection.tools_changed()

    # -- serving --------------------------------------------------------------------------------------------------

    async def serve(self, reader: Reader, writer: Writer) -> None:
        """Serve one client, until it ends its side; any number may be served at once. The writer is closed then.

        The two are asyncio's streams, or anything else that has `read`, and `write`, `drain` and `close`.
        """
        connection = Connection(self, reader, writer, limit_bytes=self._limit_bytes)
        self._connections.add(connection)
        try:
            await connection.run()
        finally:
            self._connections.discard(connection)

    async def serve_stdio(self) -> None:
        """Serve the program that started this one. What is printed meanwhile goes to stderr."""
        from trunkline.mcpserver.stdio import stdio_streams

        async with stdio_streams() as (reader, writer):
            await self.serve(reader, writer)

    def run(self) -> None:
        """The whole program: serve stdio, and return when the client is done."""
        with suppress(KeyboardInterrupt):
            asyncio.run(self.serve_stdio())

    @asynccontextmanager
    async def listening(
        self, host: str = "127.0.0.1", port: int = 0, *, path: str | os.PathLike[str] | None = None
    ) -> AsyncGenerator[tuple[str, int], None]:
        """Serve whoever connects, by TCP or with `path` at a Unix socket, while the `with` block runs.

        It gives the address, where port 0 has become a free one. Nobody has to show who they are: anyone who can
        connect can call the tools.
        """
        from trunkline.mcpserver.listener import listen

        async with listen(self.serve, host, port, path) as address:
            yield address
