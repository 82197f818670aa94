"""The fault server over HTTP: Streamable HTTP of both eras, and the HTTP+SSE of 2024-11-05. A thread per connection."""

from __future__ import annotations

import base64
import json
import os
import socket
import threading
import time
from typing import Any

from tests.support.fault.http_connection import Connection, Request
from tests.support.fault.options import Options
from tests.support.fault.rpc import META_VERSION, MODERN, Exchange, Server, Session

EVENT_STREAM = "text/event-stream"
JSON = "application/json"


class HttpExchange(Exchange):
    """A request whose answer travels in the response to the same POST, as JSON or as a stream of events."""

    server: HttpServer

    def __init__(self, *args: Any, connection: Connection, headers: dict[str, str]) -> None:
        super().__init__(*args)
        self.connection = connection
        self.headers = headers
        self.streaming = False
        self.answered = False

    def send(self, data: bytes, *, last: bool = False) -> None:
        if last and not self.streaming and self.server.options.answers == "json":
            self.answered = True
            self.connection.respond(200, data, JSON, self.headers)
            return
        if not self.streaming:
            self.open_stream()
        self._chunk(sse_event(data))
        if last:
            self.close_stream()

    def open_stream(self) -> None:
        self.streaming = True
        headers = {**self.headers, "Transfer-Encoding": "chunked", "Cache-Control": "no-cache"}
        self.connection.write(self.connection.head(200, EVENT_STREAM, headers))

    def close_stream(self) -> None:
        self.answered = True
        self.connection.write(b"0\r\n\r\n")

    def _chunk(self, data: bytes) -> None:
        self.connection.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def pause(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if self.cancelled.is_set():
                return True
            if self.connection.wait_closed(min(left, 0.05)):
                self.server.journal.write("closed", id=self.id)
                return True
        return False

    def after(self, seconds: float, then: Any) -> None:
        time.sleep(seconds)
        then()

    def half(self) -> None:
        body = self.envelope("result", b'{"content":[{"type":"text","text":"half')
        head = self.connection.head(200, JSON, {"Content-Length": str(len(body) + 100)})
        self.connection.write(head + body)
        self.connection.close()

    def reset(self) -> None:
        self.connection.reset()

    def hang_up(self) -> None:
        self.connection.close()


class OldSseExchange(Exchange):
    """A request whose answer travels on the client's one event stream."""

    server: HttpServer

    def __init__(self, *args: Any, stream: Connection) -> None:
        super().__init__(*args)
        self.connection = stream

    def send(self, data: bytes, *, last: bool = False) -> None:
        self.connection.write(sse_event(data))

    def pause(self, seconds: float) -> bool:
        return self.cancelled.wait(seconds)

    def after(self, seconds: float, then: Any) -> None:
        time.sleep(seconds)
        then()

    def half(self) -> None:
        self.connection.write(b'event: message\ndata: {"jsonrpc":"2.0","id":')
        self.connection.close()

    def reset(self) -> None:
        self.connection.reset()

    def hang_up(self) -> None:
        self.connection.close()


def sse_event(data: bytes) -> bytes:
    lines = b"".join(b"data: " + line + b"\n" for line in data.replace(b"\r", b"\n").split(b"\n"))
    return b"event: message\n" + lines + b"\n"


class HttpServer(Server):
    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.sessions: dict[str, Session] = {}
        self.streams: dict[str, Connection] = {}
        self.deaf = False

    def forget_sessions(self) -> None:
        self.sessions.clear()

    def broadcast(self, method: str) -> None:
        message = sse_event(json.dumps({"jsonrpc": "2.0", "method": method}).encode())
        for stream in list(self.streams.values()):
            stream.write(message)

    def serve_connection(self, sock: socket.socket) -> None:
        connection = Connection(sock, one_byte_at_a_time="slicer" in self.options.faults)
        try:
            while (request := connection.read_request()) is not None:
                self.journal.write("request", method=request.method, target=request.target, headers=request.headers)
                while self.deaf:
                    time.sleep(1)
                self.respond(connection, request)
                if "hang_up_idle" in self.options.faults:
                    break
        except (OSError, ValueError) as error:
            self.journal.write("io_error", error=str(error))
        finally:
            connection.close()

    def respond(self, connection: Connection, request: Request) -> None:
        faults = self.options.faults
        if "unauthorized" in faults:
            connection.respond(401, b"", "text/plain", {"WWW-Authenticate": 'Bearer realm="fault"'})
        elif "redirect" in faults:
            connection.respond(307, b"", "text/plain", {"Location": self.options.redirect_to})
        elif "html_502" in faults:
            connection.respond(502, b"<html>bad gateway</html>", "text/html")
        elif self.options.transport == "sse":
            self._respond_old(connection, request)
        else:
            self._respond_streamable(connection, request)

    # Streamable HTTP

    def _respond_streamable(self, connection: Connection, request: Request) -> None:
        if request.method == "GET" and self.options.era != "modern" and "no_get" not in self.options.faults:
            self._standalone_stream(connection, request)
        elif request.method == "DELETE" and self.options.era != "modern":
            gone = self.sessions.pop(request.headers.get("mcp-session-id", ""), None)
            self.journal.write("deleted", session=gone.name if gone else "")
            connection.respond(200 if gone else 404, b"", "text/plain")
        elif request.method == "POST":
            self._post(connection, request)
        else:
            connection.respond(405, b"", "text/plain", {"Allow": "POST"})

    def _standalone_stream(self, connection: Connection, request: Request) -> None:
        name = request.headers.get("mcp-session-id", "")
        if name not in self.sessions and "sessionless" not in self.options.faults:
            connection.respond(404, b"", "text/plain")
            return
        self._hold(name, connection, b"")

    def _hold(self, name: str, connection: Connection, greeting: bytes) -> None:
        """Keep an event stream open until its client leaves."""
        self.streams[name] = connection
        connection.write(connection.head(200, EVENT_STREAM, {"Connection": "close"}) + greeting)
        while not connection.wait_closed(60):
            pass
        if self.streams.get(name) is connection:
            del self.streams[name]

    def _post(self, connection: Connection, request: Request) -> None:
        message = json.loads(request.body)
        session, headers = self._session_for(request, message)
        if session is None:
            status = 404 if "mcp-session-id" in request.headers else 400
            connection.respond(status, b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"session"}}', JSON)
            return
        exchange = HttpExchange(self, session, request.body, message, connection=connection, headers=headers)
        if self._refused(exchange, request):
            return
        self.received(exchange)
        if "id" not in message or "method" not in message:
            connection.respond(202, b"", "text/plain")

    def _session_for(self, request: Request, message: dict[str, Any]) -> tuple[Session | None, dict[str, str]]:
        meta = (message.get("params") or {}).get("_meta") or {}
        if META_VERSION in meta or "sessionless" in self.options.faults:
            return self.shared, {}
        if message.get("method") == "initialize" and self.options.era != "modern":
            session = Session(os.urandom(16).hex())
            self.sessions[session.name] = session
            return session, {"Mcp-Session-Id": session.name}
        return self.sessions.get(request.headers.get("mcp-session-id", "")), {}

    def _refused(self, exchange: HttpExchange, request: Request) -> bool:
        """The checks that 2026-07-28 asks of a server; a legacy server knows no such version."""
        connection, version = exchange.connection, request.headers.get("mcp-protocol-version", "")
        if exchange.modern and self.options.era == "legacy":
            connection.respond(400, b"Bad Request: unsupported protocol version", "text/plain")
            return True
        if not exchange.modern:
            return False
        wrong = version != MODERN or request.headers.get("mcp-method") != exchange.message.get("method")
        if exchange.message.get("method") == "tools/call":
            wrong = wrong or decoded(request.headers.get("mcp-name", "")) != exchange.params.get("name")
        if wrong:
            self.journal.write("header_mismatch", headers=request.headers)
            error = exchange.envelope("error", b'{"code":-32020,"message":"header mismatch"}')
            connection.respond(400, error, JSON)
        return wrong

    # HTTP+SSE of 2024-11-05

    def _respond_old(self, connection: Connection, request: Request) -> None:
        path, _, name = request.target.partition("?session=")
        if request.method == "GET" and path == "/sse":
            name = os.urandom(16).hex()
            self.sessions[name] = Session(name)
            self._hold(name, connection, f"event: endpoint\ndata: /messages?session={name}\n\n".encode())
            self.sessions.pop(name, None)
        elif request.method == "POST" and path == "/messages" and name in self.sessions:
            connection.respond(202, b"Accepted", "text/plain")
            stream, session = self.streams[name], self.sessions[name]
            exchange = OldSseExchange(self, session, request.body, json.loads(request.body), stream=stream)
            threading.Thread(target=self.received, args=(exchange,), daemon=True).start()
        else:
            connection.respond(405 if path == "/sse" else 404, b"", "text/plain")


def decoded(value: str) -> str:
    if value.startswith("=?base64?") and value.endswith("?="):
        return base64.b64decode(value[9:-2]).decode()
    return value


def serve(options: Options) -> None:
    server = HttpServer(options)
    listener = socket.create_server(("127.0.0.1", options.port), backlog=512)
    port = listener.getsockname()[1]
    if options.port_file:
        with open(options.port_file + ".part", "w", encoding="ascii") as file:
            file.write(str(port))
        os.replace(options.port_file + ".part", options.port_file)
    while True:
        sock, _ = listener.accept()
        threading.Thread(target=server.serve_connection, args=(sock,), daemon=True).start()
