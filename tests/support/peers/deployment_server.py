"""One of five servers of a small company: `deployment_server.py NAME [PORT]`, twenty tools in all.

With a port it is on the SDK; without one, on standard input and output, on our own library, which starts at once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

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


def answer(server: str, tool: str, subject: str) -> dict[str, str]:
    return {"server": server, "tool": tool, "subject": subject}


def over_http(name: str, port: int) -> None:
    from mcp.server.mcpserver import Image, MCPServer

    def make_tool(tool: str) -> Callable[..., Any]:
        if tool == "capture_screenshot":
            return lambda: Image(data=PNG, format="png")

        def call(subject: str = "all") -> dict[str, str]:
            return answer(name, tool, subject)

        return call

    server = MCPServer(name, log_level="ERROR")
    for tool in TOOLS[name]:
        server.add_tool(make_tool(tool), name=tool, description=f"{tool} of {name}")
    server.run("streamable-http", port=port)


def over_stdio(name: str) -> None:
    from trunkline.mcpserver import Server, image

    def make_tool(tool: str) -> Callable[..., Any]:
        if tool == "capture_screenshot":
            return lambda _: image(PNG)
        return lambda arguments: answer(name, tool, arguments.get("subject", "all"))

    server = Server(name)
    for tool in TOOLS[name]:
        schema = {"properties": {"subject": {"type": "string"}}}
        server.register_tool(tool, schema, make_tool(tool), description=f"{tool} of {name}")
    server.run()


if __name__ == "__main__":
    if len(sys.argv) > 2:
        over_http(sys.argv[1], int(sys.argv[2]))
    else:
        over_stdio(sys.argv[1])
