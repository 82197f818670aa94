"""HTTP to one gateway: each message is a request of its own; an unreachable gateway is logged once."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import urlsplit

from trunkline.config.secret_detection import secrets_in
from trunkline.core.errors import (
    ANSWER_TOO_LARGE,
    BAD_VALUE,
    GATEWAY_UNREACHABLE,
    UNAUTHORIZED,
    Executed,
    GatewayError,
    Problem,
)
from trunkline.core.events import Events
from trunkline.protocol.http1 import request_head
from trunkline.protocol.sse import SseEvent, SseParser, SseTooLarge
from trunkline.runtime.child_io import head_text
from trunkline.runtime.deadlines import LATE_S
from trunkline.runtime.http_client import Exchange, ExchangeFailure, HttpPool, HttpTarget, RequestFailed, send_request
from trunkline.telemetry.redaction import Redactor

Headers = list[tuple[bytes, bytes]]
OnEvent = Callable[[bytes], None]

CONNECT_S: Final = 5.0
SILENT_S: Final = 45.0
"""A gateway that works on a request sends at least a comment every 15 seconds; one that does not is gone."""
HANDSHAKE_S: Final = 10.0
"""The same for a handshake, which is answered at once; with comments it may take twice as long."""
LINGER_S: Final = 10.0
"""How long an unneeded response may go on."""
_DELETE_S: Final = 1.0
_TICK_S: Final = 1.0
_RETRY_S: Final = 1.0
_MIN_RETRY_S: Final = 0.05
_MAX_RETRY_S: Final = 60.0
_RETRY_MS: Final = 1000
_SPARE_CONNECTIONS: Final = 64
"""Beyond those of requests in flight: a cancellation must never wait for one of them."""
_EXCERPT_BYTES: Final = 120
_JSON: Final = b"application/json"
_EVENTS: Final = b"text/event-stream"
_SESSION_ID: Final = b"mcp-session-id"
_POST_HEADERS: Final = ((b"content-type", _JSON), (b"accept", _JSON + b", " + _EVENTS))


class GatewayReply(Exchange):
    """An HTTP request to the gateway, and its response.

    `on_event` receives the messages of a stream until the reply is settled; without it the last one becomes the body.
    """

    def __init__(
        self, gateway: GatewayHttp, out: bytes, on_event: OnEvent | None, silent_s: float, limit_s: float = math.inf
    ) -> None:
        super().__init__(out)
        self.answer = b""
        """The message in the stream that answers the request."""
        self.body = b""
        self.error = ""
        """Why there is no response, or only a part of one."""
        self.malformed = False
        """Whether what came was not HTTP."""
        self.too_large = False
        self.status = 0
        self.session_id = b""
        self.needs_status_only = False
        self.is_notification_stream = False
        self.received_at = gateway.now
        self._gateway = gateway
        self._on_event = on_event
        self._silent_s = silent_s
        self._limit_s = limit_s
        self._expires_at = gateway.now + limit_s
        self._parts: list[bytes] = []
        self._settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sse: SseParser | None = None

    async def wait(self) -> None:
        """Wait until the response is complete, or will not be."""
        await self._settled

    def settle(self, answer: bytes = b"") -> None:
        if not self._settled.done():
            self.answer = answer
            self._settled.set_result(None)

    @property
    def streamed(self) -> bool:
        return self._sse is not None

    @property
    def last_event_id(self) -> bytes:
        """Where the stream can be resumed; empty if that is unknown, or cannot be sent in a header."""
        last = None if self._sse is None else self._sse.last_event_id
        return last.encode() if last and last.isascii() and last.isprintable() else b""

    @property
    def retry_s(self) -> float:
        """How long to wait before resuming the stream."""
        retry_ms = None if self._sse is None else self._sse.retry_ms
        return _RETRY_S if retry_ms is None else min(max(retry_ms / 1000, _MIN_RETRY_S), _MAX_RETRY_S)

    def release(self) -> None:
        """Expect nothing more; the response may still end by itself, so that its connection can be reused."""
        self._expires_at = min(self._expires_at, self._gateway.now + LINGER_S)

    def drop(self) -> None:
        """Close the connection, which tells the gateway that the rest is not needed."""
        self._gateway.forget(self)
        if not self.over:
            self.abort()
        self.settle()

    def tick(self, now: float) -> None:
        if now - self.received_at > self._silent_s:
            self._give_up(f"nothing came from it for {self._silent_s:g} seconds")
        elif now > self._expires_at:
            self._give_up(f"no response within {self._limit_s:g} seconds")

    def _give_up(self, error: str) -> None:
        self.error = self.error or error
        self.drop()

    # -- what arrives ---------------------------------------------------------------------------------------------

    def on_head(self, status: int, headers: Mapping[bytes, bytes]) -> None:
        self.received_at = self._gateway.now
        self.status = status
        self.session_id = headers.get(_SESSION_ID, b"")
        if status == 200 and headers.get(b"content-type", b"").lower().startswith(_EVENTS):
            self._sse = SseParser(self._gateway.limit_bytes)
            self.expect_events()
        if status == 202 or (self.is_notification_stream and self.streamed):
            self._gateway.reached()
        if self.needs_status_only:
            self.release()
            self.settle()

    def on_body(self, data: bytes) -> None:
        self.received_at = self._gateway.now
        if self._sse is None:
            self._parts.append(data)
            return
        try:
            events = self._sse.feed(data)
        except SseTooLarge as error:
            self._deliver(error.events)
            self.abort()
            self.on_fail(str(error), "too_large")
            return
        self._deliver(events)

    def _deliver(self, events: list[SseEvent]) -> None:
        for event in events:
            if not event.data or self._settled.done():
                continue
            if self._on_event is None:
                self.body = event.data
            else:
                self._on_event(event.data)

    def on_end(self) -> None:
        self._gateway.forget(self)
        if self._sse is None:
            self.body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self.settle()

    def on_fail(self, reason: str, failure: ExchangeFailure = "connection") -> None:
        self._gateway.forget(self)
        self.error, self.too_large, self.malformed = reason, failure == "too_large", failure == "malformed"
        self.settle()

    # -- what is wrong with it ------------------------------------------------------------------------------------

    def problem(self, sent: bool | None = None) -> Problem:
        """Why there is no valid response. `sent` is given if it was another request that carried the message."""
        gateway = self._gateway
        sent = self.written if sent is None else sent
        executed: Executed = "unknown" if sent else "no"
        if self.too_large:
            message = f"The gateway at {gateway.where} sent a message over the size limit: {self.error}"
            hint = "ask for less, or raise `gateway.limits.message_bytes`"
            return Problem(code=ANSWER_TOO_LARGE, message=message, hint=hint, phase="sent", executed=executed)
        if self.error and not self.malformed:
            return gateway.unreachable(self.error, sent=sent)
        if self.status == 401:
            return gateway.token_refused()
        if self.streamed and sent:
            return gateway.unreachable("it ended the response without a result", sent=True)
        excerpt = gateway.redact(head_text(self.body, _EXCERPT_BYTES)).strip()
        what = self.error or f"HTTP {self.status}{f': {excerpt!r}' if excerpt else ''}"
        if 300 <= self.status < 500 and not self.malformed:
            executed = "no"  # a status that blames the request; one of a proxy that lost its gateway does not
        message = f"The server at {gateway.where} is not an MCP gateway: {what}"
        hint = "check the address: a gateway's ends in `/mcp`, and `trunkline up` prints it"
        return Problem(code=GATEWAY_UNREACHABLE, message=message, hint=hint, phase="sent", executed=executed)


class GatewayHttp:
    """`where` is the address without secrets; `served` says whether the gateway has ever answered a request."""

    def __init__(self, target: HttpTarget, *, token: str, limit_bytes: int, max_in_flight: int, events: Events) -> None:
        self.limit_bytes = limit_bytes
        self.redact = Redactor(secrets_in("token", token))
        self.where = _without_secrets(target)
        self.session_id = b""
        self.version = ""
        self.served = False
        self._common: Headers = [
            (b"host", target.authority),
            (b"accept-encoding", b"identity"),
            (b"user-agent", b"trunkline-stdio"),
        ]
        self._has_token = bool(token)
        if token:
            self._common.append((b"authorization", b"Bearer " + token.encode()))
        self._post_head = b""
        """The head of a message of the present session, without its length; empty until it is needed."""
        self._events = events
        self._deletes: list[asyncio.Task[None]] = []
        self._is_lost = False
        self._replies: set[GatewayReply] = set()
        self._ticking: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._pool = HttpPool(
            target,
            connect_timeout_s=CONNECT_S,
            limit_bytes=limit_bytes,
            max_connections=max_in_flight + _SPARE_CONNECTIONS,
        )

    @property
    def now(self) -> float:
        return self._loop.time()

    # -- requests -------------------------------------------------------------------------------------------------

    def use_session(self, session_id: bytes, version: str) -> None:
        """Send requests in this session from now on; in none if it is empty."""
        self.session_id, self.version = session_id, version
        self._post_head = b""

    def post(self, body: bytes, on_event: OnEvent | None = None, headers: Headers | None = None) -> GatewayReply:
        """Send a message of the session, or one that describes itself in `headers`."""
        return self._send(self._post_out(body, headers), on_event, SILENT_S)

    def handshake(self, body: bytes, on_event: OnEvent | None = None) -> GatewayReply:
        """Send a message that is answered at once."""
        return self._send(self._post_out(body, None), on_event, HANDSHAKE_S, 2 * HANDSHAKE_S)

    def notify(self, body: bytes) -> GatewayReply:
        """Send a message that has no response: the reply is settled by its status."""
        reply = self.post(body)
        reply.needs_status_only = True
        return reply

    def open_stream(self, on_event: OnEvent, last_event_id: bytes = b"") -> GatewayReply:
        """The session's own stream of notifications; or the rest of any stream after one of its events."""
        headers = [(b"accept", _EVENTS)] + ([(b"last-event-id", last_event_id)] if last_event_id else [])
        reply = self._send(self._session_head(b"GET", headers) + b"\r\n", on_event, SILENT_S)
        reply.is_notification_stream = True
        return reply

    def end_session(self) -> None:
        """Tell the gateway, without waiting for it, that the session is over."""
        if self.session_id:
            out = self._session_head(b"DELETE", [(b"content-length", b"0")]) + b"\r\n"
            self._deletes.append(self._loop.create_task(self._delete(out)))

    async def _delete(self, out: bytes) -> None:
        with contextlib.suppress(RequestFailed):
            await send_request(self._pool, out, _DELETE_S)

    def _post_out(self, body: bytes, headers: Headers | None) -> bytes:
        if headers is not None:
            head = self._head(b"POST", [*_POST_HEADERS, *headers])
        else:
            head = self._post_head = self._post_head or self._session_head(b"POST", [*_POST_HEADERS])
        return b"%bcontent-length: %d\r\n\r\n%b" % (head, len(body), body)

    def _session_head(self, verb: bytes, headers: Headers) -> bytes:
        if self.version:
            headers.append((b"mcp-protocol-version", self.version.encode()))
        if self.session_id:
            headers.append((_SESSION_ID, self.session_id))
        return self._head(verb, headers)

    def _head(self, verb: bytes, headers: Headers) -> bytes:
        """Without the empty line that ends it."""
        return request_head(verb, self._pool.target.path, [*self._common, *headers])[:-2]

    def _send(self, out: bytes, on_event: OnEvent | None, silent_s: float, limit_s: float = math.inf) -> GatewayReply:
        reply = GatewayReply(self, out, on_event, silent_s, limit_s)
        self._replies.add(reply)
        if self._ticking is None:
            self._ticking = self._loop.call_later(_TICK_S, self._tick)
        self._pool.send(reply)
        return reply

    def forget(self, reply: GatewayReply) -> None:
        self._replies.discard(reply)

    def _tick(self) -> None:
        """Check the timeouts of all requests, once a second; an error in one must not stop it."""
        late_s = 0.0 if self._ticking is None else self.now - self._ticking.when()
        self._ticking = None
        if self._replies:
            self._ticking = self._loop.call_later(_TICK_S, self._tick)
        if late_s > LATE_S:  # this process was suspended: it was not the gateway that was silent
            for reply in self._replies:
                reply.received_at += late_s
        if not self.reading:
            return
        for reply in list(self._replies):
            try:
                reply.tick(self.now)
            except Exception as error:
                self._events.note("error", "internal", f"a request's timeout: {type(error).__name__}: {error}")

    @property
    def reading(self) -> bool:
        return self._pool.reading

    def read(self, wanted: bool) -> None:
        """Read what the gateway sends, or pause; while paused, its silence means nothing."""
        if wanted == self.reading:
            return
        self._pool.set_reading(wanted)
        for reply in self._replies:
            reply.received_at = self.now

    async def close(self) -> None:
        if self._deletes:
            await asyncio.wait(self._deletes)
        if self._ticking is not None:
            self._ticking.cancel()
        for reply in list(self._replies):
            reply.drop()
        await self._pool.close()

    # -- reachability ---------------------------------------------------------------------------------------------

    def failed(self, problem: Problem) -> None:
        """Log once that the gateway is gone, however many requests notice it."""
        if not self._is_lost:
            self._is_lost = True
            self._events.note("error", "gateway_lost", problem.message, code=problem.code.id, hint=problem.hint)

    def answered(self) -> None:
        self.served = True
        self.reached()

    def reached(self) -> None:
        """The gateway responded: log that it is back."""
        if self._is_lost:
            self._is_lost = False
            self._events.note("info", "gateway_back", f"The gateway at {self.where} is back")

    def unreachable(self, reason: str, *, sent: bool) -> Problem:
        """The gateway is not there, or was lost while it worked on a request."""
        return Problem(
            code=GATEWAY_UNREACHABLE,
            message=f"The gateway at {self.where} {'was lost' if sent else 'cannot be reached'}: {reason}",
            hint="start it again with `trunkline up`; this connection recovers by itself once it answers",
            phase="sent" if sent else "queued",
            executed="unknown" if sent else "no",
            retryable=not sent,
            retry_after_ms=None if sent else _RETRY_MS,
        )

    def token_refused(self) -> Problem:
        return Problem(
            code=UNAUTHORIZED,
            message=f"The gateway at {self.where} {'refuses the token' if self._has_token else 'requires a token'}",
            hint="set `gateway.token` in the configuration file, or TRUNKLINE_TOKEN in this program's environment",
        )


def check_target(target: HttpTarget, token: str) -> None:
    """Check that the address and the token can be sent in a request. Raises GatewayError."""
    try:
        request_head(b"POST", target.path, [(b"host", target.authority)])
    except ValueError:
        message = f"{_without_secrets(target)} is not the address of a gateway"
        raise GatewayError(Problem(code=BAD_VALUE, message=message)) from None
    if not (token.isascii() and token.isprintable() and " " not in token):
        message = "The token for the gateway must be a single word of printable ASCII characters"
        raise GatewayError(Problem(code=BAD_VALUE, message=message))


def _without_secrets(target: HttpTarget) -> str:
    """The address as people may see it."""
    if target.socket:
        return f"`{target.socket}`"
    parts = urlsplit(target.url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
