"""The MCP server behind the peers, in Python: see `native/backend.c` for what it answers and the options it takes."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from typing import Any

Json = dict[str, Any]
CACHE_HINTS: Json = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
MODERN_KEY = "io.modelcontextprotocol/protocolVersion"
READ_BYTES = 64 * 1024


def schema(**kinds: str) -> Json:
    properties = {name: {"type": kind} for name, kind in kinds.items()}
    return {"type": "object", "properties": properties, "required": list(kinds)}


def describe_tools(total: int) -> list[Json]:
    real = [
        {"name": "echo", "description": "Gives the text back", "inputSchema": schema(text="string")},
        {"name": "blob", "description": "Gives that many KiB of text", "inputSchema": schema(kb="integer")},
        {"name": "sleep", "description": "Answers after a while", "inputSchema": schema(ms="integer")},
    ]
    text = "Report {0}: gathers the rows that match a filter and gives them back page by page."
    reports = [
        {"name": f"report_{n:02}", "description": text.format(n), "inputSchema": schema(filter="string")}
        for n in range(3, total)
    ]
    return real + reports


class Backend:
    """Answers messages; knows nothing of how they travel."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.name: str = options.name
        self.modern: bool = options.modern
        self.tools = describe_tools(options.tools)

    def answer(self, message: Json) -> tuple[float, bytes] | None:
        """The seconds to hold the answer back and its bytes; nothing for a notification."""
        if "id" not in message or "method" not in message:
            return None
        params: Json = message.get("params") or {}
        delay_s, body = self._dispatch(message["method"], params, MODERN_KEY in params.get("_meta", {}))
        reply = {"jsonrpc": "2.0", "id": message["id"], **body}
        return delay_s, json.dumps(reply, separators=(",", ":")).encode()

    def _dispatch(self, method: str, params: Json, modern: bool) -> tuple[float, Json]:
        if method == "tools/call":
            delay_s, text = self.call(params["name"], params.get("arguments") or {})
            kind = {"resultType": "complete"} if modern else {}
            return delay_s, {"result": {"content": [{"type": "text", "text": text}], "isError": False, **kind}}
        if method == "tools/list":
            return 0, {"result": {"tools": self.tools, **(CACHE_HINTS if modern else {})}}
        if method == "initialize":
            version = params.get("protocolVersion", "2025-06-18")
            server = {"name": self.name, "version": "1.0"}
            capabilities = {"tools": {"listChanged": False}}
            return 0, {"result": {"protocolVersion": version, "capabilities": capabilities, "serverInfo": server}}
        if method == "ping":
            return 0, {"result": {}}
        if method == "server/discover" and self.modern:
            return 0, {"result": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, **CACHE_HINTS}}
        return 0, {"error": {"code": -32601, "message": "Method not found"}}

    @staticmethod
    def call(name: str, arguments: Json) -> tuple[float, str]:
        if name == "echo":
            return 0, arguments.get("text", "")
        if name == "blob":
            return 0, "x" * (1024 * int(arguments.get("kb", 1)))
        return (int(arguments.get("ms", 1)) / 1000 if name == "sleep" else 0), "ok"


async def serve_stdio(backend: Backend) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 26)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        answered = backend.answer(json.loads(line))
        if answered is None:
            continue
        delay_s, body = answered
        if delay_s:
            loop.call_later(delay_s, write_line, body)
        else:
            write_line(body)


def write_line(body: bytes) -> None:
    """Blocks while the client does not read: all there is to do is to answer it."""
    left = memoryview(body + b"\n")
    while left:
        left = left[os.write(1, left) :]


class HttpConnection(asyncio.Protocol):
    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.received = b""
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data
        while b"\r\n\r\n" in self.received:
            head, rest = self.received.split(b"\r\n\r\n", 1)
            lengths = [line[15:] for line in head.split(b"\r\n") if line[:15].lower() == b"content-length:"]
            length = int(lengths[0]) if lengths else 0
            if len(rest) < length:
                return
            self.received = rest[length:]
            self._request(head, rest[:length])

    def _request(self, head: bytes, body: bytes) -> None:
        if head.split(b" ", 2)[1].startswith(b"/tools"):
            self._send("200 OK", self._as_service(head, body))
            return
        verb = head[:6]
        if not verb.startswith(b"POST"):
            self._send("200 OK" if verb == b"DELETE" else "405 Method Not Allowed", b"")
            return
        message = json.loads(body)
        answered = self.backend.answer(message)
        if answered is None:
            self._send("202 Accepted", b"")
            return
        delay_s, reply = answered
        session = f"Mcp-Session-Id: bench-{id(self)}\r\n" if message["method"] == "initialize" else ""
        if delay_s:
            asyncio.get_running_loop().call_later(delay_s, self._send, "200 OK", reply, session)
        else:
            self._send("200 OK", reply, session)

    def _as_service(self, head: bytes, body: bytes) -> bytes:
        if head.startswith(b"GET"):
            return json.dumps(self.backend.tools).encode()
        asked = json.loads(body)
        return json.dumps({"output": self.backend.call(asked["tool"], asked["args"])[1]}).encode()

    def _send(self, status: str, body: bytes, extra: str = "") -> None:
        head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{extra}Content-Length: {len(body)}\r\n\r\n"
        self.transport.write(head.encode() + body)


async def serve_http(backend: Backend, port: int) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: HttpConnection(backend), "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


async def serve_as_app(backend: Backend, port: int) -> None:
    """Dials until somebody listens, then answers line by line."""
    while True:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 26)
            break
        except OSError:
            await asyncio.sleep(0.05)
    hello = {"type": "register", "appName": backend.name, "tools": backend.tools}
    writer.write(json.dumps(hello).encode() + b"\n")
    while line := await reader.readline():
        asked = json.loads(line)
        if asked.get("type") == "toolInvocation":
            _, text = backend.call(asked["tool"], asked["parameters"])
            result = {"success": True, "data": text, "error": None}
            answer = {"type": "toolResponse", "correlationId": asked["correlationId"], "result": result}
            writer.write(json.dumps(answer).encode() + b"\n")
    writer.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=["stdio", "http", "app"])
    parser.add_argument("port", nargs="?", type=int)
    parser.add_argument("--tools", type=int, default=3)
    parser.add_argument("--name", default="bench-backend")
    parser.add_argument("--modern", action="store_true")
    options = parser.parse_args()
    backend = Backend(options)
    if options.mode == "stdio":
        asyncio.run(serve_stdio(backend))
    else:
        asyncio.run({"http": serve_http, "app": serve_as_app}[options.mode](backend, options.port))


if __name__ == "__main__":
    main()
