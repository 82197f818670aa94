"""One HTTP request being answered: plain, as JSON-RPC in JSON, or as a stream of events.

The head of a JSON-RPC answer waits for the first message: a result makes it JSON; a notification that comes first, or
ten silent seconds, make it a stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from trunkline.core.call import Json, Result
from trunkline.core.errors import Problem
from trunkline.wire.http1 import HttpRequest, response_head
from trunkline.wire.jsonrpc import encode_error, error_message, single_line
from trunkline.wire.sse import COMMENT, encode_event

if TYPE_CHECKING:
    from trunkline.doors.http.connection import Connection

JSON: Final = b"application/json"
EVENTS: Final = b"text/event-stream"
_BIG: Final = 64 * 1024
_JSON_HEAD: Final = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
_MODERN_STATUS: Final = {-32700: 400, -32600: 400, -32602: 400, -32601: 404, -32020: 400, -32021: 400, -32022: 400}
_STREAM_HEADERS: Final = (
    (b"content-type", EVENTS),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)


class HttpExchange:
    __slots__ = (
        "_connection",
        "_extra",
        "_over",
        "_request",
        "_statuses",
        "id_json",
        "on_gone",
        "started_at",
        "streaming",
        "takes_events",
        "takes_json",
    )

    def __init__(self, connection: Connection, request: HttpRequest) -> None:
        self._connection = connection
        self._request = request
        self._extra: list[tuple[bytes, bytes]] = []
        self._over = False
        self._statuses = False
        self.id_json = b"null"
        self.takes_events = False
        self.takes_json = True
        self.streaming = False
        self.on_gone: Callable[[], None] | None = None
        self.started_at = 0.0

    # -- plain answers --------------------------------------------------------------------------------------------

    def respond(self, status: int, body: bytes = b"", content_type: bytes = JSON) -> None:
        if self._over:
            return
        headers = [(b"content-type", content_type)] if body else []
        headers += [*self._extra, (b"content-length", b"%d" % len(body))]
        if not self._request.keep_alive:
            headers.append((b"connection", b"close"))
        elif self._request.http10:  # such a client waits for the end of the connection unless it is told otherwise
            headers.append((b"connection", b"keep-alive"))
        self._write([response_head(status, headers), b"" if self._request.method == b"HEAD" else body])
        self._end()

    def refuse(self, problem: Problem, extra: Iterable[tuple[bytes, bytes]] = ()) -> None:
        """A problem of this HTTP request itself, with the status it owns."""
        self._extra += extra
        self.respond(problem.code.http, error_message(self.id_json, encode_error(problem)))

    def add_header(self, name: bytes, value: bytes) -> None:
        self._extra.append((name, value))

    def statuses_follow_errors(self) -> None:
        """2026-07-28: an HTTP status says what kind of JSON-RPC error is inside."""
        self._statuses = True

    # -- JSON-RPC answers (the Answer protocol) -------------------------------------------------------------------

    def result(self, result: Result) -> None:
        if self._over:
            return
        raw = result.raw
        head = b'{"jsonrpc":"2.0","id":%b,"result":' % self.id_json
        if self.streaming or not self.takes_json:
            self._last_event([head, raw if result.single_line else single_line(raw), b"}"])
            return
        length = len(head) + len(raw) + 1
        if self._extra or self._request.http10 or not self._request.keep_alive:
            self.respond(200, b"".join((head, raw, b"}")))
            return
        parts = [_JSON_HEAD % length, head, raw, b"}"]
        self._write(parts if length > _BIG else [b"".join(parts)])
        self._end()

    def error(self, raw: Json, problem: Problem | None) -> None:
        if self._over:
            return
        message = error_message(self.id_json, raw)
        if self.streaming or not self.takes_json:
            self._last_event([single_line(message)])
            return
        status = 200
        if self._statuses and problem is not None:
            status = _MODERN_STATUS.get(problem.code.jsonrpc, 200)
        self.respond(status, message)

    def notice(self, message: bytes) -> None:
        if not self._over and self.takes_events and self._connection.takes_news():
            self.stream()
            self._event([message])

    def cancelled(self, problem: Problem) -> None:
        """HTTP owes every request an answer, even one that was taken back."""
        self.error(encode_error(problem), problem)

    # -- streams --------------------------------------------------------------------------------------------------

    def stream(self) -> None:
        """Send the head of a stream of events, unless that has been done."""
        if self.streaming or self._over:
            return
        self.streaming = True
        framing = (b"connection", b"close") if self._request.http10 else (b"transfer-encoding", b"chunked")
        self._write([response_head(200, [*_STREAM_HEADERS, *self._extra, framing])])

    def event(self, message: bytes) -> None:
        if not self._over and self._connection.takes_news():
            self._event([message])

    def keep_alive(self) -> None:
        if self.streaming and not self._over:
            self._chunk([COMMENT])

    def end_stream(self) -> None:
        if self._over:
            return
        if not self._request.http10:
            self._write([b"0\r\n\r\n"])
        self._end()

    def _last_event(self, parts: list[Json]) -> None:
        self.stream()
        self._event(parts)
        self.end_stream()

    def _event(self, parts: list[Json]) -> None:
        self._chunk([encode_event(parts[0] if len(parts) == 1 else b"".join(parts))])

    def _chunk(self, parts: list[bytes]) -> None:
        if self._request.http10:
            self._write(list(parts))
            return
        size = sum(map(len, parts))
        self._write([b"%x\r\n" % size, *parts, b"\r\n"])

    # -- the connection -------------------------------------------------------------------------------------------

    @property
    def over(self) -> bool:
        return self._over

    def gone(self) -> None:
        """The client closed the connection before it was answered."""
        self._over = True
        if self.on_gone is not None:
            self.on_gone()

    def _write(self, parts: list[Json]) -> None:
        self._connection.write(parts)

    def _end(self) -> None:
        self._over = True
        self._connection.exchange_over(
            keep_alive=self._request.keep_alive and not (self.streaming and self._request.http10)
        )
