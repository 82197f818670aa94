"""Between a stdio client and a running gateway: each of its messages goes out as it came, each answer comes back so.

Whatever happens to the gateway, every request of the client is answered once, unless the client took it back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from trunkline.core.errors import CLIENT_LIMIT, INTERNAL, INVALID_REQUEST, Problem
from trunkline.core.events import Events
from trunkline.doors.batches import Batch, as_array
from trunkline.doors.relay.link import SILENT_S, GatewayLink, Post
from trunkline.doors.relay.messages import (
    answer_in,
    is_progress,
    kind_of,
    mirrors,
    no_gateway,
    odd_answer,
    refusal,
    token_refused,
    too_large,
    unreachable,
    version_in,
)
from trunkline.doors.relay.session import HANDSHAKE_S, Session
from trunkline.doors.stdio_pipes import LAST_ANSWERS_S, StdioPipes
from trunkline.wire.batch import VERSION as BATCH_VERSION
from trunkline.wire.batch import is_batch, split_batch
from trunkline.wire.jsonrpc import (
    BadMessage,
    Message,
    MessageId,
    encode_error,
    error_message,
    parse_message,
    result_message,
    single_line,
)
from trunkline.wire.mcp.incoming import CANCELLED, cancelled_id, is_modern
from trunkline.wire.mcp.legacy import INITIALIZED

_MAX_UNREAD_BYTES: Final = 32 * 1024 * 1024
"""What is kept for a client that does not read; more stays with the gateway."""
_MAX_UNSENT_BYTES: Final = 64 * 1024 * 1024
_MAX_NOTICES: Final = 1024
_LINGER_S: Final = 10.0
"""How long a stream may go on that nobody waits for: one that was answered or taken back, or a notification's."""
_LISTEN: Final = "subscriptions/listen"
_MAX_IN_VAIN: Final = 5
"""How often in a row the rest of a stream is asked for without hearing anything."""
Give = Callable[[bytes | None], None]
"""Takes the answer to a request; None when it will have none."""


class Relay:
    def __init__(
        self,
        link: GatewayLink,
        events: Events,
        *,
        limit_bytes: int,
        max_in_flight: int,
        stdin_fd: int = 0,
        stdout_fd: int = 1,
    ) -> None:
        self.link = link
        self.events = events
        self.pipes = StdioPipes(self, limit_bytes=limit_bytes, stdin_fd=stdin_fd, stdout_fd=stdout_fd)
        self.session = Session(link, self.tell)
        self.requests: dict[MessageId, Request] = {}
        self._notices: set[Notice] = set()
        self._held_bytes = 0
        self._max_in_flight = max_in_flight
        self.asked = False
        """Whether the client ever asked for anything."""

    async def serve(self) -> None:
        """Until the client closes its end."""
        await self.pipes.serve()
        await self._finish()

    async def _finish(self) -> None:
        """What the client already asked gets a moment; what is then still open is cancelled by its session's end, or
        by closing its stream."""
        end = self.link.now + LAST_ANSWERS_S
        while self._owed() and not self.pipes.out_gone and self.link.now < end:
            await asyncio.sleep(0.01)
        for request in list(self.requests.values()):
            request.drop()
        await self.session.close()
        await self.link.close()
        await self.pipes.close()

    def _owed(self) -> bool:
        """Whether an answer is still to come, or a message still to leave; a subscription has no end of its own."""
        return bool(self._notices) or any(request.message.method != _LISTEN for request in self.requests.values())

    def stop(self) -> None:
        self.pipes.stop()

    # -- to the client --------------------------------------------------------------------------------------------

    def tell(self, message: bytes) -> None:
        self.pipes.write(message)

    def _answer(self, answer: bytes | None) -> None:
        if answer is not None:
            self.tell(answer)

    def unread(self, size_bytes: int) -> None:
        if size_bytes > _MAX_UNREAD_BYTES:
            self.link.read(False)

    def room(self) -> None:
        self.link.read(True)

    # -- from the client ------------------------------------------------------------------------------------------

    def line(self, line: bytes) -> None:
        try:
            message = parse_message(line)
        except BadMessage as error:
            if not self._is_batch(line):
                self.tell(error_message(error.id_json, encode_error(error.problem)))
            return
        self._take(line, message, None)

    def _is_batch(self, line: bytes) -> bool:
        """Whether it was several messages, as one version allows. Each goes its own way; the answers come together."""
        if not is_batch(line) or self.link.version != BATCH_VERSION:
            return False
        try:
            texts = split_batch(line)
        except BadMessage as error:
            self.tell(error_message(error.id_json, encode_error(error.problem)))
            return True
        batch = Batch(_Together(self))
        for text in texts:
            message = batch.read(text)
            if message is not None:
                self._take(single_line(text), message, batch)
        batch.ended(None)
        return True

    def _take(self, line: bytes, message: Message, batch: Batch | None) -> None:
        try:
            if message.method is None or message.id is None:
                self._notice(line, message)
            else:
                self._request(line, message, message.id, batch)
        except Exception as error:  # a bug of ours costs one message, not the conversation
            self.events.note("error", "internal", f"{type(error).__name__}: {error}")
            if message.method is not None and message.id is not None:
                self.requests.pop(message.id, None)
                give = self._answer if batch is None else batch.ended
                give(refusal(message, Problem(code=INTERNAL, message="Internal error", executed="unknown")))

    def _request(self, line: bytes, message: Message, request_id: MessageId, batch: Batch | None) -> None:
        self.asked = True
        give: Give = self._answer if batch is None else batch.ended
        if batch is not None:
            batch.expect()
        if message.method == "ping" and not self.session.exists and not is_modern(message):
            # Allowed before the handshake, and over HTTP there is nobody to ask yet.
            give(result_message(message.id_json, b"{}"))
            return
        problem = self._too_much(request_id)
        if problem is not None:
            give(refusal(message, problem))
            return
        request = self.requests[request_id] = Request(self, line, message, give)
        self._count(len(line))
        if message.method == "initialize" and not request.modern:
            self.session.opening(line, message)
        request.send()

    def _too_much(self, request_id: MessageId) -> Problem | None:
        if request_id in self.requests:
            return Problem(code=INVALID_REQUEST, message="A request with this `id` is still in flight")
        if len(self.requests) >= self._max_in_flight:
            message = f"More than {self._max_in_flight} requests in flight"
            return Problem(code=CLIENT_LIMIT, message=message, retryable=True, retry_after_ms=1000)
        return None

    def _notice(self, line: bytes, message: Message) -> None:
        """A notification, or a client's answer. Without a session there is nobody whom they could concern."""
        if message.method == CANCELLED:
            self._cancel(line, cancelled_id(message))
        elif self.session.exists and not is_modern(message):
            if message.method == INITIALIZED:
                self.session.initialized(line)
            self.send_notice(line)

    def _cancel(self, line: bytes, request_id: MessageId | None) -> None:
        request = None if request_id is None else self.requests.get(request_id)
        if request is not None:
            request.take_back(line)

    def send_notice(self, line: bytes) -> None:
        notice = Notice(self, line)
        self._notices.add(notice)
        self._count(len(line))
        notice.send()

    # -- what is in flight ----------------------------------------------------------------------------------------

    def request_over(self, request: Request) -> None:
        if request.message.id is not None and self.requests.get(request.message.id) is request:
            del self.requests[request.message.id]
            self._count(-len(request.line))

    def notice_over(self, notice: Notice) -> None:
        if notice in self._notices:
            self._notices.discard(notice)
            self._count(-len(notice.line))

    def _count(self, size: int) -> None:
        """A client that sends faster than the gateway takes has to wait."""
        self._held_bytes += size
        self.pipes.hold(self._held_bytes > _MAX_UNSENT_BYTES or len(self._notices) > _MAX_NOTICES)


class Request:
    """One request of the client on its way."""

    __slots__ = (
        "_again",
        "_cancel_line",
        "_give",
        "_open",
        "_post",
        "_relay",
        "_sent_again",
        "_session_id",
        "_since",
        "_stream",
        "line",
        "message",
        "modern",
    )

    def __init__(self, relay: Relay, line: bytes, message: Message, give: Give) -> None:
        self._relay = relay
        self._give = give
        self.line = line
        self.message = message
        self._again: asyncio.TimerHandle | None = None
        self._stream = BrokenStream()
        self.modern = is_modern(message)
        self._post: Post | None = None
        self._session_id = b""
        self._since = relay.link.now
        self._open = True
        self._sent_again = False
        self._cancel_line = b""

    @property
    def _opens_session(self) -> bool:
        return self.message.method == "initialize" and not self.modern

    def send(self) -> None:
        relay, link = self._relay, self._relay.link
        if self.modern:
            self._post = link.post(self.line, self, mirrors(self.message))
        elif self._opens_session or relay.session.admit(self):
            self._session_id = link.session_id
            self._post = link.post(self.line, self, silent_s=HANDSHAKE_S if self._opens_session else SILENT_S)

    # -- its end --------------------------------------------------------------------------------------------------

    def _answer(self, answer: bytes) -> None:
        if not self._open:
            return
        self._close()
        self._give(answer)
        if self._opens_session:
            session_id = b"" if self._post is None else self._post.session_id
            self._relay.session.answered(session_id, version_in(answer))

    def fail(self, problem: Problem) -> None:
        self._answer(refusal(self.message, problem))

    def take_back(self, cancel_line: bytes) -> None:
        """The client wants no answer any more. What the gateway has not seen is not sent; a modern request is taken
        back by closing its stream, a legacy one by the client's own words. A handshake cannot be taken back."""
        if self._opens_session:
            return
        post = self._post
        waits = self._relay.session.withdraw(self)
        if post is not None and post.written and not waits and not self.modern:
            self._cancel_line = cancel_line
            self._relay.send_notice(cancel_line)
        elif post is not None:
            post.drop()
        self._close()
        self._give(None)

    def drop(self) -> None:
        """Nobody is left to answer to."""
        self._close()
        if self._post is not None:
            self._post.drop()

    def _close(self) -> None:
        self._open = False
        if self._again is not None:
            self._again.cancel()
        self._since = self._relay.link.now
        self._relay.request_over(self)

    # -- what the gateway says ------------------------------------------------------------------------------------

    def event(self, data: bytes) -> None:
        kind = kind_of(data, self.message.id)
        if kind == "answer":
            self._relay.link.answered()
            self._answer(single_line(data))
        elif kind == "notice" and self._open and not (is_progress(data) and self._relay.pipes.crowded):
            self._relay.tell(single_line(data))

    def over(self, post: Post, body: bytes) -> None:
        if not self._open:
            return
        self._post = post
        if post.status == 404 and self._session_id and not self._sent_again:
            self._sent_again = True
            self._relay.session.gone(self._session_id)
            self.send()
            return
        if self._come_back(post):
            return
        answer = None if post.streamed or post.status == 401 else answer_in(body, self.message)
        if answer is None:
            self._misanswered(post, body)
        else:
            self._relay.link.answered()
            self._answer(answer)

    def _misanswered(self, post: Post, body: bytes) -> None:
        link = self._relay.link
        if post.status == 401:
            problem = token_refused(link.where, given=link.has_token)
        elif post.streamed:
            problem = unreachable(link.where, "it ended the answer without a result", sent=True)
        else:
            problem = odd_answer(link.where, post.status, body)
        link.failed(problem)
        self.fail(problem)

    def _come_back(self, post: Post) -> bool:
        """A stream that ended or broke before the answer is asked for again, if it said how far it was."""
        if self.modern or not self._open or not self._stream.worth_asking(post, self._relay.link.session_id):
            return False
        self._again = self._relay.link.later(self._stream.pause_s, self._resume)
        return True

    def _resume(self) -> None:
        self._post = self._relay.link.open_stream(self, self._stream.last_event_id)

    def lost(self, post: Post, reason: str) -> None:
        link = self._relay.link
        if not post.too_large and not post.malformed and self._come_back(post):
            return
        if post.too_large:
            self.fail(too_large(link.where, reason))
            return
        if post.malformed:
            problem = no_gateway(link.where, reason, executed="unknown")
        else:
            problem = unreachable(link.where, reason, sent=post.written)
        link.failed(problem)
        self.fail(problem)

    def tick(self) -> None:
        """On connections of their own, a cancellation can overtake its request: it is said again until it is heard.

        Comments keep a stream alive, but for ever neither a handshake nor a stream that has nothing more to say.
        """
        post, age_s = self._post, self._relay.link.now - self._since
        if self._open:
            if post is not None and self._opens_session and age_s > 2 * HANDSHAKE_S:
                post.drop()
                self.lost(post, f"no answer within {2 * HANDSHAKE_S:g} seconds")
        elif age_s > _LINGER_S:
            if post is not None:
                post.drop()
        elif self._cancel_line and self.message.id not in self._relay.requests:
            self._relay.send_notice(self._cancel_line)


class BrokenStream:
    """How far the stream of one request came, over all the connections that carried it."""

    __slots__ = ("_in_vain", "_session_id", "last_event_id", "pause_s")

    def __init__(self) -> None:
        self.last_event_id = b""
        self.pause_s = 0.0
        self._session_id = b""
        self._in_vain = 0

    def worth_asking(self, post: Post, session_id: bytes) -> bool:
        """Whether the rest may still be had: in the same session, and from a gateway that is not gone for long."""
        if post.streamed:
            self._in_vain = 0
            self.pause_s = post.retry_s
            self._session_id = session_id
            self.last_event_id = post.last_event_id or self.last_event_id
        elif post.status:
            return False
        self._in_vain += 1
        return bool(self.last_event_id) and session_id == self._session_id and self._in_vain <= _MAX_IN_VAIN


class _Together:
    """The answers to a batch, as one line."""

    one_by_one = False

    def __init__(self, relay: Relay) -> None:
        self._relay = relay

    def say(self, message: bytes, *, last: bool) -> None:
        self._relay.tell(message)

    def notice(self, message: bytes) -> None:
        self._relay.tell(message)

    def ask(self, message: bytes) -> bool:
        self._relay.tell(message)
        return True

    def finish(self, answers: list[bytes]) -> None:
        if answers:
            self._relay.tell(as_array(answers))


class Notice:
    """A message that needs no answer."""

    __slots__ = ("_post", "_relay", "_session_id", "_since", "line")

    def __init__(self, relay: Relay, line: bytes) -> None:
        self._relay = relay
        self._post: Post | None = None
        self._session_id = b""
        self._since = 0.0
        self.line = line

    def send(self) -> None:
        if self._relay.session.admit(self):
            self._session_id = self._relay.link.session_id
            self._since = self._relay.link.now
            self._post = self._relay.link.post(self.line, self)

    def fail(self, problem: Problem) -> None:
        self._relay.notice_over(self)

    def event(self, data: bytes) -> None: ...

    def over(self, post: Post, body: bytes) -> None:
        self._relay.notice_over(self)
        if post.status == 404:
            self._relay.session.gone(self._session_id)

    def lost(self, post: Post, reason: str) -> None:
        self._relay.notice_over(self)
        self._relay.link.failed(unreachable(self._relay.link.where, reason, sent=False))

    def tick(self) -> None:
        """An answer that does not end must not keep its connection from others."""
        post = self._post
        if post is not None and post.status and self._relay.link.now - self._since > _LINGER_S:
            post.drop()
            self._relay.notice_over(self)
