"""One connection of an app: its lines, the calls that are open on it, and its end.

Many calls are open at once and matched by id. Whatever an app sends (junk, unknown ids, broken answers) costs at most
the call it belongs to.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
from collections.abc import Callable
from dataclasses import replace
from time import monotonic
from typing import Final, Protocol, cast

from trunkline.core.call import PROGRESS, SENT, Call, Failure, Json, Request, Result
from trunkline.core.errors import ANSWER_TOO_LARGE, SOURCE_LOST, SOURCE_PROTOCOL, Code, Phase, Problem
from trunkline.core.source import Level
from trunkline.core.unfinished_bytes import UnfinishedBytes
from trunkline.protocol.app_messages import (
    AppMessage,
    AppProgress,
    AppResponse,
    BadLine,
    BadRegistration,
    Registration,
    cancellation,
    invocation,
    parse_line,
    readable_id,
)
from trunkline.protocol.framing import LineFramer, LineTooLong
from trunkline.runtime.fair_reading import FairReader

_QUIET_S: Final = 10.0


class LogSink(Protocol):
    """The part of a sink that a throttled log writes to."""

    def note(self, level: Level, message: str, /) -> None: ...
    def count(self, counter: str, amount: int = 1, /) -> None: ...


class ThrottledLog:
    """Counts every event, and logs one line per counter every few seconds with the number of those suppressed."""

    def __init__(self, sink: LogSink, clock: Callable[[], float] = monotonic) -> None:
        self.sink = sink
        self._clock = clock
        self._quiet_until: dict[str, float] = {}
        self._suppressed: dict[str, int] = {}

    def add(self, counter: str, message: str) -> None:
        self.sink.count(counter)
        now = self._clock()
        if now < self._quiet_until.get(counter, now):
            self._suppressed[counter] = self._suppressed.get(counter, 0) + 1
            return
        self._quiet_until[counter] = now + _QUIET_S
        suppressed = self._suppressed.pop(counter, 0)
        more = f" ({suppressed} more like this since the last such line)" if suppressed else ""
        self.sink.note("warning", message + more)


_correlation_ids: Final = itertools.count(1)
"""Unique in this process, so that a late answer matches no call of the app's next connection."""
_UNREAD_BYTES: Final = 1024 * 1024
"""An app that leaves more unread gets no calls."""
_CLOSE_S: Final = 2.0
_REGISTER_REST_S: Final = 0.01
_LONGEST_REST_S: Final = 5.0
_KEEPALIVE: Final = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))


class ConnectionHandler(Protocol):
    """Handles what a connection receives beyond its calls, and its end."""

    def opened(self, connection: AppConnection, /) -> None: ...
    # buffering: after input that did not register, as an incomplete line may be buffered
    def buffering(self, connection: AppConnection, /) -> None: ...
    def unregistered_line(self, connection: AppConnection, line: bytes, /) -> None: ...
    def register(self, connection: AppConnection, message: Registration, /) -> None: ...
    def bad_registration(self, connection: AppConnection, wrong: BadRegistration, /) -> None: ...
    # disconnected: before the open calls fail; no more may be sent
    def disconnected(self, connection: AppConnection, /) -> None: ...
    def closed(self, connection: AppConnection, /) -> None: ...


class AppConnection(asyncio.Protocol):
    """The connection of one app. `server` is the name of its server, empty until it has registered."""

    def __init__(
        self, handler: ConnectionHandler, log: ThrottledLog, limit_bytes: int, unfinished: UnfinishedBytes
    ) -> None:
        self.server = ""
        self.log = log
        self.pending: dict[int, Call] = {}
        self._handler = handler
        self._limit_bytes = limit_bytes
        self._framer = LineFramer(limit_bytes)
        self._unfinished = unfinished
        self._held_bytes = 0
        self._out: list[bytes] = []
        self._full = False
        self._closed = False
        self._answers = 0
        self._registers = 0
        self._closing_reason: tuple[str, bytes] | None = None
        self._steps: dict[int, int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._fair_reader = FairReader(self._feed, self._read_on, lambda: self._answers)
        self._transport: asyncio.Transport
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        _keep_alive(transport.get_extra_info("socket"))
        self._handler.opened(self)

    # -- sending ------------------------------------------------------------------------------------------------------

    @property
    def backed_up(self) -> bool:
        """Whether the app has stopped reading."""
        return self._full and self._transport.get_write_buffer_size() > _UNREAD_BYTES

    def send(self, call: Call, tool_json: bytes, parameters: Json) -> None:
        correlation_id = next(_correlation_ids)
        call.upstream_id = correlation_id
        call.upstream = self
        self.pending[correlation_id] = call
        self.write(invocation(correlation_id, tool_json, parameters))

    def abandon(self, request: Request) -> None:
        """Cancel a call at the app, and drop the answer that may still come."""
        if self._take(request.upstream_id) is not None:
            self.write_droppable(cancellation(request.upstream_id))

    def phase_of(self, request: Request) -> Phase:
        return SENT

    def write_droppable(self, line: bytes) -> None:
        """Send a line that may be dropped while the app does not read."""
        if self.backed_up:
            self.log.add("unread_messages_dropped", "the app does not read what it is sent")
        else:
            self.write(line)

    def write(self, line: bytes) -> None:
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(line)

    def _flush(self) -> None:
        out, self._out = self._out, []
        if out and not self._transport.is_closing():
            out.append(b"")
            self._transport.write(b"\n".join(out))

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False

    # -- receiving ----------------------------------------------------------------------------------------------------

    @property
    def buffered_bytes(self) -> int:
        return self._framer.buffered_bytes

    def data_received(self, data: bytes) -> None:
        self._fair_reader.take(data)

    def _read_on(self, wanted: bool) -> None:
        if self._transport.is_closing():
            return
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _feed(self, data: bytes) -> None:
        head = None
        try:
            lines = self._framer.feed(data)
        except LineTooLong as error:
            lines, head = error.lines, error.head
        buffered_bytes = self._framer.buffered_bytes
        if buffered_bytes != self._held_bytes:
            self._hold(buffered_bytes)
        for line in lines:
            self._received(line)
        if head is not None:
            self._oversized(head)
        if self._registers > 1:  # one that registers again and again is read more slowly
            self._fair_reader.rest(min((self._registers - 1) * _REGISTER_REST_S, _LONGEST_REST_S))
        self._registers = 0
        if not self.server and not self._closed:
            self._handler.buffering(self)

    def _hold(self, held_bytes: int) -> None:
        self._held_bytes = held_bytes
        self._unfinished.hold(self, held_bytes)

    def give_way(self) -> None:
        """Close the connection to free the memory of its incomplete line: where the next one begins cannot be told."""
        reason = "its message is incomplete, and incomplete messages take too much memory (`limits.unfinished_bytes`)"
        self.log.add("unfinished_messages", f"the app was cut off: {reason}")
        self.end(SOURCE_LOST, f"the app was cut off because {reason}")

    def _received(self, line: bytes) -> None:
        try:
            message = parse_line(line)
        except BadLine as wrong:
            self._broken(line, wrong)
            return
        except BadRegistration as wrong:
            if not self._closed:
                self._handler.bad_registration(self, wrong)
            return
        if type(message) is AppResponse:
            call = self._take(message.correlation_id)
            if call is not None:
                self._answers += 1
                raw = message.result.as_mcp()
                call.finish(Result(raw, raw))
                return
        self._on_message(line, message)

    def _on_message(self, line: bytes, message: AppMessage) -> None:
        """Handle anything but the answer to an open call."""
        if self._closed:
            return
        if isinstance(message, Registration):
            self._registers += 1
            self._handler.register(self, message)
        elif not self.server:
            self._handler.unregistered_line(self, line)
        elif isinstance(message, AppProgress):
            self._progressed(message)
        elif isinstance(message, AppResponse):
            what = f"the app answered a call that nobody waits for (correlation id {message.correlation_id})"
            self.log.add("unmatched_answers", what)
        else:
            self.log.add("noise_lines", "the app sent a message of an unknown type")

    def _take(self, correlation_id: int) -> Call | None:
        if self._steps:
            self._steps.pop(correlation_id, None)
        if self._closing_reason:
            self._loop.call_soon(self._end_if_idle)
        return self.pending.pop(correlation_id, None)

    def _progressed(self, message: AppProgress) -> None:
        correlation_id = message.correlation_id
        call = self.pending.get(correlation_id)
        if call is None:
            self.log.add("unmatched_progress", "the app reported progress of a call that nobody waits for")
            return
        call.progressed_at = monotonic()
        if call.wants_progress:
            step = 0
            if message.progress is None:
                self._steps[correlation_id] = step = self._steps.get(correlation_id, 0) + 1
            call.notify(PROGRESS, message.as_mcp(step))

    def _broken(self, line: bytes, wrong: BadLine) -> None:
        """Fail the call whose id a broken answer shows; log other noise."""
        call = None if wrong.correlation_id is None else self._take(wrong.correlation_id)
        if call is not None:
            self.log.add("protocol_errors", f"the app's answer to a call cannot be read: {wrong}")
            call.finish(Failure(self._about(self._problem(SOURCE_PROTOCOL, f"the answer is broken: {wrong}"), call)))
        elif self.server:
            self.log.add("noise_lines", f"the app sent a line that is no message: {wrong}")
        elif not self._closed:
            self._handler.unregistered_line(self, line)

    def _oversized(self, head: bytes) -> None:
        """Close the connection: nobody can tell what else is in an oversized message."""
        reason = f"a message is larger than {self._limit_bytes} bytes (`limits.message_bytes`)"
        self.log.add("oversized_messages", f"the app was cut off: {reason}")
        correlation_id = readable_id(head)
        call = None if correlation_id is None else self._take(correlation_id)
        if call is None:
            self.end(ANSWER_TOO_LARGE, reason)
        else:
            self.end(SOURCE_LOST, f"the app was cut off because {reason}")
            call.finish(Failure(self._about(self._problem(ANSWER_TOO_LARGE, reason), call)))

    # -- closing ------------------------------------------------------------------------------------------------------

    def end(self, code: Code, reason: str, last_line: bytes = b"") -> None:
        """Close the connection. What was written is still sent, if the app reads it soon."""
        if self._closed:
            return
        self._fail_calls(code, reason)
        if last_line:
            self._out.append(last_line)
        self._flush()
        self._transport.close()
        self._timer = self._loop.call_later(_CLOSE_S, self._transport.abort)

    def end_when_idle(self, reason: str, last_line: bytes) -> None:
        """Close the connection as soon as no call is open."""
        self._closing_reason = (reason, last_line)
        self._end_if_idle()

    def _end_if_idle(self) -> None:
        if self._closing_reason is not None and not self.pending:
            self.end(SOURCE_LOST, *self._closing_reason)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fair_reader.finish()
        if not self._closed:
            self._fail_calls(SOURCE_LOST, "the app disconnected")
        if self._timer is not None:
            self._timer.cancel()
        self._handler.closed(self)

    def _fail_calls(self, code: Code, reason: str) -> None:
        """Fail all calls. It counts as gone before that: a call that follows one of them must not come here."""
        self._closed = True
        self._fair_reader.close()
        self._framer.clear()
        self._hold(0)
        self._handler.disconnected(self)
        problem = self._problem(code, reason)
        pending, self.pending = self.pending, {}
        for call in pending.values():
            call.finish(Failure(self._about(problem, call)))

    def _problem(self, code: Code, reason: str) -> Problem:
        return Problem(code=code, message=f"Server {self.server}: {reason}", source=self.server, executed="unknown")

    def _about(self, problem: Problem, call: Call) -> Problem:
        return replace(problem, tool=call.tool, phase=call.phase)


def _keep_alive(connection: socket.socket) -> None:
    """Enable TCP keepalive: we write only when there is a call, and a peer may vanish in between."""
    if connection.family == socket.AF_UNIX:
        return
    with contextlib.suppress(OSError):  # it may be gone already
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE:
            if hasattr(socket, name):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
