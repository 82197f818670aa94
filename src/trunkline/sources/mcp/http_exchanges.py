"""The HTTP exchanges of a Streamable HTTP session: POSTs with their answers, GETs of event streams, and DELETE.

A legacy server has a stream of its own on a GET, and may let an answer that broke off be resumed on another. A stream
that ended is requested again after the pause its server wishes for, from the last event that was seen.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import msgspec

from trunkline.core.call import STREAM_CLOSED, Request
from trunkline.core.errors import ANSWER_TOO_LARGE, SOURCE_LOST, SOURCE_PROTOCOL, SOURCE_START_FAILED
from trunkline.protocol.mcp.methods import INITIALIZE
from trunkline.protocol.sse import SseEvent, SseParser, SseTooLarge
from trunkline.runtime.child_io import head_text
from trunkline.runtime.http_client import Exchange, ExchangeFailure

if TYPE_CHECKING:
    from trunkline.sources.mcp.http_session import BaseHttpSession, HttpUpstreamSession

EVENTS: Final = b"text/event-stream"
SESSION_ID: Final = b"mcp-session-id"
LINGER_S: Final = 2.0
"""How long a stream may stay open after the answer that it was for."""
_PAUSE_S: Final = 1.0
_MIN_PAUSE_S: Final = 0.1
_MAX_PAUSE_S: Final = 60.0
_MAX_UNSERVED: Final = 3
_EXCERPT_BYTES: Final = 1024
_SHOWN_CHARACTERS: Final = 120
_NO_SESSION: Final = re.compile(
    rb"(?:no valid|invalid|missing|unknown|expired) (?:mcp[- ])?session|mcp-session-id|session[ _]id|"
    rb"session (?:was )?not found|server not initialized",
    re.IGNORECASE,
)
"""What servers say of our session. A tool may speak of sessions too (a browser's, say), and it did run."""


def pause_s(parser: SseParser) -> float:
    """How long the server wants us to wait before we request its stream again."""
    if parser.retry_ms is None:
        return _PAUSE_S
    return min(max(parser.retry_ms / 1000, _MIN_PAUSE_S), _MAX_PAUSE_S)


S = TypeVar("S", bound="BaseHttpSession")


class _StreamableExchange(Exchange, Generic[S]):
    """An exchange whose response may be a stream of events, which is closed shortly after it has brought the answer."""

    __slots__ = ("_cut_timer", "_parts", "_request", "_session", "_sse", "status")

    def __init__(self, session: S, request: Request | None, message: bytes) -> None:
        super().__init__(message)
        self._session = session
        self._request = request
        self._parts: list[bytes] = []
        self._sse: SseParser | None = None
        """Set if the response is a stream."""
        self._cut_timer: asyncio.TimerHandle | None = None
        self.status = 0

    def on_body(self, data: bytes) -> None:
        if self._sse is None:
            self._parts.append(data)
            return
        session, request = self._session, self._request
        try:
            events = self._sse.feed(data)
        except SseTooLarge as error:
            self._event_too_large(error.events)
            return
        for event in events:
            session.event(event, request)
        if request is not None and request.done and self._cut_timer is None and not self.over:
            self.cut_after(LINGER_S)

    def _event_too_large(self, before: list[SseEvent]) -> None:
        for event in before:
            self._session.event(event, self._request)
        if not self.over:  # one of them may have ended the session
            self.abort()
            self.on_fail("an event is too large", "too_large")

    def cut_after(self, seconds: float) -> None:
        self._cut_timer = asyncio.get_running_loop().call_later(seconds, self._cut)

    def _cut(self) -> None:
        """End an exchange that goes on although nothing more is needed."""
        self.abort()
        self.on_end()

    def _cancel_cut(self) -> None:
        if self._cut_timer is not None:
            self._cut_timer.cancel()

    def abort(self) -> None:
        self._cancel_cut()
        super().abort()


class EventStream(_StreamableExchange["BaseHttpSession"]):
    """One GET of an event stream, which goes on `after` what another one has parsed. `request` is the one whose answer
    it resumes, if any."""

    __slots__ = ("_on_ended", "_on_opened", "failure", "parser", "too_large")

    def __init__(
        self,
        session: BaseHttpSession,
        on_ended: Callable[[EventStream], None],
        *,
        after: SseParser | None = None,
        request: Request | None = None,
        on_opened: Callable[[], None] | None = None,
    ) -> None:
        self.parser = SseParser(session.pool.limit_bytes)
        if after is not None:
            self.parser.last_event_id, self.parser.retry_ms = after.last_event_id, after.retry_ms
        super().__init__(session, request, session.stream_request(self.parser.last_event_id or ""))
        self._on_opened = on_opened
        self._on_ended = on_ended
        self.failure = ""
        self.too_large = False

    def on_head(self, status: int, headers: Mapping[bytes, bytes]) -> None:
        self.status = status
        if status == 200:
            self._sse = self.parser
            self.expect_events()
        if self._on_opened is not None:
            self._on_opened()

    def on_body(self, data: bytes) -> None:
        if self._sse is not None:  # the body of a refusal is not used
            super().on_body(data)

    def on_end(self) -> None:
        self._cancel_cut()
        self._on_ended(self)

    def on_fail(self, reason: str, failure: ExchangeFailure = "connection") -> None:
        self.failure = reason
        self.too_large = failure == "too_large"
        self.on_end()


class Resumption:
    """Requests the rest of an answer until it is there, the server refuses, or nobody wants it any more.

    The message itself is never sent again: its tool may be running.
    """

    __slots__ = ("_parser", "_request", "_session", "_stream", "_timer", "_unserved")

    written: Final = True

    def __init__(self, session: HttpUpstreamSession, request: Request, parser: SseParser) -> None:
        self._session = session
        self._request = request
        self._parser = parser
        self._stream: EventStream | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._unserved = 0

    def start(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(pause_s(self._parser), self._connect)

    def _connect(self) -> None:
        self._stream = EventStream(self._session, self._stream_ended, after=self._parser, request=self._request)
        self._session.pool.send(self._stream)

    def abort(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._stream is not None:
            self._stream.abort()

    def _stream_ended(self, stream: EventStream) -> None:
        session, request = self._session, self._request
        self._unserved = 0 if stream.status == 200 else self._unserved + 1
        if request.done:
            session.exchange_ended(request, ok=True)
        elif stream.too_large:
            session.exchange_ended(request, ok=True)
            session.fail(request, session.problem(ANSWER_TOO_LARGE, "an event is too large", request))
        elif stream.status not in (0, 200):
            self._give_up(f"its answer broke off, and the request for the rest was answered with HTTP {stream.status}")
        elif self._unserved >= _MAX_UNSERVED:
            self._give_up("its answer broke off, and the rest cannot be reached")
        else:
            self._parser = stream.parser
            self.start()

    def _give_up(self, reason: str) -> None:
        session, request = self._session, self._request
        problem = session.problem(SOURCE_LOST, reason, request)
        session.exchange_ended(request, ok=False)
        session.fail(request, problem)


class MessagePost(_StreamableExchange["HttpUpstreamSession"]):
    """The POST of one message, and the answer if it is a request."""

    __slots__ = ()

    def on_head(self, status: int, headers: Mapping[bytes, bytes]) -> None:
        self.status = status
        request = self._request
        if status == 200 and headers.get(b"content-type", b"").lower().startswith(EVENTS):
            self._sse = SseParser(self._session.pool.limit_bytes)
            self.expect_events()
        if request is not None and request.method == INITIALIZE and status == 200:
            self._session.session_id = headers.get(SESSION_ID, b"")

    def on_end(self) -> None:
        session, request = self._session, self._request
        self._cancel_cut()
        session.exchange_ended(request, ok=True)
        if request is None or request.done:
            return
        body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        if session.session_id and not session.modern and request.method != INITIALIZE and self._session_is_lost(body):
            session.session_lost(request)
            return
        if self.status in (401, 403):
            session.fail(request, session.login_problem(self.status))
            return
        if self._sse is None:
            self._read_body(request, body)
        if not session.awaits(request):
            return
        if self._resumed(request):
            request.notify(STREAM_CLOSED, b"{}")
        else:
            session.fail(request, session.problem(SOURCE_PROTOCOL, self._unexpected_answer(body), request))

    def _session_is_lost(self, body: bytes) -> bool:
        """Whether the server has forgotten our session.

        The protocol asks for 404. Servers modelled on the reference example, and older SDKs, say so in the text of a
        400; there an error under the id of our request is about that request.
        """
        if self.status != 400 or self._request is None:
            return self.status == 404
        if _NO_SESSION.search(body[:_EXCERPT_BYTES]) is None:
            return False
        try:
            return msgspec.json.decode(body, type=_AnyId).id != self._request.upstream_id
        except (msgspec.MsgspecError, RecursionError):
            return True

    def _read_body(self, request: Request, body: bytes) -> None:
        if self.status == 200:
            self._session.received(body, request)
            return
        # An error status with a JSON-RPC error inside: HTTP tells which request it is for, whatever id it carries.
        error = _error_in(body)
        if error is not None:
            self._session.refused(request, error)

    def _can_resume(self) -> bool:
        """Legacy servers that number their events may end a stream before the answer and keep the rest."""
        return self._sse is not None and bool(self._sse.last_event_id) and not self._session.modern

    def _resumed(self, request: Request) -> bool:
        if self._sse is None or not self._can_resume():
            return False
        self._session.resume(request, self._sse)
        return True

    def _unexpected_answer(self, body: bytes) -> str:
        if self._sse is not None:
            return "the event stream ended without an answer"
        if 300 <= self.status < 400:
            return f"answered HTTP {self.status}; redirects are not followed"
        # Some servers echo our credentials. Half of one would not be recognised, so the text is cut after redaction.
        excerpt = self._session.redact(head_text(body, _EXCERPT_BYTES))[:_SHOWN_CHARACTERS]
        if self.status == 200:
            return f"the answer is not the expected JSON-RPC response: {excerpt!r}"
        return f"answered HTTP {self.status}: {excerpt!r}"

    def on_fail(self, reason: str, failure: ExchangeFailure = "connection") -> None:
        session, request = self._session, self._request
        too_large = failure == "too_large"
        self._cancel_cut()
        if request is not None and not request.done and failure == "connection" and self._can_resume():
            session.exchange_ended(request, ok=True)
            self._resumed(request)
            return
        if request is None:
            session.exchange_ended(None, ok=too_large)
            return
        code = SOURCE_LOST if self.written else SOURCE_START_FAILED
        code = ANSWER_TOO_LARGE if too_large else SOURCE_PROTOCOL if failure == "malformed" else code
        problem = session.problem(code, reason, request)
        session.exchange_ended(request, ok=too_large)
        if not request.done:
            session.fail(request, problem)


class _ErrorBody(msgspec.Struct):
    error: msgspec.Raw


class _AnyId(msgspec.Struct):
    id: int | str | None = None


def _error_in(body: bytes) -> bytes | None:
    try:
        error = bytes(msgspec.json.decode(body, type=_ErrorBody).error)
        error.decode()
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None
    return error if error.startswith(b"{") else None
