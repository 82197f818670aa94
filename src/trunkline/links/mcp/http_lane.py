"""A lane over Streamable HTTP: every message is a POST of its own, answered by JSON or by a stream of events."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from trunkline.core.call import QUEUED, SENT, Call, Failure, Json, Outcome, RemoteError, Request
from trunkline.core.errors import (
    ANSWER_TOO_LARGE,
    SOURCE_LOST,
    SOURCE_PROTOCOL,
    SOURCE_START_FAILED,
    Phase,
    Problem,
)
from trunkline.links.http_client import Exchange, HttpPool
from trunkline.links.mcp.lane import Count, Lane
from trunkline.wire.http1 import request_head
from trunkline.wire.mcp.modern import NAMED_BY, encode_header
from trunkline.wire.sse import SseParser, SseTooLarge

_JSON: Final = b"application/json"
_EVENTS: Final = b"text/event-stream"
_DELETE_WAIT_S: Final = 2.0
_LAST_WORDS_S: Final = 1.0
_SETTLED_EVERY_S: Final = 0.05
_REST_S: Final = 2.0
"""How long a stream may stay open after the answer that it was for."""
_NOTIFICATION_S: Final = 10.0
"""How long a server may take to accept a notification; nobody waits for that, but a connection does."""
_LISTEN_AGAIN_S: Final = 1.0
_SESSION_ID: Final = b"mcp-session-id"
_EXCERPT_BYTES: Final = 1024
_NO_SESSION: Final = re.compile(
    rb"(?:no valid|invalid|missing|unknown|expired) (?:mcp[- ])?session|mcp-session-id|session[ _]id|"
    rb"session (?:was )?not found|server not initialized",
    re.IGNORECASE,
)
"""What servers say of our session. A tool may speak of sessions too (a browser's, say), and it did run."""
RETIRED_AFTER_FAILURES: Final = 3


class HttpLane(Lane):
    """One session with one server. `retire` is set when the session is lost: new calls need a new lane."""

    def __init__(self, source: str, count: Count, pool: HttpPool, headers: Mapping[str, str], limit_bytes: int) -> None:
        super().__init__(source, count)
        self.pool = pool
        self.limit_bytes = limit_bytes
        self.version = ""
        self.modern = False
        self.session_id = b""
        self.take_back: Callable[[Request], bool] = _keep
        self._own_headers = [(name.encode(), value.encode()) for name, value in headers.items()]
        self._heads: dict[str, bytes] = {}
        self._posts: dict[int, _Post] = {}
        self._listener: asyncio.Task[None] | None = None
        self._transport_failures = 0
        self._unheard = 0

    # -- requests out ---------------------------------------------------------------------------------------------

    def speak(self, version: str, *, modern: bool) -> None:
        """The version is settled: every request from now on names it."""
        self.version = version
        self.modern = modern
        self._heads.clear()

    def _write(self, request: Request | None, message: bytes) -> None:
        head = self._head(request)
        post = _Post(self, request, b"%bcontent-length: %d\r\n\r\n%b" % (head, len(message), message))
        if request is not None:
            self._posts[request.upstream_id] = post
        else:
            self._unheard += 1
            post.cut_after(_NOTIFICATION_S)
        self.pool.send(post)

    def _head(self, request: Request | None) -> bytes:
        """Everything of the request's head but its length; the same bytes for every call of one method and name."""
        method = "" if request is None else request.method
        name = _mirrored_name(request) if self.modern and request is not None else ""
        key = f"{method}\n{name}" if self.modern else ""
        head = self._heads.get(key)
        if head is None:
            if len(self._heads) > 10_000:
                self._heads.clear()
            head = self._heads[key] = self._build_head(b"POST", self._mirrors(method, name))
        return head

    def _mirrors(self, method: str, name: str) -> list[tuple[bytes, bytes]]:
        if not self.modern or not method:
            return []
        mirrors = [(b"mcp-method", method.encode())]
        if name:
            mirrors.append((b"mcp-name", encode_header(name)))
        return mirrors

    def _build_head(self, verb: bytes, extra: list[tuple[bytes, bytes]]) -> bytes:
        headers = [
            (b"host", self.pool.target.authority),
            (b"content-type", _JSON),
            (b"accept", _EVENTS if verb == b"GET" else _JSON + b", " + _EVENTS),
            (b"accept-encoding", b"identity"),
            (b"user-agent", b"trunkline"),
        ]
        if self.version:
            headers.append((b"mcp-protocol-version", self.version.encode()))
        if self.session_id and not self.modern:
            headers.append((_SESSION_ID, self.session_id))
        headers += self._own_headers + extra
        return request_head(verb, self.pool.target.path, headers)[:-2]

    async def ask(self, method: str, params: Json, timeout_s: float) -> Outcome:
        """Our own requests are safe to repeat: a server may close a kept connection just as one is sent on it."""
        outcome = await super().ask(method, params, timeout_s)
        if isinstance(outcome, Failure) and outcome.problem.code is SOURCE_LOST and self._connection_failed:
            outcome = await super().ask(method, params, timeout_s)
        return outcome

    @property
    def _connection_failed(self) -> bool:
        return self.usable and 0 < self._transport_failures < RETIRED_AFTER_FAILURES

    def abandon(self, request: Request) -> None:
        """Legacy servers are told by a notification, modern ones by closing the stream; either way it is closed."""
        unsent = self.phase_of(request) == QUEUED
        post = self._posts.pop(request.upstream_id, None)
        if self.modern or unsent:
            self.pending.pop(request.upstream_id, None)
        else:
            super().abandon(request)
        if post is not None:
            post.abort()

    def phase_of(self, request: Request) -> Phase:
        post = self._posts.get(request.upstream_id)
        return SENT if post is None or post.written else QUEUED

    # -- what exchanges report ------------------------------------------------------------------------------------

    def ended(self, request: Request | None, *, ok: bool) -> None:
        """An exchange is over. Only failures of the transport count against the server, and only in a row."""
        if request is not None:
            self._posts.pop(request.upstream_id, None)
        else:
            self._unheard -= 1
        self._transport_failures = 0 if ok else self._transport_failures + 1
        if self._transport_failures >= RETIRED_AFTER_FAILURES:
            self.retire(self.problem(SOURCE_LOST, f"{self._transport_failures} transport failures in a row"))

    def fail(self, request: Request, problem: Problem) -> None:
        self.pending.pop(request.upstream_id, None)
        request.finish(Failure(problem))

    def session_lost(self, request: Request) -> None:
        """The server knows nothing of our session, so it cannot have run the call; it may go to a new one."""
        self.pending.pop(request.upstream_id, None)
        self._count("sessions_lost")
        problem = self.problem(SOURCE_LOST, "lost our session")
        self.retire(problem)
        request.carrier = None
        if not self.take_back(request):
            request.finish(Failure(problem))

    def retire(self, problem: Problem) -> None:
        """No more calls on this lane. What is in flight still gets its own answer."""
        if not self.lost.done():
            self.lost.set_result(problem)

    # -- the server's own stream ----------------------------------------------------------------------------------

    def listen(self) -> None:
        """Keep the legacy GET stream open, where notifications such as list_changed arrive."""
        self._listener = asyncio.get_running_loop().create_task(self._keep_listening())

    async def _keep_listening(self) -> None:
        """A server that served the stream once is asked again, however long it is away; if it then refuses, it has
        forgotten our session."""
        served_before = False
        while not self.lost.done():
            stream = _Stream(self, self._build_head(b"GET", []) + b"\r\n")
            self.pool.send(stream)
            try:
                status = await stream.closed
            finally:
                stream.abort()
            served_before = served_before or status == 200
            if status not in (0, 200) and served_before and self.session_id:
                self.retire(self.problem(SOURCE_LOST, "lost our session"))
            if status not in (0, 200) or not served_before:
                return
            await asyncio.sleep(stream.retry_s)

    async def settled(self) -> None:
        """Calls that were sent before the lane was retired have connections of their own, and deadlines."""
        while any(isinstance(request, Call) for request in self.pending.values()):
            await asyncio.sleep(_SETTLED_EVERY_S)

    async def close(self) -> None:
        if self._listener is not None:
            self._listener.cancel()
            await asyncio.wait([self._listener])
        self.lose(self.problem(SOURCE_LOST, "was disconnected"))
        await self._last_words()
        if self.session_id and not self.modern:
            await self._delete_session()
        await self.pool.close()

    async def _last_words(self) -> None:
        """Notifications still on their way (that a call was cancelled, say) are worth a moment."""
        end = asyncio.get_running_loop().time() + _LAST_WORDS_S
        while self._unheard > 0 and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(0.005)

    async def _delete_session(self) -> None:
        farewell = _Farewell(self._build_head(b"DELETE", []) + b"content-length: 0\r\n\r\n")
        self.pool.send(farewell)
        await asyncio.wait([farewell.closed], timeout=_DELETE_WAIT_S)
        farewell.abort()


def _mirrored_name(request: Request) -> str:
    parameter = NAMED_BY.get(request.method)
    if parameter is None:
        return ""
    try:
        mirrored = msgspec.json.decode(request.params, type=_Mirrored)
    except msgspec.MsgspecError:
        return ""
    return mirrored.name if parameter == "name" else mirrored.uri


class _Mirrored(msgspec.Struct):
    """The parameters that a header may mirror; the others are not looked into."""

    name: str = ""
    uri: str = ""


def _keep(request: Request) -> bool:
    return False


class _Post(Exchange):
    """One message on its way, and the answer to it if it is a request."""

    __slots__ = ("_lane", "_parts", "_request", "_rest", "_sse", "_status")

    def __init__(self, lane: HttpLane, request: Request | None, out: bytes) -> None:
        super().__init__(out)
        self._lane = lane
        self._request = request
        self._status = 0
        self._parts: list[bytes] = []
        self._sse: SseParser | None = None
        self._rest: asyncio.TimerHandle | None = None

    def on_head(self, status: int, headers: Mapping[bytes, bytes]) -> None:
        self._status = status
        request = self._request
        if status == 200 and headers.get(b"content-type", b"").lower().startswith(_EVENTS):
            self._sse = SseParser(self._lane.limit_bytes)
            self.unlimited()
        if request is not None and request.method == "initialize" and status == 200:
            self._lane.session_id = headers.get(_SESSION_ID, b"")

    def on_body(self, data: bytes) -> None:
        if self._sse is None:
            self._parts.append(data)
            return
        try:
            events = self._sse.feed(data)
        except SseTooLarge:
            self.abort()
            self.on_fail("an event is too large", too_large=True)
            return
        for event in events:
            if event.data:
                self._lane.received(event.data)
        if self._request is not None and self._request.done and self._rest is None:
            self.cut_after(_REST_S)

    def cut_after(self, seconds: float) -> None:
        self._rest = asyncio.get_running_loop().call_later(seconds, self._cut)

    def _cut(self) -> None:
        """It needs no answer any more, and its stream stays open: the connection is of no more use to anyone."""
        self.abort()
        self._lane.ended(self._request, ok=True)

    def abort(self) -> None:
        self._forget_rest()
        super().abort()

    def _forget_rest(self) -> None:
        if self._rest is not None:
            self._rest.cancel()

    def on_end(self) -> None:
        lane, request = self._lane, self._request
        self._forget_rest()
        lane.ended(request, ok=True)
        if request is None or request.done:
            return
        body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        if lane.session_id and not lane.modern and request.method != "initialize" and self._session_is_lost(body):
            lane.session_lost(request)
            return
        if self._status in (401, 403):
            lane.fail(request, lane.login_problem(self._status))
            return
        if self._sse is None:
            self._read_body(request, body)
        if not request.done:
            lane.fail(request, lane.problem(SOURCE_PROTOCOL, self._what_came(body), request))

    def _session_is_lost(self, body: bytes) -> bool:
        """The protocol asks for 404. Servers after the reference example, and older SDKs, say so in the text of a 400;
        there an error under the id of our request is about that request."""
        if self._status != 400 or self._request is None:
            return self._status == 404
        return _NO_SESSION.search(body[:_EXCERPT_BYTES]) is not None and _id_in(body) != self._request.upstream_id

    def _read_body(self, request: Request, body: bytes) -> None:
        if self._status == 200:
            self._lane.received(body)
            return
        # An error status with a JSON-RPC error inside: HTTP says whose it is, whatever id it carries.
        error = _error_in(body)
        if error is not None:
            self._lane.pending.pop(request.upstream_id, None)
            request.finish(RemoteError(error))

    def _what_came(self, body: bytes) -> str:
        if self._sse is not None:
            return "the event stream ended without an answer"
        if 300 <= self._status < 400:
            return f"answered HTTP {self._status}; redirects are not followed"
        if self._status == 200:
            return f"the answer is not the JSON-RPC response that was asked for: {_excerpt(body)}"
        return f"answered HTTP {self._status}: {_excerpt(body)}"

    def on_fail(self, reason: str, *, too_large: bool = False, malformed: bool = False) -> None:
        lane, request = self._lane, self._request
        self._forget_rest()
        problem: Problem | None = None
        if request is not None:
            code = SOURCE_START_FAILED if not self.written else SOURCE_LOST
            code = ANSWER_TOO_LARGE if too_large else SOURCE_PROTOCOL if malformed else code
            problem = lane.problem(code, reason, request)
        lane.ended(request, ok=too_large)
        if request is not None and problem is not None and not request.done:
            lane.fail(request, problem)


class _Stream(Exchange):
    """The server's own stream of messages."""

    __slots__ = ("_lane", "_sse", "_status", "closed", "retry_s")

    def __init__(self, lane: HttpLane, out: bytes) -> None:
        super().__init__(out)
        self._lane = lane
        self._sse = SseParser(lane.limit_bytes)
        self._status = 0
        self.retry_s = _LISTEN_AGAIN_S
        self.closed: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """How it was answered, once it is over; 0 if not at all."""

    def on_head(self, status: int, headers: Mapping[bytes, bytes]) -> None:
        self._status = status
        if self._served:
            self.unlimited()

    @property
    def _served(self) -> bool:
        return self._status == 200

    def on_body(self, data: bytes) -> None:
        if not self._served:
            return
        try:
            events = self._sse.feed(data)
        except SseTooLarge:
            self.abort()
            self._close()
            return
        if self._sse.retry_ms is not None:
            self.retry_s = min(max(self._sse.retry_ms / 1000, 0.1), 60.0)
        for event in events:
            if event.data:
                self._lane.received(event.data)

    def on_end(self) -> None:
        self._close()

    def on_fail(self, reason: str, *, too_large: bool = False, malformed: bool = False) -> None:
        self._close()

    def _close(self) -> None:
        if not self.closed.done():
            self.closed.set_result(self._status)


class _Farewell(Exchange):
    """A DELETE whose answer does not matter."""

    __slots__ = ("closed",)

    def __init__(self, out: bytes) -> None:
        super().__init__(out)
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_end(self) -> None:
        if not self.closed.done():
            self.closed.set_result(None)

    def on_fail(self, reason: str, *, too_large: bool = False, malformed: bool = False) -> None:
        self.on_end()


class _ErrorBody(msgspec.Struct):
    error: msgspec.Raw


class _AnyId(msgspec.Struct):
    id: int | str | None = None


def _id_in(body: bytes) -> object:
    try:
        return msgspec.json.decode(body, type=_AnyId).id
    except (msgspec.MsgspecError, RecursionError):
        return None


def _error_in(body: bytes) -> Json | None:
    try:
        error = bytes(msgspec.json.decode(body, type=_ErrorBody).error)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return error if error.startswith(b"{") and _is_text(error) else None


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _excerpt(body: bytes) -> str:
    return repr(body[:120].decode(errors="replace"))
