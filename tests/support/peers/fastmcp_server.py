"""A server on FastMCP: `fastmcp_server.py stdio | http PORT | sse PORT`; the same tools as the peer on the SDK.

With PEER_TOKEN it wants that as a bearer token.
"""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastmcp import Context, FastMCP
from fastmcp.exceptions import McpError, ToolError
from fastmcp.server.auth.providers.jwt import StaticTokenVerifier
from fastmcp.utilities.types import Image
from mcp_types import Icon, ToolAnnotations, ToolListChangedNotification

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c63f8cfc0f01f00050001ff56c72f0d0000000049454e44ae426082"
)
TOKEN = os.environ.get("PEER_TOKEN")
server = FastMCP(
    "fastmcp-peer",
    instructions="Ask it anything.",
    version="1.2.3",
    auth=StaticTokenVerifier({TOKEN: {"client_id": "gateway", "scopes": []}}) if TOKEN else None,
)


@dataclass
class Sum:
    """What `add` answers with."""

    total: int
    parts: list[int]
    note: str | None = None


def journal(line: str) -> None:
    if path := os.environ.get("PEER_JOURNAL"):
        with Path(path).open("a") as file:
            file.write(f"{line}\n")


@server.tool(
    title="Add numbers",
    annotations=ToolAnnotations(read_only_hint=True, idempotent_hint=True),
    icons=[Icon(src="data:image/svg+xml;base64,PHN2Zy8+", mime_type="image/svg+xml")],
    tags={"arithmetic"},
    meta={"peer.example/kind": {"since": 2, "exact": 12345678901234567890}},
)
def add(a: int, b: int) -> Sum:
    """Add two numbers, größer als 2⁶⁴ too."""
    return Sum(total=a + b, parts=[a, b])


@server.tool
def numbers() -> dict[str, Any]:
    """Values that do not survive every reader of JSON."""
    return {
        "big": 2**64 + 1,
        "whole": 1.0,
        "small": 5e-324,
        "sum": 0.1 + 0.2,
        "text": '\u2028 \x7f \\ " 😀 é e\u0301',
        "empty": {"": [], "none": None},
    }


@server.tool
def picture() -> Image:
    """A one-pixel image."""
    return Image(data=PNG, format="png")


@server.tool
def fail(reason: str) -> str:
    """A failure that is the tool's answer."""
    raise ToolError(reason)


@server.tool
def refuse(reason: str) -> str:
    """A failure that is a JSON-RPC error."""
    raise McpError(code=4711, message=reason, data={"retry": False, "ids": [1, "1", 1.5, None]})


@server.tool
async def work(steps: int, ctx: Context) -> str:
    """Report progress, then answer."""
    for step in range(1, steps + 1):
        await ctx.report_progress(step, steps, f"step {step}")
    return f"{steps} steps"


@server.tool
async def hold(name: str) -> str:
    """Never answers; says in the journal that it began, and that it was told to stop."""
    journal(f"held {name}")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        journal(f"cancelled {name}")
        raise
    return "unreachable"


@server.tool
async def grow(name: str, ctx: Context) -> str:
    """Have one more tool from now on, and say so."""

    def grown() -> str:
        return name

    server.tool(grown, name=name, description=f"Says {name}")
    await ctx.send_notification(ToolListChangedNotification())
    return name


@server.tool
def whoami() -> dict[str, int]:
    """The process that answers."""
    return {"pid": os.getpid()}


if __name__ == "__main__":
    journal(f"start {os.getpid()}")
    transport = sys.argv[1]
    options = {"port": int(sys.argv[2])} if len(sys.argv) > 2 else {}
    server.run(transport, show_banner=False, log_level="ERROR", **options)
