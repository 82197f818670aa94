"""A session over Streamable HTTP: every message is a POST of its own, answered by JSON or by a stream of events.

HTTP+SSE (`http.py`) has the same base: a pool of connections, and headers that each request carries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

import msgspec

from trunkline.core.call import QUEUED, SENT, Call, Failure, Json, Outcome, RemoteError, Request
from trunkline.core.errors import SOURCE_LOST, Phase, Problem
from trunkline.protocol.http1 import request_head
from trunkline.protocol.mcp.methods import NAME_PARAMETERS
from trunkline.protocol.mcp.modern import encode_header
from trunkline.protocol.mcp.translation import error_code
from trunkline.protocol.sse import SseEvent, SseParser
from trunkline.runtime.deadlines import settle, wait_first
from trunkline.runtime.http_client import HttpPool, RequestFailed, send_request
from trunkline.sources.mcp.http_exchanges import EVENTS, SESSION_ID, EventStream, MessagePost, Resumption, pause_s
from trunkline.sources.mcp.session import Count, UpstreamSession

_JSON: Final = b"application/json"
_DELETE_WAIT_S: Final = 2.0
_LAST_MESSAGES_S: Final = 1.0
_DRAIN_POLL_S: Final = 0.05
_NOTIFICATION_S: Final = 10.0
"""How long a server may take to accept a notification, which keeps a connection busy."""
_STREAM_OPENS_S: Final = 0.5
"""How long a call waits for the server's own stream. Some servers send no head before their first event."""
_HEADER_MISMATCH: Final = -32020
_REMEMBERED_HEADS: Final = 10_000
_REMEMBERED_CHARACTERS: Final = 256
"""Longer names are URIs that clients make up, as large as a message may be."""
RETIRED_AFTER_FAILURES: Final = 3


class BaseHttpSession(UpstreamSession):
    """What both HTTP transports share."""

    def __init__(self, source: str, count: Count, pool: HttpPool, headers: Mapping[str, str]) -> None:
        super().__init__(source, count)
        self.pool = pool
        pool.served = lambda: self.served
        self._own_headers = [(name.encode(), value.encode()) for name, value in headers.items()]

    def event(self, event: SseEvent, request: Request | None) -> None:
        """Handle an event of a stream. `request` is the one that the stream answers, if any."""
        if event.data:
            self.received(event.data, request)

    def stream_request(self, last_event_id: str) -> bytes:
        """The GET of an event stream, from after this event if there is one."""
        extra = [(b"last-event-id", last_event_id.encode())] if last_event_id else []
        return self._build_head(b"GET", self.pool.target.path, extra) + b"\r\n"

    def _build_head(self, verb: bytes, path: bytes, extra: list[tuple[bytes, bytes]]) -> bytes:
        """A request's head, without its length and its end."""
        headers = [
            (b"host", self.pool.target.authority),
            (b"content-type", _JSON),
            (b"accept", EVENTS if verb == b"GET" else _JSON + b", " + EVENTS),
            (b"accept-encoding", b"identity"),
            (b"user-agent", b"trunkline"),
        ]
        return request_head(verb, path, headers + self._own_headers + extra)[:-2]

    def _write_answer(self, message: bytes) -> None:
        """Drop answers that a server requests without reading them, which would fill our memory."""
        if self.pool.at_capacity:
            self._count("unread_messages_dropped")
        else:
            super()._write_answer(message)


class HttpUpstreamSession(BaseHttpSession):
    """A session that is `lost` takes no new calls; those in flight still get their own answers."""

    def __init__(self, source: str, count: Count, pool: HttpPool, headers: Mapping[str, str]) -> None:
        super().__init__(source, count, pool, headers)
        self.version = ""
        self.session_id = b""
        self.resubmit: Callable[[Request], bool] = lambda _: False
        self.resend_with_headers: Callable[[Call], bool] = lambda _: False
        self._heads: dict[str, bytes] = {}
        self._posts: dict[int, MessagePost | Resumption] = {}
        self._listener: asyncio.Task[None] | None = None
        self._stream_answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport_failures = 0
        self._unacknowledged = 0

    # -- requests out -------------------------------------------------------------------------------------------------

    def set_version(self, version: str, *, modern: bool) -> None:
        """Name this version in every request from now on."""
        self.version = version
        self.modern = modern
        self._heads.clear()

    def _write(self, request: Request | None, message: bytes) -> None:
        head = self._head(request, message)
        post = MessagePost(self, request, b"%bcontent-length: %d\r\n\r\n%b" % (head, len(message), message))
        if request is not None:
            self._posts[request.upstream_id] = post
        else:
            self._unacknowledged += 1
            post.cut_after(_NOTIFICATION_S)
        self.pool.send(post)

    def _head(self, request: Request | None, message: bytes) -> bytes:
        """The request's head without its length, cached by method and name."""
        if not self.modern:
            return self._cached_head("", "")
        if request is None:
            return self._cached_head(msgspec.json.decode(message, type=_Notification).method, "")
        head = self._cached_head(request.method, _mirrored_name(request))
        if isinstance(request, Call) and request.headers:
            head += b"".join([b"%b: %b\r\n" % header for header in request.headers])
        return head

    def _cached_head(self, method: str, name: str) -> bytes:
        if len(name) > _REMEMBERED_CHARACTERS:
            return self._post_head(method, name)
        key = f"{method}\n{name}"
        head = self._heads.get(key)
        if head is None:
            if len(self._heads) > _REMEMBERED_HEADS:
                self._heads.clear()
            head = self._heads[key] = self._post_head(method, name)
        return head

    def _post_head(self, method: str, name: str) -> bytes:
        mirrored: list[tuple[bytes, bytes]] = []
        if self.modern and method:
            mirrored.append((b"mcp-method", method.encode()))
        if self.modern and name:
            mirrored.append((b"mcp-name", encode_header(name)))
        return self._build_head(b"POST", self.pool.target.path, mirrored)

    def _build_head(self, verb: bytes, path: bytes, extra: list[tuple[bytes, bytes]]) -> bytes:
        headers: list[tuple[bytes, bytes]] = []
        if self.version:
            headers.append((b"mcp-protocol-version", self.version.encode()))
        if self.session_id and not self.modern:
            headers.append((SESSION_ID, self.session_id))
        return super()._build_head(verb, path, headers + extra)

    async def request(self, method: str, params: Json, timeout_s: float) -> Outcome:
        """Repeat our own requests once, which is safe: a server may close a kept connection just as one is sent."""
        outcome = await super().request(method, params, timeout_s)
        if not isinstance(outcome, Failure) or outcome.problem.code is not SOURCE_LOST:
            return outcome
        if self.usable and 0 < self._transport_failures < RETIRED_AFTER_FAILURES:
            outcome = await super().request(method, params, timeout_s)
        return outcome

    def abandon(self, request: Request) -> None:
        """Tell legacy servers by a notification, and modern ones by closing the stream, which is closed either way."""
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

    # -- what exchanges report ----------------------------------------------------------------------------------------

    def exchange_ended(self, request: Request | None, *, ok: bool) -> None:
        """Account for the end of an exchange. Only transport failures in a row count against the server."""
        if request is not None:
            self._posts.pop(request.upstream_id, None)
        else:
            self._unacknowledged -= 1
        self._transport_failures = 0 if ok else self._transport_failures + 1
        if self._transport_failures >= RETIRED_AFTER_FAILURES:
            self.retire(self.problem(SOURCE_LOST, f"{self._transport_failures} transport failures in a row"))

    def fail(self, request: Request, problem: Problem) -> None:
        self.pending.pop(request.upstream_id, None)
        self.server_requests.refuse_for(request)
        request.finish(Failure(problem))

    def session_lost(self, request: Request) -> None:
        """Retire a session that the server has forgotten; it cannot have run the call, which may go elsewhere."""
        self.pending.pop(request.upstream_id, None)
        self._count("sessions_lost")
        problem = self.problem(SOURCE_LOST, "lost our session")
        self.retire(problem)
        request.upstream = None
        if not self.resubmit(request):
            request.finish(Failure(problem))

    def retire(self, problem: Problem) -> None:
        """Send no more calls on this session. What is in flight still gets its own answer."""
        settle(self.lost, problem)

    def refused(self, request: Request, error: bytes) -> None:
        """Finish with the server's error. If it is about headers, its tools have changed and the call was not run."""
        self.pending.pop(request.upstream_id, None)
        if self.modern and isinstance(request, Call) and error_code(error) == _HEADER_MISMATCH:
            request.upstream = None
            if self.resend_with_headers(request):
                return
        request.finish(RemoteError(error))

    def awaits(self, request: Request) -> bool:
        """Whether its answer is still expected on this session."""
        return not request.done and self.pending.get(request.upstream_id) is request

    def resume(self, request: Request, parser: SseParser) -> None:
        """Ask for the rest of an answer whose stream ended early."""
        resumption = self._posts[request.upstream_id] = Resumption(self, request, parser)
        resumption.start()

    # -- the server's own stream --------------------------------------------------------------------------------------

    def open_stream(self) -> None:
        """Keep the legacy GET stream open, on which notifications such as list_changed arrive."""
        if self._listener is None:
            self._listener = asyncio.get_running_loop().create_task(self._keep_listening())

    async def wait_for_stream(self) -> None:
        """Wait until that stream is open or refused: requests that the server makes before could not reach us."""
        if self._listener is not None:
            await wait_first([self._listener, self._stream_answered], _STREAM_OPENS_S)

    async def _keep_listening(self) -> None:
        """Reopen a stream that was served once, however long the server is away; if it then refuses, it has forgotten
        our session, or at least the last event."""
        served_before = False
        before: SseParser | None = None
        while not self.lost.done():
            stream = await self._listen_once(before)
            served_before = served_before or stream.status == 200
            if stream.status not in (0, 200):
                if before is not None and before.last_event_id and stream.status != 404:
                    before = None
                    continue
                if served_before and self.session_id:
                    self.retire(self.problem(SOURCE_LOST, "lost our session"))
                return
            if not served_before:
                return
            before = stream.parser
            await asyncio.sleep(pause_s(before))

    async def _listen_once(self, before: SseParser | None) -> EventStream:
        closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        answered = partial(settle, self._stream_answered, None)
        stream = EventStream(self, lambda _: settle(closed, None), after=before, on_opened=answered)
        self.pool.send(stream)
        try:
            await closed
        finally:
            answered()
            stream.abort()
        return stream

    async def drained(self) -> None:
        """Wait for calls sent before the session was retired: they have connections of their own, and deadlines."""
        while any(isinstance(request, Call) for request in self.pending.values()):
            await asyncio.sleep(_DRAIN_POLL_S)

    async def close(self) -> None:
        if self._listener is not None:
            listener, self._listener = self._listener, None
            listener.cancel()
            await asyncio.wait([listener])
        self.lose(self.problem(SOURCE_LOST, "was disconnected"))
        for post in list(self._posts.values()):
            if isinstance(post, Resumption):
                post.abort()
        end = asyncio.get_running_loop().time() + _LAST_MESSAGES_S
        while self._unacknowledged > 0 and asyncio.get_running_loop().time() < end:  # such as cancellations
            await asyncio.sleep(0.005)
        if self.session_id and not self.modern:
            delete = self._build_head(b"DELETE", self.pool.target.path, []) + b"content-length: 0\r\n\r\n"
            with suppress(RequestFailed):
                await send_request(self.pool, delete, _DELETE_WAIT_S)
        await self.pool.close()


class _NamedParams(msgspec.Struct):
    """The parameters that a header may mirror."""

    name: str = ""
    uri: str = ""
    taskId: str = ""


class _Notification(msgspec.Struct):
    method: str = ""


def _mirrored_name(request: Request) -> str:
    parameter = NAME_PARAMETERS.get(request.method)
    if parameter is None:
        return ""
    try:
        mirrored = msgspec.json.decode(request.params, type=_NamedParams)
    except (msgspec.MsgspecError, RecursionError):
        return ""
    return mirrored.name if parameter == "name" else mirrored.uri if parameter == "uri" else mirrored.taskId
