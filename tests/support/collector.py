"""A span collector on loopback: keeps what it receives, checks that it is OTLP, and misbehaves on request."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from tests.support.waiting import at_most

_IDS = ("traceId", "spanId", "parentSpanId")


def read_request(body: bytes | str) -> ExportTraceServiceRequest:
    """The message that a request holds; whatever OTLP does not know is refused.

    Ids are hexadecimal in OTLP, where protobuf's own JSON has base64.
    """
    return json_format.ParseDict(_in_base64(json.loads(body)), ExportTraceServiceRequest())


def _in_base64(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: base64.b64encode(bytes.fromhex(item)).decode() if name in _IDS else _in_base64(item)
            for name, item in value.items()
        }
    return [_in_base64(item) for item in value] if isinstance(value, list) else value


def spans_in(request: ExportTraceServiceRequest) -> list[Span]:
    return [span for resource in request.resource_spans for scope in resource.scope_spans for span in scope.spans]


def attributes_of(span: Any) -> dict[str, Any]:
    """Of a span, an event or a resource."""
    return {item.key: getattr(item.value, item.value.WhichOneof("value") or "") for item in span.attributes}


@dataclass
class Behaviour:
    """`status` with `headers` is the answer; `hangs` until the collector closes instead."""

    status: int = 200
    body: bytes = b"{}"
    headers: dict[str, str] = field(default_factory=dict)
    hangs: bool = False


class Collector:
    """`script` is how it behaves to its first requests; afterwards it takes everything."""

    def __init__(self, *script: Behaviour, always: Behaviour | None = None) -> None:
        self._script = list(script)
        self._always = always or Behaviour()
        self._over = threading.Event()
        self._connections: set[socket.socket] = set()
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = False
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def requests(self) -> list[ExportTraceServiceRequest]:
        return [read_request(body) for body in list(self.bodies)]

    @property
    def spans(self) -> list[Span]:
        return [span for request in self.requests for span in spans_in(request)]

    def __enter__(self) -> Collector:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._server.shutdown()
        for connection in self._connections.copy():
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._server.server_close()
        self._thread.join()

    def _handler(collector) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                collector._connections.add(self.connection)

            def finish(self) -> None:
                collector._connections.discard(self.connection)
                super().finish()

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                behaviour = collector._script.pop(0) if collector._script else collector._always
                collector.paths.append(self.path)
                collector.headers.append({name.lower(): value for name, value in self.headers.items()})
                if behaviour.hangs:
                    collector._over.wait(at_most(60))
                    self.close_connection = True
                    return
                if behaviour.status == 200:
                    collector.bodies.append(body)
                self.send_response(behaviour.status)
                for name, value in {**behaviour.headers, "Content-Length": str(len(behaviour.body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(behaviour.body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Nobody reads it."""

        return Handler
