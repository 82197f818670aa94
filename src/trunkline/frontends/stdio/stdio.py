"""MCP over stdio: one client, one line of JSON per message, nothing else on stdout."""

from __future__ import annotations

from functools import partial
from typing import Final

from trunkline.core.call import Caller
from trunkline.frontends.mcp.server import McpServer
from trunkline.frontends.stdio.line_client import LineClient
from trunkline.frontends.stdio.pipes import StdioPipes

PRINCIPAL: Final = "local"
NAME: Final = "stdio"


class StdioDoor(LineClient):
    """The one client of its server, which ends with it."""

    def __init__(self, server: McpServer, *, limit_bytes: int, stdin_fd: int = 0, stdout_fd: int = 1) -> None:
        pipes = partial(StdioPipes, limit_bytes=limit_bytes, stdin_fd=stdin_fd, stdout_fd=stdout_fd)
        super().__init__(server, Caller(PRINCIPAL), NAME, pipes)

    async def _finish(self) -> None:
        self._server.end_subscriptions()
        await super()._finish()
        self._server.close()
