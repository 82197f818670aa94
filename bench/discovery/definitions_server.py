"""Many MCP servers in one process, each at a path of its own: they list the definitions they were given.

`python definitions_server.py FILE` reads `{"server": {"instructions": …, "tools": […]}}`, listens on a free port of the
loopback interface, and says which on its first line of output. It ends with its standard input.
"""

from __future__ import annotations

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Json = dict[str, Any]
METHOD_NOT_FOUND = -32601
SERVERS: dict[str, Json] = {}


def answer(server: Json, message: Json) -> Json:
    method, params = message.get("method"), message.get("params", {})
    if method == "initialize":
        return {
            "result": {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "definitions", "version": "1"},
                "instructions": server["instructions"],
            }
        }
    if method == "tools/list":
        return {"result": {"tools": server["tools"]}}
    if method == "tools/call":
        return {"result": {"content": [{"type": "text", "text": f"{params.get('name')} has done its work"}]}}
    if method == "ping":
        return {"result": {}}
    return {"error": {"code": METHOD_NOT_FOUND, "message": f"no method {method}"}}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server = SERVERS.get(self.path.strip("/"))
        if server is None:
            self._send(404)
        elif "id" not in message:
            self._send(202)
        else:
            self._send(200, {"jsonrpc": "2.0", "id": message["id"], **answer(server, message)})

    def do_GET(self) -> None:
        self._send(405)

    def do_DELETE(self) -> None:
        self._send(405)

    def _send(self, status: int, body: Json | None = None) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512  # the gateway opens all its connections at once


def main() -> None:
    SERVERS.update(json.loads(Path(sys.argv[1]).read_text()))
    server = Server(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main()
