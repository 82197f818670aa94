"""The response to one HTTP request: a plain body, JSON-RPC as JSON, or a stream of events.

The head of a JSON-RPC response waits for the first message: a result makes it JSON; a notification that comes first, or
ten silent seconds, make it a stream. In a session whose version has event ids, a stream outlives its connection: the
client can resume it (`replay.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from trunkline.core.call import Json, Result
from trunkline.core.errors import Problem
from trunkline.frontends.http.replay import EventReplay, ReplayStream
from trunkline.protocol.http1 import HttpRequest, response_head
from trunkline.protocol.jsonrpc import encode_error, error_message, single_line
from trunkline.protocol.mcp.translation import error_code
from trunkline.protocol.sse import COMMENT, encode_event

if TYPE_CHECKING:
    from trunkline.frontends.http.connection import Connection

JSON: Final = b"application/json"
EVENTS: Final = b"text/event-stream"
_WRITTEN_IN_PARTS_BYTES: Final = 64 * 1024
_JSON_HEAD: Final = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
_MODERN_STATUS: Final = {-32700: 400, -32600: 400, -32602: 400, -32601: 404, -32020: 400, -32021: 400, -32022: 400}
_COMMON_STATUS: Final = 200
_TOO_MANY: Final = 429
_MAX_UNREAD_RESPONSE_BYTES: Final = 32 * 1024 * 1024
_RETRY_MS: Final = 500
"""How soon a client may resume a stream that was closed."""
_STREAM_HEADERS: Final = (
    (b"content-type", EVENTS),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)


class HttpExchange:
    """Writes the response; it is the responder of MCP requests."""

    __slots__ = (
        "_connection",
        "_extra",
        "_request",
        "accepts_events",
        "accepts_json",
        "errors_set_status",
        "id_json",
        "on_disconnect",
        "on_streaming",
        "over",
        "prefers_events",
        "replay",
        "replay_stream",
        "started_at",
        "streaming",
        "too_many_open",
    )

    def __init__(self, connection: Connection, request: HttpRequest) -> None:
        self._connection = connection
        self._request = request
        self._extra: list[tuple[bytes, bytes]] = []
        self.over = False
        self.errors_set_status = False
        """Whether a JSON-RPC error decides the HTTP status (2026-07-28)."""
        self.replay_stream: ReplayStream | None = None
        self.too_many_open = False
        """Whether so many responses are open that this one may not wait for a server."""
        self.id_json = b"null"
        self.accepts_events = False
        self.accepts_json = True
        self.prefers_events = False
        self.streaming = False
        self.replay: EventReplay | None = None
        """Where the events are kept, should the response become a stream."""
        self.on_disconnect: Callable[[], object] | None = None
        self.on_streaming: Callable[[], None] | None = None
        self.started_at = 0.0

    # -- plain responses ------------------------------------------------------------------------------------------

    def respond(self, status: int, body: bytes = b"", content_type: bytes = JSON) -> None:
        if self.over:
            return
        if status == _TOO_MANY:
            self._connection.back_off()
        headers = [(b"content-type", content_type)] if body else []
        headers += [*self._extra, (b"content-length", b"%d" % len(body))]
        if not self._request.keep_alive:
            headers.append((b"connection", b"close"))
        elif self._request.http10:  # which closes by default
            headers.append((b"connection", b"keep-alive"))
        self._connection.write([response_head(status, headers), b"" if self._request.method == b"HEAD" else body])
        self._end()

    def refuse(self, problem: Problem, extra: Iterable[tuple[bytes, bytes]] = ()) -> None:
        """Respond with a problem of this HTTP request itself, with its own status."""
        self._extra += extra
        self.respond(problem.code.http, error_message(self.id_json, encode_error(problem)))

    def forget_headers(self) -> None:
        """Keep no parsed headers of an unauthenticated client."""
        self._connection.forget_heads()

    def add_header(self, name: bytes, value: bytes) -> None:
        self._extra.append((name, value))

    # -- JSON-RPC responses (the Responder protocol) ---------------------------------------------------------------

    def result(self, result: Result) -> None:
        raw = result.raw
        head = b'{"jsonrpc":"2.0","id":%b,"result":' % self.id_json
        if self.over or self.streaming or self.prefers_events:
            self.send(b"".join((head, raw if result.single_line else single_line(raw), b"}")), last=True)
            return
        length = len(head) + len(raw) + 1
        if self._extra or self._request.http10 or not self._request.keep_alive:
            self.respond(200, b"".join((head, raw, b"}")))
            return
        parts = [_JSON_HEAD % length, head, raw, b"}"]
        self._connection.write(parts if length > _WRITTEN_IN_PARTS_BYTES else [b"".join(parts)])
        self._end()

    def error(self, raw: Json, problem: Problem | None) -> None:
        if problem is not None and problem.code.http == _TOO_MANY and not self.over:
            self._connection.back_off()
        message = error_message(self.id_json, raw)
        status = _COMMON_STATUS
        if self.errors_set_status:
            code = error_code(raw) if problem is None else problem.code.jsonrpc
            status = _MODERN_STATUS.get(code, _COMMON_STATUS)
        in_stream = self.prefers_events and (status == _COMMON_STATUS or not self.accepts_json)
        if self.over or self.streaming or in_stream:
            self.send(single_line(message), last=True)
        else:
            self.respond(status, message)

    def notify(self, message: bytes) -> None:
        if self.over:
            self._keep_for_replay(message)
        elif self.accepts_events and self._connection.accepts_more():
            self.stream()
            self.send(message)

    def send_request(self, message: bytes) -> bool:
        """Send it on this stream, or return False: then the session's own stream carries it."""
        if self.over:
            self._keep_for_replay(message)
            return self.replay_stream is not None and not self.replay_stream.answered
        if self.accepts_events:
            self.stream()
            self.send(message)
        return self.accepts_events

    def cancelled(self, problem: Problem) -> None:
        """HTTP owes every request a response, even a cancelled one."""
        self.error(encode_error(problem), problem)

    def pause_stream(self) -> None:
        """Close the stream before the response; a client that got an event id at its start resumes it."""
        transport = None if self.replay_stream is None else self.replay_stream.transport
        if transport is not None and self.replay is not None and self.replay.primes:
            transport.end_stream()

    # -- streams --------------------------------------------------------------------------------------------------

    def stream(self) -> None:
        """Send the head of a stream of events, unless that has been done."""
        if self.streaming or self.over:
            return
        if self.replay is not None:
            self.replay_stream = self.replay.open(self.id_json)
            self.replay_stream.transport = self
        self._send_stream_head(after=0)

    def resume(self, replay_stream: ReplayStream, after: int) -> None:
        """Continue an earlier stream."""
        self.replay_stream = replay_stream
        self._send_stream_head(after)
        replay_stream.attach(self, after)

    def _send_stream_head(self, after: int) -> None:
        self.streaming = True
        framing = (b"connection", b"close") if self._request.http10 else (b"transfer-encoding", b"chunked")
        self._connection.write([response_head(200, [*_STREAM_HEADERS, *self._extra, framing])])
        if self.replay_stream is not None and self.replay is not None and self.replay.primes:
            self._chunk(b"id: %b\nretry: %d\ndata: \n\n" % (self.replay_stream.id_of(after), _RETRY_MS))
        if self.on_streaming is not None:
            self.on_streaming()

    def send(self, message: bytes, *, last: bool = False) -> None:
        """Send a message on this stream; after the connection is gone it is kept for a client that resumes."""
        self.stream()
        if self.replay_stream is not None:
            self.replay_stream.send(message, last=last)
        elif not self.over:
            self._chunk(encode_event(message))
            if last:
                self.end_stream()

    def end_unanswered(self) -> None:
        """End the stream without a response."""
        if self.replay_stream is not None:
            self.replay_stream.end()
        else:
            self.end_stream()

    def send_notification(self, message: bytes) -> None:
        """Send a message that is not a response; a client that does not read is detached, and may resume."""
        if self.over:
            return
        if self._connection.accepts_more():
            self.send(message)
        elif self.replay_stream is not None:
            self.replay_stream.detach(self)
            self.replay_stream.send(message)

    def send_response(self, message: bytes) -> None:
        """Send one of many responses on this stream; a client that lets them pile up is disconnected."""
        if not self.over and self._connection.accepts_more(_MAX_UNREAD_RESPONSE_BYTES):
            self.send(message)

    def named_event(self, name: bytes, data: bytes) -> None:
        self.stream()
        if not self.over:
            self._chunk(encode_event(data, event=name))

    def send_event(self, event_id: bytes, data: bytes) -> None:
        if not self.over:
            self._chunk(encode_event(data, id=event_id))

    def _keep_for_replay(self, message: bytes) -> None:
        if self.replay_stream is not None:
            self.replay_stream.send(message)

    def keep_alive(self) -> None:
        if self.streaming and not self.over:
            self._chunk(COMMENT)

    def end_stream(self) -> None:
        if self.over:
            return
        if not self._request.http10:
            self._connection.write([b"0\r\n\r\n"])
        self._end()

    def _chunk(self, event: bytes) -> None:
        chunk: list[Json] = [event] if self._request.http10 else [b"%x\r\n" % len(event), event, b"\r\n"]
        self._connection.write(chunk)

    # -- the connection -------------------------------------------------------------------------------------------

    @property
    def back_off(self) -> Callable[[], None]:
        """Makes the client back off, for refusals with status 429 that are not sent by this exchange.

        It holds the connection, and nothing of this request.
        """
        return self._connection.back_off

    def disconnected(self) -> None:
        """The client closed the connection before the response was complete."""
        self.over = True
        if self.replay_stream is not None:
            self.replay_stream.detach(self)
        on_disconnect, self.on_disconnect, self.on_streaming = self.on_disconnect, None, None
        if on_disconnect is not None:
            on_disconnect()

    def _end(self) -> None:
        self.over = True
        # The callbacks refer to this exchange: such a cycle would keep its body until the collector runs.
        self.on_disconnect = self.on_streaming = None
        if self.replay_stream is not None:
            self.replay_stream.detach(self)
        self._connection.exchange_over(
            keep_alive=self._request.keep_alive and not (self.streaming and self._request.http10)
        )
