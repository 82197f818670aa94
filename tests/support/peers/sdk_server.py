"""A server on the official Python SDK: `sdk_server.py stdio | streamable-http PORT | sse PORT`.

It has one tool for each thing a gateway must carry: text, structured data, an image, both kinds of error, progress,
cancellation, and a list that changes. PEER_JOURNAL names a file for what tests want to know, PEER_START_DELAY_S makes
it slow to start, PEER_START_WHEN lets it wait for a file to be there, PEER_CERTIFICATE makes it speak HTTPS.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import uvicorn
from mcp import MCPError
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import Icon, ToolAnnotations
from pydantic import BaseModel

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c63f8cfc0f01f00050001ff56c72f0d0000000049454e44ae426082"
)
server = MCPServer(
    "sdk-peer", title="Peer on the SDK", instructions="Ask it anything.", version="1.2.3", log_level="ERROR"
)


class Sum(BaseModel):
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
    meta={"peer.example/kind": {"since": 2, "exact": 12345678901234567890}},
)
def add(a: int, b: int) -> Sum:
    """Add two numbers, größer als 2⁶⁴ too."""
    return Sum(total=a + b, parts=[a, b])


@server.tool()
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


@server.tool()
def picture() -> Image:
    """A one-pixel image."""
    return Image(data=PNG, format="png")


@server.tool()
def fail(reason: str) -> str:
    """A failure that is the tool's answer."""
    raise ToolError(reason)


@server.tool()
def refuse(reason: str) -> str:
    """A failure that is a JSON-RPC error."""
    raise MCPError(code=4711, message=reason, data={"retry": False, "ids": [1, "1", 1.5, None]})


@server.tool()
async def work(steps: int, ctx: Context[Any, Any]) -> str:
    """Report progress, then answer."""
    for step in range(1, steps + 1):
        await ctx.report_progress(step, steps, f"step {step}")
    return f"{steps} steps"


@server.tool()
async def hold(name: str, ctx: Context[Any, Any]) -> str:
    """Never answers; says in the journal (and by progress) that it began, and that it was told to stop."""
    journal(f"held {name}")
    try:
        await ctx.report_progress(1, message="holding")
        await anyio.sleep_forever()
    except anyio.get_cancelled_exc_class():
        journal(f"cancelled {name}")
        raise
    return "unreachable"


@server.tool()
async def grow(name: str, ctx: Context[Any, Any]) -> str:
    """Have one more tool from now on, and say so."""
    server.add_tool(lambda: name, name=name, description=f"Says {name}", structured_output=False)
    await ctx.notify_tools_changed()
    return name


@server.tool(structured_output=False)
def blob(size: int) -> str:
    """A long text."""
    return "é" * size


@server.tool()
def whoami() -> dict[str, int]:
    """The process that answers."""
    return {"pid": os.getpid()}


if __name__ == "__main__":
    time.sleep(float(os.environ.get("PEER_START_DELAY_S", "0")))
    while not Path(os.environ.get("PEER_START_WHEN", "/")).exists():
        time.sleep(0.02)
    journal(f"start {os.getpid()}")
    transport = sys.argv[1]
    if "PEER_CERTIFICATE" in os.environ:
        app = server.streamable_http_app()
        uvicorn.run(app, port=int(sys.argv[2]), ssl_certfile=os.environ["PEER_CERTIFICATE"], log_level="error")
        sys.exit()
    server.run(transport, **({"port": int(sys.argv[2])} if len(sys.argv) > 2 else {}))
