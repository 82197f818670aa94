"""A message of the client on its way to the gateway, whatever becomes of its connection.

A request is answered once, unless the client took it back; a stream that breaks before the answer is asked for again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from trunkline.core.errors import Problem
from trunkline.frontends.relay.link import SILENT_S, Post
from trunkline.frontends.relay.messages import (
    answer_in,
    cancelled,
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
from trunkline.frontends.relay.mirrored import CALL, lacks_header
from trunkline.frontends.relay.session import HANDSHAKE_S
from trunkline.protocol.jsonrpc import Message, single_line
from trunkline.protocol.mcp.modern import is_modern

if TYPE_CHECKING:
    from trunkline.frontends.relay.relay import Relay

LINGER_S: Final = 10.0
"""How long a stream may go on that nobody waits for: one that was answered or taken back, or a notification's."""
_MAX_IN_VAIN: Final = 5
"""How often in a row the rest of a stream is asked for without hearing anything."""
Give = Callable[[bytes | None], None]
"""Takes the answer to a request; None when it will have none."""


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
            self._post = link.post(self.line, self, [*mirrors(self.message), *relay.mirrored.headers(self.message)])
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

    def drop(self, why: str) -> None:
        """The relay ends. With a reason the client is told so; not by `fail`, which would settle the session of a
        handshake, and send what waits for that."""
        was_sent = bool(self._stream.last_event_id) or (self._post is not None and self._post.written)
        self._relay.session.withdraw(self)
        self._close()
        if self._post is not None:
            self._post.drop()
        if why:
            self._give(refusal(self.message, cancelled(why, sent=was_sent)))

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
        if self._stream.last_event_id and not post.streamed:
            self._rest_refused(post)
            return
        if post.status == 404 and self._session_id and not self._sent_again:
            self._sent_again = True
            self._relay.session.gone(self._session_id)
            self.send()
            return
        if self._come_back(post) or self._add_headers(post, body):
            return
        answer = None if post.streamed or post.status == 401 else answer_in(body, self.message)
        if answer is None:
            self._misanswered(post, body)
        else:
            self._relay.link.answered()
            self._answer(answer)

    def _rest_refused(self, post: Post) -> None:
        """The gateway has forgotten the stream. What was asked has begun, so it must not be asked again."""
        link = self._relay.link
        if post.status == 404:
            self._relay.session.gone(self._session_id)
        self.fail(unreachable(link.where, f"it does not know this request any more (HTTP {post.status})", sent=True))

    def _misanswered(self, post: Post, body: bytes) -> None:
        link = self._relay.link
        if post.status == 401:
            problem = token_refused(link.where, given=link.has_token)
        elif post.streamed:
            problem = unreachable(link.where, "it ended the answer without a result", sent=True)
        else:
            problem = odd_answer(link.where, post.status, body, link.redact)
        link.failed(problem)
        self.fail(problem)

    def _come_back(self, post: Post) -> bool:
        """A stream that ended or broke before the answer is asked for again, if it said how far it was."""
        if self.modern or not self._open or not self._stream.worth_asking(post, self._relay.link.session_id):
            return False
        self._again = self._relay.link.later(self._stream.pause_s, self._resume)
        return True

    def _add_headers(self, post: Post, body: bytes) -> bool:
        """A call whose tool wants arguments repeated in headers is sent again with them, once."""
        wanted = (
            self.modern and self.message.method == CALL and not self._sent_again and lacks_header(post.status, body)
        )
        if wanted:
            self._sent_again = True
            self._relay.mirrored.learn(self.message, self._send_if_open)
        return wanted

    def _send_if_open(self) -> None:
        if self._open:
            self.send()

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
        elif age_s > LINGER_S:
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
        if post is not None and post.status and self._relay.link.now - self._since > LINGER_S:
            post.drop()
            self._relay.notice_over(self)
