"""An MCP server on stdio with a very large catalog: `large_catalog_server.py OPTIONS`, one JSON object of them.

`tools` is how many it has, in pages of a thousand; `description_bytes` how long their descriptions are; `depth` how
deep their schemas are nested; `per_s` how often a second its list changes and it says so.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

OPTIONS: dict[str, Any] = json.loads(sys.argv[1])
PAGE = 1000
VERBS = ("list", "get", "create", "update", "delete", "search", "export", "archive", "share", "compare")
THINGS = ("invoice", "harbour", "ticket", "playlist", "reactor", "garden", "contract", "satellite", "recipe", "witness")
PLACES = ("warehouse", "clinic", "studio", "library", "airport", "vineyard", "museum", "factory", "school", "court")
_writing = threading.Lock()
_version = 0


def send(members: str) -> None:
    with _writing:
        sys.stdout.buffer.write(f'{{"jsonrpc":"2.0",{members}}}\n'.encode())
        sys.stdout.buffer.flush()


def nested(depth: int) -> str:
    """As text: few writers of JSON get that deep."""
    schema = '{"type":"object","properties":{"place":{"type":"string"}}}'
    for level in range(depth):
        schema = f'{{"type":"object","description":"level {level}","properties":{{"inner{level}":{schema}}}}}'
    return schema


def tool(number: int) -> str:
    verb, thing, place = VERBS[number % 10], THINGS[number // 10 % 10], PLACES[number // 100 % 10]
    sentence = f"{verb.title()} the {thing} of a {place}, number {number}, version {_version}. "
    wanted = OPTIONS.get("description_bytes", 0)
    description = sentence if wanted <= len(sentence) else (sentence * (wanted // len(sentence) + 1))[:wanted]
    reads = json.dumps(verb in ("list", "get", "search", "compare"))
    return (
        f'{{"name":"{verb}_{place}_{thing}_{number}","description":"{description}",'
        f'"inputSchema":{SCHEMA},"annotations":{{"readOnlyHint":{reads}}}}}'
    )


def page(cursor: str) -> str:
    first = int(cursor or 0)
    last = min(first + OPTIONS.get("page", PAGE), OPTIONS["tools"])
    further = f',"nextCursor":"{last}"' if last < OPTIONS["tools"] else ""
    return f'{{"tools":[{",".join(map(tool, range(first, last)))}]{further}}}'


def answer(method: str, params: dict[str, Any]) -> str:
    if method == "tools/list":
        return page(params.get("cursor", ""))
    result: dict[str, Any] = {}
    if method == "initialize":
        result = {"protocolVersion": "2025-06-18", "serverInfo": {"name": "vast", "version": "1"}}
        result["capabilities"] = {"tools": {"listChanged": True}}
        result["instructions"] = "A" * OPTIONS.get("description_bytes", 0)
    if method == "tools/call":
        result = {"content": [{"type": "text", "text": f"{params['name']} has done its work"}]}
    return json.dumps(result)


def change() -> None:
    global _version
    while per_s := OPTIONS.get("per_s", 0):
        time.sleep(1 / per_s)
        _version += 1
        send('"method":"notifications/tools/list_changed"')


SCHEMA = nested(OPTIONS.get("depth", 0))


def main() -> None:
    threading.Thread(target=change, daemon=True).start()
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" in message and "method" in message:
            result = answer(message["method"], message.get("params") or {})
            send(f'"id":{json.dumps(message["id"])},"result":{result}')


if __name__ == "__main__":
    main()
