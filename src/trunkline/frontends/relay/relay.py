"""Between a stdio client and a running gateway: each of its messages goes out as it came, each answer comes back so.

Whatever happens to the gateway, every request of the client is answered once, unless the client took it back.
"""

from __future__ import annotations

from typing import Final

from trunkline.core.errors import CLIENT_LIMIT, INTERNAL, INVALID_REQUEST, Problem
from trunkline.core.events import Events
from trunkline.frontends.mcp.batches import Batch, as_array
from trunkline.frontends.relay.link import GatewayLink
from trunkline.frontends.relay.messages import refusal
from trunkline.frontends.relay.mirrored import MirroredArguments
from trunkline.frontends.relay.outgoing import Give, Notice, Request
from trunkline.frontends.relay.session import Session
from trunkline.frontends.stdio.pipes import StdioPipes
from trunkline.protocol.jsonrpc import VERSION as BATCH_VERSION
from trunkline.protocol.jsonrpc import (
    BadMessage,
    Message,
    MessageId,
    encode_error,
    error_message,
    is_batch,
    parse_message,
    result_message,
    single_line,
    split_batch,
)
from trunkline.protocol.mcp.methods import CANCELLED, INITIALIZED
from trunkline.protocol.mcp.modern import is_modern
from trunkline.protocol.mcp.notifications import cancelled_id

_MAX_UNREAD_BYTES: Final = 32 * 1024 * 1024
"""What is kept for a client that does not read; more stays with the gateway."""
_MAX_UNSENT_BYTES: Final = 64 * 1024 * 1024
_MAX_NOTICES: Final = 1024
_LISTEN: Final = "subscriptions/listen"


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
        self.mirrored = MirroredArguments(link)
        self.requests: dict[MessageId, Request] = {}
        self._notices: set[Notice] = set()
        self._held_bytes = 0
        self._max_in_flight = max_in_flight
        self._stopped = False
        self.asked = False
        """Whether the client ever asked for anything."""

    async def serve(self) -> None:
        """Until the client closes its end."""
        await self.pipes.serve()
        await self._finish()

    async def _finish(self) -> None:
        """What the client already asked gets some time; what is then still open is answered with an error, and
        cancelled by its session's end or by closing its stream."""
        await self.pipes.finish(self._owed)
        why = "this relay is shutting down" if self._stopped else "the client is gone"
        for request in list(self.requests.values()):
            # a client that only closed its end waits for no answer to a subscription
            answered = self._stopped or request.message.method != _LISTEN
            request.drop(f"Call cancelled: {why}" if answered else "")
        await self.session.close()
        await self.link.close()
        await self.pipes.close()

    def _owed(self) -> bool:
        """Whether an answer is still to come, or a message still to leave; a subscription has no end of its own."""
        return bool(self._notices) or any(request.message.method != _LISTEN for request in self.requests.values())

    def stop(self) -> None:
        """We are to end; what is then still open is answered all the same."""
        self._stopped = True
        self.pipes.hurry()

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
