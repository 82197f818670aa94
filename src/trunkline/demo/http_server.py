"""Serves a demo server over Streamable HTTP, on this machine only: POSTs are answered with JSON, nothing streams."""

from __future__ import annotations

import asyncio
import json
import socketserver
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, cast
from urllib.parse import urlsplit
from uuid import uuid4

from trunkline.mcpserver import Server

HOST: Final = "127.0.0.1"
PATH: Final = "/mcp"
LARGEST_BYTES: Final = 4 * 1024 * 1024
VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
_WITHOUT_HEADER: Final = "2025-03-26"
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_IDLE_S: Final = 300
_POLL_S: Final = 0.1
_END_S: Final = 5.0
_HELLO: Final = uuid4().hex


@contextmanager
def serving_http(server: Server, port: int = 0) -> Generator[str, None, None]:
    """Serves while the block runs, from a thread; gives the URL. Port 0 takes a free one."""
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
    block_on_close = False  # a client that keeps its connection open does not hold up our end

    def __init__(self, server: Server, port: int) -> None:
        self.mcp = server
        super().__init__((HOST, port), _Handler)

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # HTTPServer's own asks DNS for our name, which can take seconds

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that left in the middle is nothing to report."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "trunkline-demo"
    sys_version = ""
    timeout = _IDLE_S
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body leave together

    def setup(self) -> None:
        super().setup()
        self._runner = asyncio.Runner()  # an event loop for this connection's thread

    def finish(self) -> None:
        self._runner.close()
        super().finish()

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
        if len(body) < size_bytes:
            self.close_connection = True
        elif refused := self._refusal() or (None if body.strip() else HTTPStatus.BAD_REQUEST):
            self._respond(refused)
        else:
            assert isinstance(self.server, _Listener)
            answer = self._runner.run(_answer(self.server.mcp, body, self._version))
            self._respond(HTTPStatus.OK if answer else HTTPStatus.ACCEPTED, answer)

    def do_GET(self) -> None:
        """There is no stream to listen to, and no session to end."""
        self._respond(self._stranger() or HTTPStatus.METHOD_NOT_ALLOWED, close=True)

    do_DELETE = do_PUT = do_PATCH = do_HEAD = do_OPTIONS = do_GET

    @property
    def _version(self) -> str:
        return self.headers.get("MCP-Protocol-Version", _WITHOUT_HEADER)

    def _refusal(self) -> HTTPStatus | None:
        if stranger := self._stranger():
            return stranger
        if self.path != PATH:
            return HTTPStatus.NOT_FOUND
        if self.headers.get_content_type() != "application/json":
            return HTTPStatus.UNSUPPORTED_MEDIA_TYPE
        return None if self._version in VERSIONS else HTTPStatus.BAD_REQUEST

    def _stranger(self) -> HTTPStatus | None:
        """A web page that was pointed at us by DNS names its own host, or its own origin: neither is this machine."""
        origin = self.headers.get("Origin")
        local = _is_local(f"//{self.headers.get('Host', '')}") and (origin is None or _is_local(origin))
        return None if local else HTTPStatus.FORBIDDEN

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
        """The gateway in front of it has the log."""


def _is_local(url: str) -> bool:
    try:
        return urlsplit(url).hostname in _LOOPBACK
    except ValueError:
        return False


# -- one message and its answer ---------------------------------------------------------------------------------------


async def _answer(server: Server, body: bytes, version: str) -> bytes:
    """The answer to one POST; empty where none is due."""
    exchange = _Exchange(body, version)
    await server.serve(exchange, exchange)
    return exchange.answer


class _Exchange:
    """A connection of one message. There are no sessions, so each opens with a handshake of ours."""

    def __init__(self, body: bytes, version: str) -> None:
        hello = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "http", "version": "0"}}
        request = {"jsonrpc": "2.0", "id": _HELLO, "method": "initialize", "params": hello}
        self._incoming = [json.dumps(request).encode() + b"\n", body.replace(b"\n", b" ") + b"\n"]
        self._answered = asyncio.Event()
        if not _has_request(body):
            self._answered.set()
        self.answer = b""

    async def read(self, n: int, /) -> bytes:
        """The end of the input waits for the answer: a server cancels what still runs after that."""
        if not self._incoming:
            await self._answered.wait()
            return b""
        return self._incoming.pop(0)

    def write(self, data: bytes, /) -> None:
        for line in data.splitlines():
            message = json.loads(line)
            if isinstance(message, list) or ("method" not in message and message["id"] != _HELLO):
                self.answer = line
                self._answered.set()

    async def drain(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """There is nothing to close."""


def _has_request(body: bytes) -> bool:
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        return False
    messages = cast(list[Any], message if isinstance(message, list) else [message])
    return any(isinstance(one, dict) and "method" in one and "id" in one for one in messages)
