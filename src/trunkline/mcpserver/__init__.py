"""A small MCP server for any program: register functions as tools, and serve them over stdio or any stream.

It needs nothing but the standard library, and nothing else of Trunkline.
"""

from __future__ import annotations

from trunkline.mcpserver.connection import Reader
from trunkline.mcpserver.content import Content, audio, image, text
from trunkline.mcpserver.context import Client, Context, LogLevel
from trunkline.mcpserver.outgoing import Writer
from trunkline.mcpserver.server import Server
from trunkline.mcpserver.tool import Handler, Tool, ToolError

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
