"""A legacy server over stdio with lists that misbehave: `list_server OPTIONS`, one JSON object.

`resources` is how many it has, on pages of `page`; `list_s` is how long each page takes, and a file that exists under
`gate` makes every list hang until it is gone. `list_changes_per_s` announces changed lists for ever, `updates_per_s`
every watched resource. `dies_of` is a method that ends the process, `hangs_at` one that is never answered. `journal` is
a file that gets a line for every start (with the process id), every method and every ten thousand updates.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

OPTIONS: dict[str, Any] = json.loads(sys.argv[1])
VERSION = "2025-06-18"
CAPABILITIES = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "completions": {},
}
_lock = threading.Lock()
_watched: set[str] = set()
_updates = itertools.count(1)


def send(message: dict[str, Any]) -> None:
    line = json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"
    with _lock:
        view = memoryview(line)
        while view:
            view = view[os.write(1, view) :]


def journal(line: str) -> None:
    if path := OPTIONS.get("journal"):
        with Path(path).open("a") as file:
            file.write(f"{line}\n")


def resource(number: int) -> dict[str, Any]:
    return {"uri": f"list://{OPTIONS.get('name', 'o')}/{number}", "name": f"r{number}"}


def page(params: dict[str, Any]) -> dict[str, Any]:
    first = int(params.get("cursor") or 0)
    last = min(first + OPTIONS.get("page", 1000), OPTIONS.get("resources", 1))
    more = {"nextCursor": str(last)} if last < OPTIONS.get("resources", 1) else {}
    return {"resources": [resource(number) for number in range(first, last)], **more}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "initialize":
        info = {"name": "lists", "version": "1"}
        return {"protocolVersion": VERSION, "capabilities": CAPABILITIES, "serverInfo": info}
    if method.endswith("/list"):
        return listed(method, params)
    if method == "resources/subscribe":
        _watched.add(params["uri"])
    if method == "tools/call":
        return {"content": [{"type": "text", "text": str(os.getpid())}]}
    if method == "resources/read":
        return {"contents": [{"uri": params["uri"], "text": "t"}]}
    if method == "completion/complete":
        return {"completion": {"values": ["a"]}}
    return {} if method in ("ping", "resources/subscribe", "resources/unsubscribe", "logging/setLevel") else None


def listed(method: str, params: dict[str, Any]) -> dict[str, Any]:
    time.sleep(OPTIONS.get("list_s", 0))
    while (gate := OPTIONS.get("gate")) and Path(gate).exists():
        time.sleep(0.05)
    if method == "resources/list":
        return page(params)
    if method == "tools/list":
        return {"tools": [{"name": "pid", "inputSchema": {"type": "object"}}]}
    return {"prompts": [{"name": "p"}]} if method == "prompts/list" else {"resourceTemplates": []}


def received(message: dict[str, Any]) -> None:
    method = message.get("method", "")
    journal(method)
    if method == OPTIONS.get("dies_of"):
        os._exit(1)
    if "id" not in message or method == OPTIONS.get("hangs_at"):
        return
    result = answer(method, message.get("params") or {})
    if result is None:
        send({"id": message["id"], "error": {"code": -32601, "message": f"unknown method `{method}`"}})
    else:
        send({"id": message["id"], "result": result})


def repeat(per_s: float, say: Any) -> None:
    """About so often, in bursts of a hundredth of a second."""
    while per_s:
        for _ in range(max(1, int(per_s / 100))):
            say()
        time.sleep(max(0.01, 1 / per_s))


def announce() -> None:
    """Where lists can be made to hang, only while they do. Tools last: while theirs hangs, no other is asked for."""
    if OPTIONS.get("gate") and not Path(OPTIONS["gate"]).exists():
        return
    for kind in ("resources", "prompts", "tools"):
        send({"method": f"notifications/{kind}/list_changed"})


def update() -> None:
    for uri in list(_watched):
        send({"method": "notifications/resources/updated", "params": {"uri": uri}})
        if next(_updates) % 10_000 == 0:
            journal("10000 updates")


def main() -> None:
    journal(f"start {os.getpid()}")
    for often, say in (("list_changes_per_s", announce), ("updates_per_s", update)):
        threading.Thread(target=repeat, args=(OPTIONS.get(often, 0), say), daemon=True).start()
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if str(message.get("method", "")).endswith("/list"):
            threading.Thread(target=received, args=(message,), daemon=True).start()
        else:
            received(message)
    os._exit(0)


if __name__ == "__main__":
    main()
