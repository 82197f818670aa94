"""One connection of an app: its lines, the calls that are open on it, and its end.

Many calls are open at once and matched by id. Whatever an app sends (junk, strange ids, broken answers) costs at most
the call it belongs to; what is written in one turn of the loop leaves in one write.
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

# What apps do wrong without harm: counted each time, logged now and then.

_QUIET_S: Final = 10.0


class LogSink(Protocol):
    """The part of a sink that complaints go to."""

    def note(self, level: Level, message: str, /) -> None: ...
    def count(self, counter: str, amount: int = 1, /) -> None: ...


class ThrottledLog:
    """A flood of one kind of thing gives one line in the log every few seconds, which says how many there were."""

    def __init__(self, hearer: LogSink, clock: Callable[[], float] = monotonic) -> None:
        self.hearer = hearer
        self._clock = clock
        self._quiet_until: dict[str, float] = {}
        self._unsaid: dict[str, int] = {}

    def add(self, counter: str, message: str) -> None:
        self.hearer.count(counter)
        now = self._clock()
        if now < self._quiet_until.get(counter, now):
            self._unsaid[counter] = self._unsaid.get(counter, 0) + 1
            return
        self._quiet_until[counter] = now + _QUIET_S
        unsaid = self._unsaid.pop(counter, 0)
        more = f" ({unsaid} more like this since the last line about it)" if unsaid else ""
        self.hearer.note("warning", message + more)


_correlation_ids: Final = itertools.count(1)
"""For all apps of this process: an answer that comes after its app has dialled again can be nobody else's."""
_UNREAD_BYTES: Final = 1024 * 1024
"""What an app may leave unread before its calls are refused."""
_CLOSE_S: Final = 2.0
_REGISTER_REST_S: Final = 0.01
_LONGEST_REST_S: Final = 5.0
_KEEPALIVE: Final = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))


class ConnectionHandler(Protocol):
    """Whoever is told what a connection says beyond its calls, and what becomes of it."""

    def dialled(self, link: AppConnection, /) -> None: ...
    def holds(self, link: AppConnection, /) -> None:
        """A connection that has not registered keeps bytes of a line that has not ended."""
        ...

    def heard_early(self, link: AppConnection, line: bytes, /) -> None:
        """A line before `register` that is something else."""
        ...

    def asked_to_register(self, link: AppConnection, message: Registration, /) -> None: ...
    def asked_badly(self, link: AppConnection, wrong: BadRegistration, /) -> None: ...
    def left(self, link: AppConnection, /) -> None:
        """It carries no more calls; those that are open fail next."""
        ...

    def closed(self, link: AppConnection, /) -> None:
        """Nothing of it is left."""
        ...


class AppConnection(asyncio.Protocol):
    """`server` is the name of the server it belongs to, empty until the app has registered."""

    def __init__(
        self, reception: ConnectionHandler, complaints: ThrottledLog, limit_bytes: int, unfinished: UnfinishedBytes
    ) -> None:
        self.server = ""
        self.complaints = complaints
        self.pending: dict[int, Call] = {}
        self._reception = reception
        self._limit_bytes = limit_bytes
        self._framer = LineFramer(limit_bytes)
        self._unfinished = unfinished
        self._held_bytes = 0
        self._out: list[bytes] = []
        self._full = False
        self._over = False
        self._answers = 0
        self._registers = 0
        self._parting: tuple[str, bytes] | None = None
        self._steps: dict[int, int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._fair_reader = FairReader(self._feed, self._read_on, lambda: self._answers)
        self._transport: asyncio.Transport
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        _keep_alive(transport.get_extra_info("socket"))
        self._reception.dialled(self)

    # -- calls out ------------------------------------------------------------------------------------------------

    @property
    def stuffed(self) -> bool:
        """Whether the app has stopped to read."""
        return self._full and self._transport.get_write_buffer_size() > _UNREAD_BYTES

    def send(self, call: Call, tool_json: bytes, parameters: Json) -> None:
        correlation_id = next(_correlation_ids)
        call.upstream_id = correlation_id
        call.upstream = self
        self.pending[correlation_id] = call
        self.write(invocation(correlation_id, tool_json, parameters))

    def abandon(self, request: Request) -> None:
        """Nobody waits for this answer: the app is told, and what may still come is dropped."""
        correlation_id = request.upstream_id
        if self._take(correlation_id) is None:
            return
        self.tell(cancellation(correlation_id))

    def phase_of(self, request: Request) -> Phase:
        return SENT

    def tell(self, line: bytes) -> None:
        """Something that an app can do without, if it does not read."""
        if self.stuffed:
            self.complaints.add("unread_messages_dropped", "the app does not read what it is sent")
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

    # -- lines in -------------------------------------------------------------------------------------------------

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
        if self._framer.buffered_bytes != self._held_bytes:
            self._hold(self._framer.buffered_bytes)
        for line in lines:
            self._received(line)
        if head is not None:
            self._oversized(head)
        if self._registers:
            self._rest()
        if not self.server and not self._over:
            self._reception.holds(self)

    def _hold(self, held_bytes: int) -> None:
        self._held_bytes = held_bytes
        self._unfinished.hold(self, held_bytes)

    def give_way(self) -> None:
        """A line of it that has not ended makes room for others, and nobody can tell where the next would begin."""
        reason = "its message did not end, and too many others do not either (`limits.unfinished_bytes`)"
        self.complaints.add("unfinished_messages", f"the app was cut off: {reason}")
        self.end(SOURCE_LOST, f"the app was cut off because {reason}")

    def _received(self, line: bytes) -> None:
        try:
            message = parse_line(line)
        except BadLine as wrong:
            self._broken(line, wrong)
            return
        except BadRegistration as wrong:
            if not self._over:
                self._reception.asked_badly(self, wrong)
            return
        if type(message) is AppResponse:
            call = self._take(message.correlation_id)
            if call is not None:
                self._answers += 1
                raw = message.result.as_mcp()
                call.finish(Result(raw, raw))
                return
        self._told(line, message)

    def _told(self, line: bytes, message: AppMessage) -> None:
        """Anything but the answer to an open call."""
        if self._over:
            return
        if isinstance(message, Registration):
            self._registers += 1
            self._reception.asked_to_register(self, message)
        elif not self.server:
            self._reception.heard_early(self, line)
        elif isinstance(message, AppProgress):
            self._progressed(message)
        elif isinstance(message, AppResponse):
            what = f"the app answered a call that nobody waits for (correlation id {message.correlation_id})"
            self.complaints.add("unmatched_answers", what)
        else:
            self.complaints.add("noise_lines", "the app sent a message of a type that is not known here")

    def _take(self, correlation_id: int) -> Call | None:
        if self._steps:
            self._steps.pop(correlation_id, None)
        if self._parting:
            self._loop.call_soon(self._end_if_idle)
        return self.pending.pop(correlation_id, None)

    def _progressed(self, message: AppProgress) -> None:
        correlation_id = message.correlation_id
        call = self.pending.get(correlation_id)
        if call is None:
            self.complaints.add("unmatched_progress", "the app shows progress of a call that nobody waits for")
            return
        call.progressed_at = monotonic()
        if call.wants_progress:
            step = 0
            if message.progress is None:
                self._steps[correlation_id] = step = self._steps.get(correlation_id, 0) + 1
            call.notify(PROGRESS, message.as_mcp(step))

    def _broken(self, line: bytes, wrong: BadLine) -> None:
        """A banner costs nothing; a broken answer fails the call whose id it shows."""
        call = None if wrong.correlation_id is None else self._take(wrong.correlation_id)
        if call is not None:
            self.complaints.add("protocol_errors", f"the app's answer to a call cannot be read: {wrong}")
            call.finish(Failure(self._about(self._problem(SOURCE_PROTOCOL, f"the answer is broken: {wrong}"), call)))
        elif self.server:
            self.complaints.add("noise_lines", f"the app sent a line that is no message: {wrong}")
        elif not self._over:
            self._reception.heard_early(self, line)

    def _rest(self) -> None:
        """One who registers again and again is read more slowly."""
        rest_s = (self._registers - 1) * _REGISTER_REST_S
        self._registers = 0
        if rest_s > 0:
            self._fair_reader.rest(min(rest_s, _LONGEST_REST_S))

    def _oversized(self, head: bytes) -> None:
        """Nobody can tell what else is in there, so the app has to begin anew."""
        reason = f"a message is larger than {self._limit_bytes} bytes (`limits.message_bytes`)"
        self.complaints.add("oversized_messages", f"the app was cut off: {reason}")
        correlation_id = readable_id(head)
        call = None if correlation_id is None else self._take(correlation_id)
        if call is None:
            self.end(ANSWER_TOO_LARGE, reason)
        else:
            self.end(SOURCE_LOST, f"the app was cut off because {reason}")
            call.finish(Failure(self._about(self._problem(ANSWER_TOO_LARGE, reason), call)))

    # -- the end --------------------------------------------------------------------------------------------------

    def end(self, code: Code, reason: str, last_words: bytes = b"") -> None:
        """Close it from our side. What was written still leaves, if the app reads it soon."""
        if self._over:
            return
        self._leave(code, reason)
        if last_words:
            self._out.append(last_words)
        self._flush()
        self._transport.close()
        self._timer = self._loop.call_later(_CLOSE_S, self._transport.abort)

    def part(self, reason: str, last_words: bytes) -> None:
        """Close it as soon as no call is open; the app gets no new ones."""
        self._parting = (reason, last_words)
        self._end_if_idle()

    def _end_if_idle(self) -> None:
        if self._parting is not None and not self.pending:
            self.end(SOURCE_LOST, *self._parting)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fair_reader.finish()
        if not self._over:
            self._leave(SOURCE_LOST, "the app disconnected")
        self._stop_timer()
        self._reception.closed(self)

    def _leave(self, code: Code, reason: str) -> None:
        """It counts as gone before anything ends: a call that takes the place of one that ends must not come here."""
        self._over = True
        self._fair_reader.close()
        self._framer.clear()
        self._hold(0)
        self._stop_timer()
        self._reception.left(self)
        problem = self._problem(code, reason)
        pending, self.pending = self.pending, {}
        for call in pending.values():
            call.finish(Failure(self._about(problem, call)))

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _problem(self, code: Code, reason: str) -> Problem:
        return Problem(code=code, message=f"Server {self.server}: {reason}", source=self.server, executed="unknown")

    def _about(self, problem: Problem, call: Call) -> Problem:
        return replace(problem, tool=call.tool, phase=call.phase)


def _keep_alive(connection: socket.socket) -> None:
    """A peer whose machine vanished is noticed, although we only write when there is a call."""
    if connection.family == socket.AF_UNIX:
        return
    with contextlib.suppress(OSError):  # it may be gone already
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE:
            if hasattr(socket, name):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
