"""Serves a demo server over Streamable HTTP, on this machine only: POSTs are answered with JSON, nothing streams."""

from __future__ import annotations

import asyncio
import socketserver
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import urlsplit

from trunkline.mcpserver import Server
from trunkline.sdk.mcp_messages import LEGACY

HOST: Final = "127.0.0.1"
PATH: Final = "/mcp"
LARGEST_BYTES: Final = 4 * 1024 * 1024
_WITHOUT_HEADER: Final = "2025-03-26"
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
_IDLE_S: Final = 300
_POLL_S: Final = 0.1
_END_S: Final = 5.0


@contextmanager
def serving_http(server: Server, port: int = 0) -> Generator[str, None, None]:
    """Serve from a thread while the block runs. Yields the URL. Port 0 takes a free one."""
    with _Listener(server, port) as listener:
        thread = threading.Thread(target=listener.serve_forever, args=(_POLL_S,), name="demo-http", daemon=True)
        thread.start()
        try:
            yield f"http://{HOST}:{listener.server_address[1]}{PATH}"
        finally:
            listener.shutdown()
            thread.join(_END_S)


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # a client that keeps its connection open does not delay shutdown

    def __init__(self, server: Server, port: int) -> None:
        self.mcp = server
        super().__init__((HOST, port), _Handler)

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # HTTPServer's own asks DNS for our name, which can take seconds

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect in the middle of a request."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "trunkline-demo"
    sys_version = ""
    timeout = _IDLE_S
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body leave together
    server: _Listener  # pyright: ignore[reportIncompatibleVariableOverride]

    def handle(self) -> None:
        with asyncio.Runner() as self._runner:  # an event loop for this connection's thread
            super().handle()

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if "Transfer-Encoding" in self.headers or not (length.isascii() and length.isdigit()):
            self._respond(HTTPStatus.LENGTH_REQUIRED, close=True)
            return
        size_bytes = int(length.lstrip("0")[:20] or 0)
        if size_bytes > LARGEST_BYTES:
            self._respond(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, close=True)
            return
        body = self.rfile.read(size_bytes)
        version = self.headers.get("MCP-Protocol-Version", _WITHOUT_HEADER)
        if len(body) < size_bytes:
            self.close_connection = True
        elif self._is_foreign():
            self._respond(HTTPStatus.FORBIDDEN)
        elif self.path != PATH:
            self._respond(HTTPStatus.NOT_FOUND)
        elif self.headers.get_content_type() != "application/json":
            self._respond(HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
        elif version not in LEGACY or not body.strip():
            self._respond(HTTPStatus.BAD_REQUEST)
        else:
            answer = self._runner.run(self.server.mcp.answer(body, version))
            self._respond(HTTPStatus.OK if answer else HTTPStatus.ACCEPTED, answer)

    def do_GET(self) -> None:
        """Refuse: there is no stream to listen to, and no session to end."""
        self._respond(HTTPStatus.FORBIDDEN if self._is_foreign() else HTTPStatus.METHOD_NOT_ALLOWED, close=True)

    do_DELETE = do_PUT = do_PATCH = do_HEAD = do_OPTIONS = do_GET

    def _is_foreign(self) -> bool:
        """Refuse web pages that reach us by DNS rebinding: they name their own host or origin."""
        named = (f"//{self.headers.get('Host', '')}", self.headers.get("Origin", f"//{HOST}"))
        try:
            return any(urlsplit(url).hostname not in _LOOPBACK for url in named)
        except ValueError:
            return True

    def _respond(self, status: HTTPStatus, body: bytes = b"", *, close: bool = False) -> None:
        self.send_response(status)
        if body:
            self.send_header("Content-Type", "application/json")
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "POST")
        if close:
            self.send_header("Connection", "close")  # which ends the connection too
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (the base class names it)
        """Log nothing: the gateway does."""
