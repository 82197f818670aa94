"""An MCP server or an app that says something of no use as fast as it is read: `noisy.py KIND [PORT]`.

Its first words are one line, or one event, that the gateway counts as noise: whoever looks there knows that it has
begun.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

BLOCK_BYTES = 1 << 18
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
TOOL = {"name": "noop", "description": "Does nothing", "inputSchema": {"type": "object"}}
LOG = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"still here"}}\n'
STDIO = {
    "short-lines": b"x\n",
    "lines": b"INFO 2026-01-01 00:00:00 worker 7: looked at item 4711 and found nothing to do about it this time\n",
    "long-lines": b"INFO " + b"x" * 1000 + b"\n",
    "great-lines": b"INFO " + b"x" * 100_000 + b"\n",
    "lines-of-escapes": b'{"x":"' + b"\\\\" * 30_000 + b"\n",
    "lines-that-are-no-text": b"\xff\xfe junk \xff\n",
    "blank-lines": b"\n",
    "batches": b"[" + b",".join([b"{}"] * 900) + b"]\n",
    "notifications": LOG,
    "news-of-lists": b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n',
    "answers-to-nobody": b'{"jsonrpc":"2.0","id":987654321,"result":{"content":[]}}\n',
    "questions": b'{"jsonrpc":"2.0","id":"q","method":"ping"}\n',
    "stderr": b"DEBUG nothing happened\n",
}
EVENTS = {
    "events": b"data: " + LOG + b"\n",
    "broken-events": b"data: {not json\n\n",
    "comments": b": keep-alive\n\n",
    "short-comments": b":\n",
    "blank-events": b"\n",
    "lines-that-end-in-cr": b"\r",
    "data-without-end": b"data: x\n",
}
APP = {
    "app-lines": b"INFO nothing happened\n",
    "app-long-lines": b"INFO " + b"x" * 4000 + b"\n",
    "app-lines-of-escapes": b'{"x":"' + b"\\\\" * 30_000 + b"\n",
    "app-answers": b'{"type":"toolResponse","correlationId":1,"result":{"success":true}}\n',
}


def answer(message: dict[str, Any]) -> bytes | None:
    if "id" not in message or "method" not in message:
        return None
    results: dict[str, Any] = {
        "initialize": {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "noisy", "version": "1"},
        },
        "tools/list": {"tools": [TOOL]},
        "tools/call": {"content": [{"type": "text", "text": "ok"}]},
        "ping": {},
    }
    result = results.get(message["method"])
    body = {"error": {"code": -32601, "message": "Method not found"}} if result is None else {"result": result}
    return json.dumps({"jsonrpc": "2.0", "id": message["id"], **body}).encode()


def flood(write: Callable[[bytes], object], piece: bytes) -> None:
    block = piece * max(1, BLOCK_BYTES // len(piece))
    while True:
        write(block)


def over_stdio(kind: str) -> None:
    lock = threading.Lock()
    loud = 2 if kind == "stderr" else 1

    def write(data: bytes, fd: int = loud) -> None:
        with lock:
            while data:
                data = data[os.write(fd, data) :]

    for line in sys.stdin.buffer:
        message = json.loads(line)
        said = answer(message)
        if said is not None:
            threading.Thread(target=write, args=(said + b"\n", 1), daemon=True).start()
        if message.get("method") == "tools/list":
            write(b"noise\n", 1)
            threading.Thread(target=flood, args=(write, STDIO[kind]), daemon=True).start()


def over_http(kind: str, port: int) -> None:
    with socket.create_server(("127.0.0.1", port)) as listener:
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=serve, args=(connection, kind), daemon=True).start()


def serve(connection: socket.socket, kind: str) -> None:
    reader = connection.makefile("rb")
    while first := reader.readline():
        length = 0
        while (header := reader.readline().strip().lower()) != b"":
            if header.startswith(b"content-length:"):
                length = int(header[15:])
        if first.startswith(b"GET"):
            connection.sendall(STREAM_HEAD + chunk(b"data: noise\n\n"))
            flood(connection.sendall, chunk(EVENTS[kind] * (BLOCK_BYTES // len(EVENTS[kind]))))
        body = reader.read(length)
        said = answer(json.loads(body)) if body else None
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nMcp-Session-Id: s\r\n"
        connection.sendall(b"%bContent-Length: %d\r\n\r\n%b" % (head, len(said or b""), said or b""))


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def as_app(kind: str, port: int) -> None:
    with dialled(port) as connection:
        hello = {"type": "register", "appName": "loud", "tools": [TOOL]}
        connection.sendall(b"noise\n" + json.dumps(hello).encode() + b"\n")
        flood(connection.sendall, APP[kind])


def dialled(port: int) -> socket.socket:
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except OSError:
            time.sleep(0.05)


def main() -> None:
    kind = sys.argv[1]
    try:
        if kind in STDIO:
            over_stdio(kind)
        elif kind in EVENTS:
            over_http(kind, int(sys.argv[2]))
        else:
            as_app(kind, int(sys.argv[2]))
    except OSError:
        pass  # nobody is left to be noisy to
    os._exit(0)


if __name__ == "__main__":
    main()
