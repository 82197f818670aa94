"""One of five servers of a small company: `deployment_server.py NAME [PORT]`, twenty tools in all, on the SDK."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from mcp.server.mcpserver import Image, MCPServer

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c63f8cfc0f01f00050001ff56c72f0d0000000049454e44ae426082"
)
TOOLS: dict[str, list[str]] = {
    "foureyes-mcp": ["check_health", "capture_screenshot", "detect_text", "list_windows", "compare"],
    "rag-server": ["check_health", "ingest", "search", "forget"],
    "p4nth30n-mcp": ["check_health", "query_credentials", "query_signals", "spin"],
    "decisions-server": ["check_health", "find", "create", "update_status"],
    "honeybelt-server": ["check_health", "status", "report"],
}


def make_tool(server: str, name: str) -> Callable[..., Any]:
    if name == "capture_screenshot":
        return lambda: Image(data=PNG, format="png")

    def tool(subject: str = "all") -> dict[str, str]:
        return {"server": server, "tool": name, "subject": subject}

    return tool


def main() -> None:
    name = sys.argv[1]
    server = MCPServer(name, log_level="ERROR")
    for tool in TOOLS[name]:
        server.add_tool(make_tool(name, tool), name=tool, description=f"{tool} of {name}")
    if len(sys.argv) > 2:
        server.run("streamable-http", port=int(sys.argv[2]))
    else:
        server.run("stdio")


if __name__ == "__main__":
    main()
