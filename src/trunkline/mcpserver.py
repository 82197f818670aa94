"""A small MCP server for any program: the public names of `trunkline.sdk.mcpserver`."""

from __future__ import annotations

from trunkline.sdk.mcpserver import (
    Client,
    Content,
    Context,
    Handler,
    LogLevel,
    Reader,
    Server,
    Tool,
    ToolError,
    Writer,
    audio,
    image,
    text,
)

__all__ = [
    "Client",
    "Content",
    "Context",
    "Handler",
    "LogLevel",
    "Reader",
    "Server",
    "Tool",
    "ToolError",
    "Writer",
    "audio",
    "image",
    "text",
]
