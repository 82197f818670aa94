"""Just enough of an MCP client to open a session, and to say what the load generator is to send in it."""

from __future__ import annotations

import http.client
import json
import os
import select
import time
from dataclasses import dataclass, field
from typing import IO, Any

Json = dict[str, Any]
LEGACY, MODERN = "2025-06-18", "2026-07-28"
ID_PLACEHOLDER = "@@@@@@@@@"
CLIENT = {"name": "bench", "version": "1.0"}
MODERN_META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": CLIENT,
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Refused(Exception):
    """The peer answered, but not with a result."""


@dataclass
class Http:
    """POSTs to a Streamable HTTP endpoint, one connection per request: only used outside the measured windows."""

    port: int
    path: str = "/mcp"
    modern: bool = False
    session: str | None = None

    def headers(self, method: str, params: Json) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        if self.modern:
            headers |= {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
            if "name" in params:
                headers["Mcp-Name"] = params["name"]
        elif method != "initialize":
            headers["MCP-Protocol-Version"] = LEGACY
            if self.session:
                headers["Mcp-Session-Id"] = self.session
        return headers

    def exchange(self, message: Json, deadline_s: float) -> Json | None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=max(0.1, deadline_s - time.monotonic()))
        try:
            headers = self.headers(message["method"], message.get("params", {}))
            connection.request("POST", self.path, json.dumps(message), headers)
            response = connection.getresponse()
            if response.status >= 300:
                raise Refused(f"{message['method']}: HTTP {response.status} {response.read(200)!r}")
            self.session = response.getheader("mcp-session-id") or self.session
            if "id" not in message:
                return None
            if "text/event-stream" in (response.getheader("content-type") or ""):
                return self._first_answer(response)
            return json.loads(response.read())
        finally:
            connection.close()

    @staticmethod
    def _first_answer(response: http.client.HTTPResponse) -> Json:
        while line := response.readline():
            if line.startswith(b"data:") and b'"id"' in line:
                return json.loads(line[5:])
        raise Refused("the event stream ended without an answer")

    def raw(self, method: str, params: Json, body: bytes) -> bytes:
        lines = [f"POST {self.path} HTTP/1.1", f"Host: 127.0.0.1:{self.port}"]
        lines += [f"{name}: {value}" for name, value in self.headers(method, params).items()]
        return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


@dataclass
class Pipes:
    """JSON lines over a child's stdin and stdout."""

    stdin: IO[bytes]
    stdout: IO[bytes]
    modern: bool = False
    received: bytes = field(default=b"", repr=False)

    def exchange(self, message: Json, deadline_s: float) -> Json | None:
        self.stdin.write(json.dumps(message).encode() + b"\n")
        self.stdin.flush()
        while "id" in message:
            answer = self._next_message(deadline_s)
            if answer.get("id") == message["id"] and "method" not in answer:
                return answer
        return None

    def _next_message(self, deadline_s: float) -> Json:
        while b"\n" not in self.received:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0 or not select.select([self.stdout], [], [], left_s)[0]:
                raise Refused("no answer in time")
            data = os.read(self.stdout.fileno(), 1 << 20)
            if not data:
                raise Refused("the peer closed its output")
            self.received += data
        line, self.received = self.received.split(b"\n", 1)
        return json.loads(line)

    def raw(self, method: str, params: Json, body: bytes) -> bytes:
        del method, params
        return body + b"\n"


class Client:
    """A session with a peer, on either wire."""

    def __init__(self, wire: Http | Pipes) -> None:
        self.wire = wire
        self.tools: list[str] = []
        self._last_id = 0

    def request(self, method: str, params: Json, deadline_s: float) -> Json:
        self._last_id += 1
        message = {"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": self._params(params)}
        answer = self.wire.exchange(message, deadline_s)
        if answer is None or "result" not in answer:
            raise Refused(f"{method}: {json.dumps(answer)[:300]}")
        return answer["result"]

    def _params(self, params: Json) -> Json:
        return {**params, "_meta": MODERN_META} if self.wire.modern else params

    def open(self, deadline_s: float) -> None:
        """The first answer of a peer: to `initialize`, or to `server/discover` where there are no sessions."""
        if self.wire.modern:
            self.request("server/discover", {}, deadline_s)
            return
        if isinstance(self.wire, Http):
            self.wire.session = None
        hello = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": CLIENT}
        self.request("initialize", hello, deadline_s)
        self.wire.exchange({"jsonrpc": "2.0", "method": "notifications/initialized"}, deadline_s)

    def list_tools(self, deadline_s: float) -> None:
        self.tools, cursor = [], None
        while True:
            page = self.request("tools/list", {"cursor": cursor} if cursor else {}, deadline_s)
            self.tools += [tool["name"] for tool in page["tools"]]
            cursor = page.get("nextCursor")
            if not cursor:
                return

    def names_of(self, tool: str) -> list[str]:
        """What the peer calls that tool of each backend."""
        return [name for name in self.tools if name == tool or name.endswith((f"_{tool}", f".{tool}"))]

    def raw_request(self, method: str, params: Json) -> bytes:
        """One request as it goes over the wire, with a placeholder where its id belongs."""
        message = {"jsonrpc": "2.0", "id": ID_PLACEHOLDER, "method": method, "params": self._params(params)}
        text = json.dumps(message, separators=(",", ":")).replace(f'"{ID_PLACEHOLDER}"', ID_PLACEHOLDER)
        return self.wire.raw(method, params, text.encode())
