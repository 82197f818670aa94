"""The demo servers' program: MCP over stdio with nothing but the standard library."""

from __future__ import annotations

import json
import sys
from typing import Any, cast

from trunkline.demo.toolboxes import TOOLBOXES, Toolbox

_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")


def main() -> None:
    toolbox = TOOLBOXES.get(sys.argv[1] if len(sys.argv) == 2 else "")
    if toolbox is None:
        sys.exit(f"usage: python -m trunkline.demo {'|'.join(TOOLBOXES)}")
    for line in sys.stdin:
        message = cast(dict[str, Any], json.loads(line))
        if "id" in message:
            answer = {"jsonrpc": "2.0", "id": message["id"], **_answer(toolbox, message)}
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()


def _answer(toolbox: Toolbox, message: dict[str, Any]) -> dict[str, Any]:
    params = cast(dict[str, Any], message.get("params") or {})
    match message.get("method"):
        case "initialize":
            asked = params.get("protocolVersion")
            version = asked if asked in _VERSIONS else _VERSIONS[-1]
            info = {"name": f"trunkline-demo-{toolbox.name}", "version": "1"}
            return {"result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}}
        case "ping":
            return {"result": {}}
        case "tools/list":
            return {"result": {"tools": [tool.definition for tool in toolbox.tools.values()]}}
        case "tools/call" if params.get("name") in toolbox.tools:
            return {"result": _call(toolbox, params["name"], params.get("arguments") or {})}
        case "tools/call":
            return {"error": {"code": -32602, "message": f"Unknown tool: {params.get('name')}"}}
        case method:
            return {"error": {"code": -32601, "message": f"Unknown method: {method}"}}


def _call(toolbox: Toolbox, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    try:
        text, failed = toolbox.tools[name].run(arguments), False
    except (KeyError, TypeError, ValueError) as error:
        text, failed = f"{type(error).__name__}: {error}", True
    return {"content": [{"type": "text", "text": text}], "isError": failed}


if __name__ == "__main__":
    main()
