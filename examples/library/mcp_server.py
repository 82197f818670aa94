"""An MCP server in one file: dice and a timer, for any MCP client.

trunkline add dice -- python3 mcp_server.py
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

from trunkline.mcpserver import Context, Server, ToolError

server = Server("dice", "1.0", "Dice and a timer. Roll here instead of making up numbers.")


def roll(arguments: dict[str, Any]) -> dict[str, Any]:
    """A plain function: it runs in a thread, and the dict is sent as data and as text."""
    sides = arguments.get("sides", 6)
    if sides < 2:
        raise ToolError("A die has at least two sides")
    rolled = [random.randint(1, sides) for _ in range(arguments.get("times", 1))]
    return {"rolled": rolled, "sum": sum(rolled)}


async def count_down(arguments: dict[str, Any], context: Context) -> str:
    """An async function: many run at once, and the client can cancel it."""
    seconds = arguments["seconds"]
    for done in range(seconds):
        context.progress(done, seconds, f"{seconds - done} left")
        await asyncio.sleep(1)
    return "Time is up"


server.register_tool(
    "roll",
    {
        "properties": {
            "sides": {"type": "integer", "description": "How many sides the die has", "default": 6},
            "times": {"type": "integer", "description": "How often it is rolled", "default": 1},
        }
    },
    roll,
    description="Roll dice.",
    annotations={"readOnlyHint": True},
    output_schema={
        "type": "object",
        "properties": {"rolled": {"type": "array", "items": {"type": "integer"}}, "sum": {"type": "integer"}},
    },
)
server.register_tool(
    "count_down",
    {"properties": {"seconds": {"type": "integer"}}, "required": ["seconds"]},
    count_down,
    description="Wait a few seconds, with progress.",
)

if __name__ == "__main__":
    server.run()
