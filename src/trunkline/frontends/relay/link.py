"""HTTP towards one gateway: every message a POST of its own, the session's stream, and whether the gateway is there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, Protocol
from urllib.parse import urlsplit

from trunkline.config.secret_values import secrets_in
from trunkline.core.errors import Problem
from trunkline.core.events import Events
from trunkline.frontends.relay.messages import Headers
from trunkline.protocol.http1 import request_head
from trunkline.protocol.sse import SseEvent, SseParser, SseTooLarge
from trunkline.runtime.deadlines import LATE_S
from trunkline.runtime.http_client import Exchange, HttpPool, Target
from trunkline.telemetry.redact import Redactor

CONNECT_S: Final = 5.0
SILENT_S: Final = 45.0
"""A gateway that works on a request sends something every 15 seconds, if only a comment. One that does not is gone."""
_TICK_S: Final = 1.0
_RETRY_S: Final = 1.0
_SHORTEST_RETRY_S: Final = 0.05
_LONGEST_RETRY_S: Final = 60.0
_SPARE_CONNECTIONS: Final = 64
"""Beyond those of requests in flight: a cancellation must never wait for one of them to end."""
_JSON: Final = b"application/json"
_EVENTS: Final = b"text/event-stream"
_SESSION_ID: Final = b"mcp-session-id"


class Listener(Protocol):
    """Whom a post is for. It is told of every message in a stream, then once how the post ended."""

    def event(self, data: bytes) -> None: ...

    def over(self, post: Post, body: bytes) -> None:
        """The gateway answered, with this body unless it was a stream."""

    def lost(self, post: Post, reason: str) -> None: ...

    def tick(self) -> None:
        """About once a second while the post is open."""


class Post(Exchange):
    """One HTTP request to the gateway, of any method."""

    __slots__ = (
        "_is_news",
        "_link",
        "_listener",
        "_parts",
        "_sse",
        "heard_at",
        "malformed",
        "session_id",
        "silent_s",
        "status",
        "too_large",
    )

    def __init__(
        self, link: GatewayLink, listener: Listener, out: bytes, silent_s: float, *, is_news: bool = False
    ) -> None:
        super().__init__(out)
        self._link = link
        self._listener = listener
        self._is_news = is_news
        self.malformed = False
        """Whether what came was no HTTP."""
        self.too_large = False
        self._parts: list[bytes] = []
        self._sse: SseParser | None = None
        self.silent_s = silent_s
        self.heard_at = link.now
        self.status = 0
        self.session_id = b""

    @property
    def streamed(self) -> bool:
        return self._sse is not None

    @property
    def last_event_id(self) -> bytes:
        """Where its stream has got to; empty where that cannot be told, or could not be sent back."""
        last = None if self._sse is None else self._sse.last_event_id
        return last.encode() if last and last.isascii() and last.isprintable() else b""

    @property
    def retry_s(self) -> float:
        """How long to wait before asking for the rest of its stream."""
        retry_ms = None if self._sse is None else self._sse.retry_ms
        return _RETRY_S if retry_ms is None else min(max(retry_ms / 1000, _SHORTEST_RETRY_S), _LONGEST_RETRY_S)

    def on_head(self, status: int, headers: Mapping[bytes, bytes]) -> None:
        self.heard_at = self._link.now
        self.status = status
        self.session_id = headers.get(_SESSION_ID, b"")
        if status == 200 and headers.get(b"content-type", b"").lower().startswith(_EVENTS):
            self._sse = SseParser(self._link.limit_bytes)
            self.unlimited()
        if status == 202 or (self._is_news and self._sse is not None):
            self._link.reached()

    def on_body(self, data: bytes) -> None:
        self.heard_at = self._link.now
        if self._sse is None:
            self._parts.append(data)
            return
        try:
            events = self._sse.feed(data)
        except SseTooLarge as error:
            self._hand_over(error.events)
            self.abort()
            self.on_fail(str(error), too_large=True)
            return
        self._hand_over(events)

    def _hand_over(self, events: list[SseEvent]) -> None:
        for event in events:
            if event.data:
                self._listener.event(event.data)

    def on_end(self) -> None:
        self._link.forget(self)
        self._listener.over(self, self._parts[0] if len(self._parts) == 1 else b"".join(self._parts))

    def on_fail(self, reason: str, *, too_large: bool = False, malformed: bool = False) -> None:
        self.malformed, self.too_large = malformed, too_large
        self._link.forget(self)
        self._listener.lost(self, reason)

    def drop(self) -> None:
        """Nobody wants the answer any more; closing tells the gateway so. The listener hears nothing further."""
        self._link.forget(self)
        self.abort()

    def tick(self, now: float) -> None:
        if now - self.heard_at > self.silent_s:
            self.drop()
            self._listener.lost(self, f"nothing came from it for {self.silent_s:g} seconds")
        else:
            self._listener.tick()


class GatewayLink:
    """`where` is the address as people may see it; `served` is whether it ever answered a request."""

    def __init__(self, target: Target, *, token: str, limit_bytes: int, max_in_flight: int, events: Events) -> None:
        self.limit_bytes = limit_bytes
        self.has_token = bool(token)
        self.redact = Redactor(secrets_in("token", token))
        self.where = shown(target)
        self.session_id = b""
        self.version = ""
        self.served = False
        self._credential: Headers = [(b"authorization", b"Bearer " + token.encode())] if token else []
        self._events = events
        self._away = False
        self._posts: set[Post] = set()
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

    def post(self, body: bytes, listener: Listener, extra: Headers | None = None, silent_s: float = SILENT_S) -> Post:
        """Send a message. `extra` are the headers of one that describes itself; others go with the session's."""
        headers = [(b"content-type", _JSON), (b"accept", _JSON + b", " + _EVENTS)]
        headers += self._session_headers() if extra is None else extra
        headers.append((b"content-length", b"%d" % len(body)))
        return self._send(b"POST", headers, body, listener, silent_s)

    def open_stream(self, listener: Listener, last_event_id: bytes = b"") -> Post:
        """The session's own stream, where its news come; or what came after an event, on the stream it was on."""
        headers = [(b"accept", _EVENTS), *self._session_headers()]
        if last_event_id:
            headers.append((b"last-event-id", last_event_id))
        return self._send(b"GET", headers, b"", listener, SILENT_S)

    def later(self, seconds: float, what: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later(seconds, what)

    def end_session(self, listener: Listener, silent_s: float) -> Post:
        headers = [*self._session_headers(), (b"content-length", b"0")]
        return self._send(b"DELETE", headers, b"", listener, silent_s)

    def _session_headers(self) -> Headers:
        headers: Headers = []
        if self.version:
            headers.append((b"mcp-protocol-version", self.version.encode()))
        if self.session_id:
            headers.append((_SESSION_ID, self.session_id))
        return headers

    def _send(self, verb: bytes, headers: Headers, body: bytes, listener: Listener, silent_s: float) -> Post:
        target = self._pool.target
        first = [(b"host", target.authority), (b"accept-encoding", b"identity"), (b"user-agent", b"trunkline-stdio")]
        head = request_head(verb, target.path, [*first, *self._credential, *headers])
        post = Post(self, listener, head + body, silent_s, is_news=verb == b"GET")
        self._posts.add(post)
        if self._ticking is None:
            self._ticking = self._loop.call_later(_TICK_S, self._tick)
        self._pool.send(post)
        return post

    def forget(self, post: Post) -> None:
        self._posts.discard(post)

    def _tick(self) -> None:
        """The only clock of all requests: what goes wrong with one of them must not stop it."""
        late_s = 0.0 if self._ticking is None else self.now - self._ticking.when()
        self._ticking = None
        if self._posts:
            self._ticking = self._loop.call_later(_TICK_S, self._tick)
        if late_s > LATE_S:  # we were stopped, so it is not the gateway that was silent
            for post in self._posts:
                post.heard_at += late_s
        if not self.reading:
            return
        for post in list(self._posts):
            try:
                if post in self._posts:
                    post.tick(self.now)
            except Exception as error:
                self._events.note("error", "internal", f"a request's clock: {type(error).__name__}: {error}")

    @property
    def reading(self) -> bool:
        return self._pool.reading

    def read(self, wanted: bool) -> None:
        """Whether to take what the gateway sends; while not, its silence means nothing."""
        if wanted == self.reading:
            return
        self._pool.read(wanted)
        for post in self._posts:
            post.heard_at = self.now

    # -- whether it is there --------------------------------------------------------------------------------------

    def failed(self, problem: Problem) -> None:
        """One line when the gateway goes away, however many requests notice it."""
        if not self._away:
            self._away = True
            self._events.note("error", "gateway_lost", problem.message, code=problem.code.id, hint=problem.hint)

    def answered(self) -> None:
        self.served = True
        self.reached()

    def reached(self) -> None:
        """It answered as a gateway does."""
        if self._away:
            self._away = False
            self._events.note("info", "gateway_back", f"The gateway at {self.where} is back")

    async def close(self) -> None:
        if self._ticking is not None:
            self._ticking.cancel()
        for post in list(self._posts):
            post.drop()
        await self._pool.close()


def shown(target: Target) -> str:
    """The address without what might be secret in it."""
    if target.socket:
        return f"`{target.socket}`"
    parts = urlsplit(target.url)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}"
