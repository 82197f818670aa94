"""A demo server over Streamable HTTP, on this machine only: every POST is answered with JSON, and nothing streams."""

from __future__ import annotations

import socketserver
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final
from urllib.parse import urlsplit

from trunkline.demo.rpc import VERSIONS, RpcServer

HOST: Final = "127.0.0.1"
PATH: Final = "/mcp"
LARGEST_BYTES: Final = 4 * 1024 * 1024
_IDLE_S: Final = 300
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_POLL_S: Final = 0.1
_END_S: Final = 5.0


class HttpServer:
    """Serves from `with` to `with`'s end, on a thread of its own; port 0 takes a free one."""

    def __init__(self, server: RpcServer, port: int = 0) -> None:
        self._listener = _Listener(server, port)
        self._thread = threading.Thread(target=self._serve, name="demo-http", daemon=True)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._listener.server_address[1]}{PATH}"

    def __enter__(self) -> HttpServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown()
        self._thread.join(_END_S)
        self._listener.server_close()

    def wait(self) -> None:
        """Until the program is told to stop."""
        self._thread.join()

    def _serve(self) -> None:
        self._listener.serve_forever(_POLL_S)


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # a client that keeps its connection open does not hold up our end

    def __init__(self, server: RpcServer, port: int) -> None:
        self.rpc = server
        super().__init__((HOST, port), _Handler)

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # HTTPServer's own asks DNS for our name, which can take seconds

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that left in the middle is nothing to tell anyone."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "trunkline-demo"
    sys_version = ""
    timeout = _IDLE_S
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body leave together

    def do_POST(self) -> None:
        body = self._body()
        if body is None or self._refused():
            return
        assert isinstance(self.server, _Listener)
        answer = self.server.rpc.answer(body)
        if answer is None:
            self._respond(HTTPStatus.ACCEPTED)
        else:
            self._respond(HTTPStatus.OK, answer)

    def do_GET(self) -> None:
        """There is no stream to listen to, and no session to end."""
        if self._body() is not None and not self._refused_host():
            self._respond(HTTPStatus.METHOD_NOT_ALLOWED, headers={"Allow": "POST"})

    do_DELETE = do_PUT = do_PATCH = do_HEAD = do_OPTIONS = do_GET

    def _body(self) -> bytes | None:
        """What was sent; None when the connection is of no use any more and the client was told so."""
        length = self.headers.get("Content-Length", "0" if self.command != "POST" else "")
        if "Transfer-Encoding" in self.headers or not (length.isascii() and length.isdigit()):
            return self._hang_up(HTTPStatus.LENGTH_REQUIRED)
        size_bytes = int(length.lstrip("0")[:20] or 0)
        if size_bytes > LARGEST_BYTES:
            return self._hang_up(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        body = self.rfile.read(size_bytes)
        if len(body) < size_bytes:
            self.close_connection = True
            return None
        return body

    def _hang_up(self, status: HTTPStatus) -> None:
        self.close_connection = True
        self._respond(status, headers={"Connection": "close"})

    def _refused(self) -> bool:
        if self._refused_host():
            return True
        version = self.headers.get("MCP-Protocol-Version")
        if self.path != PATH:
            self._respond(HTTPStatus.NOT_FOUND)
        elif self.headers.get_content_type() != "application/json":
            self._respond(HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
        elif version is not None and version not in VERSIONS:
            self._respond(HTTPStatus.BAD_REQUEST, b'{"error":"this version of MCP is not spoken here"}')
        else:
            return False
        return True

    def _refused_host(self) -> bool:
        """A web page that was pointed at us by DNS names its own host, or its own origin: neither is this machine."""
        origin = self.headers.get("Origin")
        if _is_local(f"//{self.headers.get('Host', '')}") and (origin is None or _is_local(origin)):
            return False
        self._respond(HTTPStatus.FORBIDDEN)
        return True

    def _respond(self, status: HTTPStatus, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        if body:
            self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (the base class names it)
        """The gateway in front of it has the log."""


def _is_local(url: str) -> bool:
    try:
        return urlsplit(url).hostname in _LOOPBACK
    except ValueError:
        return False
