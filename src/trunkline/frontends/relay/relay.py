"""The relay between a stdio client and a running gateway: each message passes unchanged, in both directions.

Even if the gateway goes away, every request of the client is answered once, unless the client cancelled it.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any, Final, cast

from trunkline.config.secret_detection import secrets_in
from trunkline.config.settings import GatewaySettings, Settings
from trunkline.core.errors import CANCELLED as CALL_CANCELLED
from trunkline.core.errors import CLIENT_LIMIT, INVALID_REQUEST, GatewayError, Problem
from trunkline.core.events import Events, Level
from trunkline.frontends.mcp.batches import ArrayBatchTransport, Batch, read_line
from trunkline.frontends.relay.gateway import GatewayHttp, GatewayReply, check_target
from trunkline.frontends.relay.messages import (
    HeaderParameters,
    is_progress,
    kind_of,
    problem_message,
    request_headers,
    response_in,
    version_in,
)
from trunkline.frontends.relay.session import RelayedSession
from trunkline.frontends.stdio.transport import StdioTransport
from trunkline.protocol.jsonrpc import (
    BadMessage,
    Message,
    MessageId,
    encode_error,
    error_message,
    result_message,
    single_line,
)
from trunkline.protocol.mcp.methods import (
    INITIALIZE,
    NOTIFICATIONS_CANCELLED,
    NOTIFICATIONS_INITIALIZED,
    PING,
    SUBSCRIPTIONS_LISTEN,
)
from trunkline.protocol.mcp.modern import is_modern
from trunkline.protocol.mcp.notifications import cancelled_id
from trunkline.runtime.http_client import HttpTarget
from trunkline.runtime.process_setup import keep_large_buffers, unignored_signals
from trunkline.runtime.safe_callbacks import internal_problem
from trunkline.telemetry.call_log import CallLog, LogFormat
from trunkline.telemetry.redaction import Redactor

INTERRUPTED: Final = 130
NEVER_SERVED: Final = 1
_DEFAULT_IN_FLIGHT: Final = 1024
_MAX_BESIDE_CALLS: Final = 64
"""Requests in flight beyond the calls that the gateway allows: lists and subscriptions are not calls."""
_LISTS: Final = 4
"""A list of all servers' tools may be larger than any one message of theirs."""
_MAX_UNREAD_BYTES: Final = 32 * 1024 * 1024
"""What is kept for a client that does not read; more stays with the gateway."""
_MAX_UNSENT_BYTES: Final = 64 * 1024 * 1024
_MAX_NOTIFICATIONS: Final = 1024
_MAX_FAILED_RESUMES: Final = 5
"""How often in a row a stream is resumed without receiving anything."""
_CANCEL_AGAIN_S: Final = 1.0

Respond = Callable[[bytes | None], None]
"""Takes the response to a request; None if it gets none."""


async def attach(target: HttpTarget, *, token: str = "", settings: Settings | None = None, how: str = "") -> int:
    """Serve the client on standard input and output through a running gateway; returns the exit status.

    `settings` are those of the gateway if they are known; `how` is added to the log line.
    A gateway that cannot be reached is no reason to exit: the client gets an error for its first request. Clients show
    that to people, but neither stderr nor exit statuses.
    """
    check_target(target, token)
    known = GatewaySettings() if settings is None else settings.gateway
    limits, events = known.limits, Events()
    log = CallLog(
        level=cast(Level, known.log.level),
        format=cast(LogFormat, known.log.format),
        redactor=Redactor(secrets_in("token", token)),
    )
    log.attach(events)
    max_in_flight = (_DEFAULT_IN_FLIGHT if settings is None else limits.in_flight_per_client) + _MAX_BESIDE_CALLS
    # a gateway whose settings are not known here refuses by itself what is too large
    limit_bytes = limits.message_bytes if settings is None else limits.request_bytes
    gateway = GatewayHttp(
        target, token=token, limit_bytes=_LISTS * limits.message_bytes, max_in_flight=max_in_flight, events=events
    )
    relay = Relay(gateway, events, limit_bytes=limit_bytes, max_in_flight=max_in_flight)
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(relay.log_stray_error)
    for number in unignored_signals(signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, relay.stop, number)
    loop.add_signal_handler(signal.SIGHUP, relay.ignore_sighup)
    keep_large_buffers()
    events.note("info", "attached", f"Relaying to the gateway at {gateway.where}{how}")
    try:
        await relay.serve()
    finally:
        log.close()
    if relay.stopped_with is not None:
        return relay.stopped_with
    return 0 if gateway.served or not relay.had_request else NEVER_SERVED


class Relay:
    """The client's side: its lines, its requests in flight, and what it is sent."""

    def __init__(
        self,
        gateway: GatewayHttp,
        events: Events,
        *,
        limit_bytes: int,
        max_in_flight: int,
        stdin_fd: int = 0,
        stdout_fd: int = 1,
    ) -> None:
        self.gateway = gateway
        self.events = events
        self.transport = StdioTransport(self, limit_bytes=limit_bytes, stdin_fd=stdin_fd, stdout_fd=stdout_fd)
        self.send = self.transport.write
        self.session = RelayedSession(gateway, self.send)
        self.header_parameters = HeaderParameters(gateway)
        self.requests: dict[MessageId, RelayedRequest] = {}
        self.had_request = False
        """Whether the client has ever sent a request."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._notifications = 0
        self._held_bytes = 0
        self._max_in_flight = max_in_flight
        self.stopped_with: int | None = None
        """The exit status that a signal asked for."""
        self._loop = asyncio.get_running_loop()

    async def serve(self) -> None:
        """Serve until the client closes its end."""
        await self.transport.serve()
        await self._finish()

    async def _finish(self) -> None:
        """Give requests in flight some time; what is then still open is answered with an error and cancelled."""
        await self.transport.finish(self._has_pending)
        was_stopped = self.stopped_with is not None
        why = "this relay is shutting down" if was_stopped else "the client is gone"
        for request in list(self.requests.values()):
            # a client that only closed its end expects no response to a subscription
            answered = was_stopped or request.message.method != SUBSCRIPTIONS_LISTEN
            request.end(f"Call cancelled: {why}" if answered else "")
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self.session.close()
        await self.gateway.close()
        await self.transport.close()

    def _has_pending(self) -> bool:
        """Whether a response or an unsent message is pending; a subscription has no end of its own."""
        return self._notifications > 0 or any(
            request.message.method != SUBSCRIPTIONS_LISTEN for request in self.requests.values()
        )

    def stop(self, number: int) -> None:
        """The first signal asks for an orderly end, in which everything is answered; another one ends at once."""
        if self.stopped_with is not None:
            os._exit(INTERRUPTED)
        self.stopped_with = INTERRUPTED if number == signal.SIGINT else 0
        self.transport.hurry()

    def ignore_sighup(self) -> None:
        """Ignore SIGHUP: a client that is gone closes standard input too, and there is nothing to reload."""
        self.events.note("info", "no_reload", "SIGHUP: the gateway, not this relay, has a configuration to reload")

    def log_stray_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log an exception that nothing handled, in one line, and go on."""
        error = context.get("exception")
        detail = f"{type(error).__name__}: {error}" if error is not None else ""
        self.events.note("error", "internal", f"{context.get('message', 'stray error')} {detail}".strip())

    def internal(self, error: Exception) -> Problem:
        """Log a bug of ours, which costs one message only, and return its problem."""
        self.events.note("error", "internal", f"{type(error).__name__}: {error}")
        return internal_problem()

    def start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run this beside everything else, at most until the relay ends."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def unread(self, size_bytes: int) -> None:
        if size_bytes > _MAX_UNREAD_BYTES:
            self.gateway.read(False)

    def room(self) -> None:
        self.gateway.read(True)

    # -- from the client ------------------------------------------------------------------------------------------

    def line(self, line: bytes) -> None:
        try:
            message = read_line(line, self.gateway.version)
        except BadMessage as error:
            self.send(error_message(error.id_json, encode_error(error.problem)))
            return
        if not isinstance(message, list):
            self._take(line, message, None)
            return
        transport = ArrayBatchTransport(self.send, self.send, lambda _: False)  # each request is relayed by itself
        batch = Batch(transport)
        for text in message:
            member = batch.read(text)
            if member is not None:
                self._take(single_line(text), member, batch)
        batch.ended(None)

    def _take(self, line: bytes, message: Message, batch: Batch | None) -> None:
        if message.method is not None and message.id is not None:
            respond = self._respond if batch is None else batch.ended
            if batch is not None:
                batch.expect()
            try:
                self._request(line, message, message.id, respond)
            except Exception as error:
                self.requests.pop(message.id, None)
                respond(problem_message(message, self.internal(error)))
        elif message.method == NOTIFICATIONS_CANCELLED:
            self._cancel(line, cancelled_id(message))
        elif self.session.exists and not is_modern(message):  # without a session it could concern nobody
            if message.method == NOTIFICATIONS_INITIALIZED:
                self.session.initialized(line)
            self.notify(line)

    def _request(self, line: bytes, message: Message, request_id: MessageId, respond: Respond) -> None:
        self.had_request = True
        if message.method == PING and not self.session.exists and not is_modern(message):
            # Allowed before the handshake; over HTTP there is no session for it yet.
            respond(result_message(message.id_json, b"{}"))
            return
        problem = self._too_much(request_id)
        if problem is not None:
            respond(problem_message(message, problem))
            return
        request = self.requests[request_id] = RelayedRequest(self, line, message, respond)
        self._hold(len(line))
        if request.opens_session:
            self.session.opening(line, message)

    def _respond(self, response: bytes | None) -> None:
        if response is not None:
            self.send(response)

    def _too_much(self, request_id: MessageId) -> Problem | None:
        if request_id in self.requests:
            return Problem(code=INVALID_REQUEST, message="A request with this `id` is still in flight")
        if len(self.requests) >= self._max_in_flight:
            message = f"More than {self._max_in_flight} requests in flight"
            return Problem(code=CLIENT_LIMIT, message=message, retryable=True, retry_after_ms=1000)
        return None

    def request_over(self, request: RelayedRequest) -> None:
        if request.message.id is not None and self.requests.get(request.message.id) is request:
            del self.requests[request.message.id]
            self._hold(-len(request.line))

    # -- notifications, and responses of the client ---------------------------------------------------------------

    def notify(self, line: bytes) -> None:
        """Send a message that has no response."""
        self._notifications += 1
        self._hold(len(line))
        self.start(self._notify(line))

    async def _notify(self, line: bytes) -> None:
        try:
            await self.session.ready()
            session_id = self.gateway.session_id
            reply = self.gateway.notify(line)
            await reply.wait()
        except GatewayError:
            return  # logged where the session was to be opened again
        finally:
            self._notifications -= 1
            self._hold(-len(line))
        if reply.status == 404:
            self.session.gone(session_id)
        elif reply.error:
            self.gateway.failed(self.gateway.unreachable(reply.error, sent=False))

    def _cancel(self, line: bytes, request_id: MessageId | None) -> None:
        request = None if request_id is None else self.requests.get(request_id)
        reply = None if request is None else request.cancel()
        if request is not None and reply is not None:
            self.start(self._cancel_until_over(line, request, reply))

    async def _cancel_until_over(self, line: bytes, request: RelayedRequest, reply: GatewayReply) -> None:
        """Send a cancellation until it takes effect: on another connection it can overtake its request."""
        while True:
            self.notify(line)
            await asyncio.sleep(_CANCEL_AGAIN_S)
            if reply.over or request.message.id in self.requests:
                return

    def _hold(self, size: int) -> None:
        """A client that sends faster than the gateway takes has to wait."""
        self._held_bytes += size
        self.transport.hold(self._held_bytes > _MAX_UNSENT_BYTES or self._notifications > _MAX_NOTIFICATIONS)


class RelayedRequest:
    """A request of the client, from its line to its response."""

    __slots__ = ("_relay", "_reply", "_respond", "_session_id", "_task", "_was_resumed", "line", "message", "modern")

    def __init__(self, relay: Relay, line: bytes, message: Message, respond: Respond) -> None:
        self.line = line
        self.message = message
        self.modern = is_modern(message)
        self._relay = relay
        self._respond = respond
        self._reply: GatewayReply | None = None
        self._session_id = b""
        self._was_resumed = False
        self._task = relay.start(self._serve())

    @property
    def opens_session(self) -> bool:
        return self.message.method == INITIALIZE and not self.modern

    async def _serve(self) -> None:
        relay = self._relay
        try:
            answer = await self._ask()
        except GatewayError as error:
            answer = problem_message(self.message, error.problem)
        except Exception as error:
            answer = problem_message(self.message, relay.internal(error))
        relay.request_over(self)
        self._respond(answer)
        if self.opens_session:
            relay.session.opened(b"" if self._reply is None else self._reply.session_id, version_in(answer))

    async def _ask(self) -> bytes:
        """The gateway's response. Raises GatewayError if there is none."""
        relay, gateway = self._relay, self._relay.gateway
        reply = await self._send()
        if reply.status == 404 and self._session_id:
            relay.session.gone(self._session_id)  # nothing that was sent in it ran, so it can be sent again
            reply = await self._send()
        elif self.modern and relay.header_parameters.are_missing(self.message, reply.status, reply.body):
            await relay.header_parameters.learn(self.message)
            reply = await self._send()
        if not self.modern:
            reply = await self._resume(reply)
        if reply.answer:
            reply.release()
            return reply.answer
        answer = None if reply.error or reply.streamed or reply.status == 401 else response_in(reply.body, self.message)
        if answer is None:
            problem = reply.problem(sent=self._was_resumed or reply.written)
            if not reply.too_large:
                gateway.failed(problem)
            raise GatewayError(problem)
        gateway.answered()
        return answer

    async def _send(self) -> GatewayReply:
        relay, gateway = self._relay, self._relay.gateway
        if self.opens_session:
            reply = gateway.handshake(self.line, self._on_event)
        elif self.modern:
            headers = [*request_headers(self.message), *relay.header_parameters.headers(self.message)]
            reply = gateway.post(self.line, self._on_event, headers)
        else:
            self._reply = None
            await relay.session.ready()
            self._session_id = gateway.session_id
            reply = gateway.post(self.line, self._on_event)
        self._reply = reply
        await reply.wait()
        return reply

    async def _resume(self, reply: GatewayReply) -> GatewayReply:
        """Resume a stream that ended before the response, from its last event on; returns the last HTTP response.

        The request has begun, so it is never sent again.
        """
        gateway = self._relay.gateway
        last_event_id, pause_s, failures = b"", 0.0, 0
        while not (reply.answer or reply.too_large or reply.malformed):
            if reply.streamed:
                last_event_id, pause_s, failures = reply.last_event_id or last_event_id, reply.retry_s, 0
            elif reply.status:
                break
            failures += 1
            if not last_event_id or gateway.session_id != self._session_id or failures > _MAX_FAILED_RESUMES:
                return reply
            await asyncio.sleep(pause_s)
            self._was_resumed = True
            reply = self._reply = gateway.open_stream(self._on_event, last_event_id)
            await reply.wait()
        if self._was_resumed and reply.status and not reply.streamed:
            if reply.status == 404:
                self._relay.session.gone(self._session_id)
            reason = f"it does not know this request any more (HTTP {reply.status})"
            raise GatewayError(gateway.unreachable(reason, sent=True))
        return reply

    def _on_event(self, data: bytes) -> None:
        relay = self._relay
        kind = kind_of(data, self.message.id)
        if kind == "response" and self._reply is not None:
            relay.gateway.answered()
            self._reply.settle(single_line(data))
        elif kind == "notification" and not (is_progress(data) and relay.transport.backlogged):
            relay.send(single_line(data))

    def cancel(self) -> GatewayReply | None:
        """Cancel it for the client, but for a handshake.

        What was not sent yet is not sent, and a modern request is cancelled by closing its stream. A legacy one has to
        be cancelled by the client's own message: only then its reply is returned.
        """
        if self.opens_session:
            return None
        reply = self._close()
        self._respond(None)
        if reply is None:
            return None
        if self.modern or not reply.written:
            reply.drop()
            return None
        reply.settle()
        reply.release()
        return reply

    def end(self, why: str) -> None:
        """End it because the relay ends; with a reason the client gets an error."""
        reply = self._close()
        if reply is not None:
            reply.drop()
        if why:
            was_sent = self._was_resumed or (reply is not None and reply.written)
            problem = Problem(
                code=CALL_CANCELLED,
                message=why,
                phase="sent" if was_sent else "queued",
                executed="unknown" if was_sent else "no",
            )
            self._respond(problem_message(self.message, problem))

    def _close(self) -> GatewayReply | None:
        self._task.cancel()
        self._relay.request_over(self)
        return self._reply
