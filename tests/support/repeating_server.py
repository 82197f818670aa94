"""A program that repeats everything it was given, in the ways servers do: on stderr, in errors, in its own name.

The first argument says how it goes on: `exit`, `refuse` (an error to `initialize`), `serve` (a tool that crashes), or
`plugin` (a handshake that no host takes).
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any
from urllib.parse import quote

GIVEN = " ".join((*sys.argv[2:], *(f"{name}={value}" for name, value in os.environ.items())))


def cry(text: str) -> None:
    """A few bytes at a time, so that no read gets a whole value."""
    data = f"cannot log in: {text}\n".encode()
    for at in range(0, len(data), 7):
        os.write(2, data[at : at + 7])


def answer(asked: dict[str, Any], **members: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **members}), flush=True)


def serve() -> None:
    for line in sys.stdin:
        asked = json.loads(line)
        match asked["method"]:
            case "initialize":
                info = {"name": GIVEN, "version": "1"}
                greeting = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
                answer(asked, result={**greeting, "instructions": GIVEN})
            case "tools/list":
                answer(asked, result={"tools": [{"name": "crash", "inputSchema": {"type": "object"}}]})
            case "tools/call":
                cry(GIVEN)
                os._exit(3)
            case _ if "id" in asked:
                answer(asked, error={"code": -32601, "message": GIVEN})


def refuse() -> None:
    for line in sys.stdin:
        answer(json.loads(line), error={"code": -32000, "message": GIVEN, "data": GIVEN})


if __name__ == "__main__":
    match sys.argv[1]:
        case "serve":
            serve()
        case "refuse":
            refuse()
        case "plugin":
            print(f"1|7|unix|{GIVEN[:5000]}|grpc|", flush=True)
        case _:
            for spelled in (GIVEN, json.dumps(GIVEN), quote(GIVEN, safe=""), repr(GIVEN)):
                cry(spelled[-1500:] if len(spelled) > 1500 else spelled)
            cry(" ".join(sys.argv[2:]))
            sys.exit(3)
