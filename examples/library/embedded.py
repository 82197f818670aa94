"""A gateway inside a program: the servers of a configuration, searched and called from Python.

python embedded.py            # with a small server of our own
python embedded.py FILE       # with the servers of a configuration file
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from trunkline import CallError, Gateway

DICE = {"mcpServers": {"dice": {"command": sys.executable, "args": [str(Path(__file__).with_name("mcp_server.py"))]}}}


async def main() -> None:
    config = sys.argv[1] if len(sys.argv) > 1 else DICE
    async with Gateway(config) as gateway:
        for server in await gateway.ready(timeout=30):
            print(f"{server.name} is {server.state}, with {server.tools} tools")
        for tool in await gateway.search("roll dice"):
            print(f"{tool.name}: {tool.description}")
        try:
            result = await gateway.call("dice_roll", {"sides": 20, "times": 3}, timeout=10)
            print(result.structured if not result.is_error else f"the tool failed: {result.text}")
        except CallError as error:
            print(f"{error.code}: {error.message} (executed: {error.executed})")


if __name__ == "__main__":
    asyncio.run(main())
