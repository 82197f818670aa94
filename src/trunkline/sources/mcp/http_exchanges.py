"""What travels as a POST of its own: a message with the answer to it, and the farewell to a session."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from trunkline.core.call import STREAM_CLOSED, Request
from trunkline.core.errors import ANSWER_TOO_LARGE, SOURCE_LOST, SOURCE_PROTOCOL, SOURCE_START_FAILED, Problem
from trunkline.protocol.sse import SseParser, SseTooLarge
from trunkline.runtime.child_io import beginning
from trunkline.runtime.http_client import Exchange
from trunkline.sources.mcp.http_streams import REST_S, deliver

if TYPE_CHECKING:
    from trunkline.sources.mcp.http_lane import HttpLane

EVENTS: Final = b"text/event-stream"
SESSION_ID: Final = b"mcp-session-id"
_EXCERPT_BYTES: Final = 1024
_SHOWN_CHARACTERS: Final = 120
_NO_SESSION: Final = re.compile(
    rb"(?:no valid|invalid|missing|unknown|expired) (?:mcp[- ])?session|mcp-session-id|session[ _]id|"
    rb"session (?:was )?not found|server not initialized",
    re.IGNORECASE,
)
"""What servers say of our session. A tool may speak of sessions too (a browser's, say), and it did run."""


class Post(Exchange):
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
        if status == 200 and headers.get(b"content-type", b"").lower().startswith(EVENTS):
            self._sse = SseParser(self._lane.limit_bytes)
            self.unlimited()
        if request is not None and request.method == "initialize" and status == 200:
            self._lane.session_id = headers.get(SESSION_ID, b"")

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
        deliver(self._lane, events, self._request)
        if self._request is not None and self._request.done and self._rest is None:
            self.cut_after(REST_S)

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
        if not lane.carries(request):
            return
        if self._resumed(request):
            request.notify(STREAM_CLOSED, b"{}")
        else:
            lane.fail(request, lane.problem(SOURCE_PROTOCOL, self._what_came(body), request))

    def _session_is_lost(self, body: bytes) -> bool:
        """The protocol asks for 404. Servers after the reference example, and older SDKs, say so in the text of a 400;
        there an error under the id of our request is about that request."""
        if self._status != 400 or self._request is None:
            return self._status == 404
        return _NO_SESSION.search(body[:_EXCERPT_BYTES]) is not None and _id_in(body) != self._request.upstream_id

    def _read_body(self, request: Request, body: bytes) -> None:
        if self._status == 200:
            self._lane.received(body, request)
            return
        # An error status with a JSON-RPC error inside: HTTP says whose it is, whatever id it carries.
        error = _error_in(body)
        if error is not None:
            self._lane.refused(request, error)

    def _can_resume(self) -> bool:
        """Legacy servers may end a stream before the answer and keep the rest, if they number their events."""
        return self._sse is not None and bool(self._sse.last_event_id) and not self._lane.modern

    def _resumed(self, request: Request) -> bool:
        if self._sse is None or not self._can_resume():
            return False
        self._lane.resume(request, self._sse)
        return True

    def _what_came(self, body: bytes) -> str:
        if self._sse is not None:
            return "the event stream ended without an answer"
        if 300 <= self._status < 400:
            return f"answered HTTP {self._status}; redirects are not followed"
        if self._status == 200:
            return f"the answer is not the JSON-RPC response that was asked for: {self._excerpt(body)}"
        return f"answered HTTP {self._status}: {self._excerpt(body)}"

    def _excerpt(self, body: bytes) -> str:
        """Some servers repeat what they were sent, our credentials too. Half of one would not be recognised, so it is
        cut last."""
        text = self._lane.redact(beginning(body, _EXCERPT_BYTES))
        return repr(text[:_SHOWN_CHARACTERS])

    def on_fail(self, reason: str, *, too_large: bool = False, malformed: bool = False) -> None:
        lane, request = self._lane, self._request
        self._forget_rest()
        if request is not None and not request.done and not (too_large or malformed) and self._can_resume():
            lane.ended(request, ok=True)
            self._resumed(request)
            return
        problem: Problem | None = None
        if request is not None:
            code = SOURCE_START_FAILED if not self.written else SOURCE_LOST
            code = ANSWER_TOO_LARGE if too_large else SOURCE_PROTOCOL if malformed else code
            problem = lane.problem(code, reason, request)
        lane.ended(request, ok=too_large)
        if request is not None and problem is not None and not request.done:
            lane.fail(request, problem)


class Farewell(Exchange):
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


def _error_in(body: bytes) -> bytes | None:
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
