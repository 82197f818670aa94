"""Requests on their way to a source: what they carry, which states they pass through, how they end.

The rules that everything else relies on:

- A request ends exactly once, with one of four outcomes: `Result`, `RemoteError`, `NeedsInput` or `Failure`.
  `Request.finish` is the only place that sets it; the first outcome wins and later ones are dropped.
- Everything is a callback, and each may run before the function that caused it returns. There is no task per call:
  a call costs about 30 µs, and a task would add a tenth to that (docs/adr/0003).
- JSON passes through as the bytes its author wrote. It is parsed only if something in it has to be looked at.
- A request is `queued` until an upstream session takes it, then `sent`, then `partial` once the server has reported
  progress. Only a queued request has certainly not been executed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol

from trunkline.core.errors import CANCELLED, Executed, Phase, Problem

if TYPE_CHECKING:
    from trunkline.core.server_request import ServerRequest

Json = bytes | memoryview
"""JSON text, often a part of a larger message."""
LF: Final = 0x0A
CR: Final = 0x0D
"""As numbers: searching bytes for an integer takes an eighth of the time of searching for bytes."""

QUEUED: Final[Phase] = "queued"
SENT: Final[Phase] = "sent"
PARTIAL: Final[Phase] = "partial"

PROGRESS: Final = "notifications/progress"
STREAM_CLOSED: Final = "trunkline/stream-closed"
"""An internal notification: the server closed the response stream before the end and will be polled for the rest."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The client a call is made for.

    `session` is None for callers without one. `capabilities` are those that servers may use of this client.
    `log_level` is the least severe log message it wants, empty if it never set one. `version` is its protocol version.
    """

    principal: str = "local"
    session: str | None = None
    client: str = ""
    capabilities: bytes = b"{}"
    log_level: str = ""
    version: str = ""


# -- outcomes ---------------------------------------------------------------------------------------------------------
# Not frozen: creating a frozen dataclass takes half a microsecond longer, and every call creates one.


@dataclass(slots=True)
class Result:
    """The server's `result` object, byte for byte. A tool that failed is a result too (`isError`).

    `message` is the whole message that `raw` is a view of, if there is one: searching it is cheaper than searching a
    view.
    """

    raw: Json
    message: bytes | None = None

    @property
    def single_line(self) -> bool:
        """Whether the result is known to contain neither CR nor LF; transports that frame by lines ask."""
        message = self.message
        return message is not None and CR not in message and LF not in message


@dataclass(slots=True)
class Cached(Result):
    """A result from the cache; the server was not called."""


@dataclass(slots=True)
class RemoteError:
    """The server's JSON-RPC `error` object, passed on with code, message and data unchanged."""

    raw: Json


@dataclass(slots=True)
class NeedsInput:
    """An `input_required` result, byte for byte: the server needs something from the client before it can go on."""

    raw: Json


@dataclass(slots=True)
class Failure:
    """The gateway failed the call; `problem` says why, and whether the tool may have run."""

    problem: Problem


Outcome = Result | RemoteError | NeedsInput | Failure


# -- requests ---------------------------------------------------------------------------------------------------------


class Upstream(Protocol):
    """Whatever holds a request on its way to the server: a queue, or the connection it was sent on."""

    def abandon(self, request: Request, /) -> None:
        """Nobody waits for the response any more: drop the request, and cancel it at the server if it was sent."""
        ...

    def phase_of(self, request: Request, /) -> Phase: ...


class Request:
    """A method with its raw parameters, to be finished exactly once.

    `params` is one JSON object without `_meta`. `meta` has the members of `_meta` that are passed on, which excludes
    those that belong to one hop, such as the progress token. `on_done` takes the request once `outcome` is set;
    `on_notification` takes the method and parameters of each notification that belongs to the request.
    """

    __slots__ = (
        "meta",
        "method",
        "on_done",
        "on_notification",
        "outcome",
        "params",
        "upstream",
        "upstream_id",
        "wants_progress",
    )

    def __init__(
        self,
        method: str,
        params: Json,
        on_done: Callable[[Request], None],
        *,
        meta: Mapping[str, Json] | None = None,
    ) -> None:
        self.method = method
        self.params = params
        self.meta = meta
        self.on_done = on_done
        self.on_notification: Callable[[str, Json], None] | None = None
        self.wants_progress = False
        self.outcome: Outcome | None = None
        self.upstream: Upstream | None = None
        self.upstream_id = 0

    @property
    def done(self) -> bool:
        return self.outcome is not None

    @property
    def phase(self) -> Phase:
        return QUEUED if self.upstream is None else self.upstream.phase_of(self)

    @property
    def executed(self) -> Executed:
        return "no" if self.phase == QUEUED else "unknown"

    def notify(self, method: str, params: Json) -> None:
        """Deliver a notification of the server that belongs to this request."""
        if self.on_notification is not None:
            self.on_notification(method, params)

    def finish(self, outcome: Outcome) -> bool:
        """Set the outcome. Returns False, and does nothing, if there is one already."""
        if self.outcome is not None:
            return False
        self.outcome = outcome
        self.on_done(self)
        return True

    def give_up(self, outcome: Outcome) -> bool:
        """Finish the request from our side and abandon it upstream. Returns False if it had ended before."""
        upstream = self.upstream
        if not self.finish(outcome):
            return False
        if upstream is not None:
            upstream.abandon(self)
        return True


class AdmissionControl(Protocol):
    """Whatever admitted a call to its source; gets the call back when it has ended."""

    def release(self, call: Call, /) -> None: ...


class Keeper(Protocol):
    """Sees how a call ended before its caller does, to cache the result or to invalidate others."""

    def ended(self, call: Call, /) -> None: ...


class TimerHandle(Protocol):
    """The part of `asyncio.TimerHandle` that is used here; core imports no asyncio."""

    def cancel(self) -> None: ...


class Call(Request):
    """A client's request, with the state the router keeps for it.

    `reply` takes the call once it has ended. `on_server_request` takes the requests that its server makes of the client
    meanwhile; it is None if the client cannot be asked. While `open_server_requests` is not zero the deadline rests;
    `paused_s` is for how long it has. `sent_server_request` stays set, because the result then depends on the client's
    answer and must not be cached. `headers` are sent beside the body to an HTTP server.
    """

    __slots__ = (
        "admission",
        "admitted",
        "caller",
        "headers",
        "keeper",
        "on_server_request",
        "open_server_requests",
        "paused_s",
        "progressed_at",
        "reply",
        "retried",
        "sent_server_request",
        "source",
        "started_at",
        "timeout_s",
        "timer",
        "tool",
    )

    def __init__(
        self,
        method: str,
        params: Json,
        on_done: Callable[[Request], None],
        *,
        caller: Caller,
        reply: Callable[[Call], None],
        meta: Mapping[str, Json] | None = None,
    ) -> None:
        super().__init__(method, params, on_done, meta=meta)
        self.caller = caller
        self.reply = reply
        self.admitted = False
        self.admission: AdmissionControl | None = None
        self.headers: list[tuple[bytes, bytes]] | None = None
        self.keeper: Keeper | None = None
        self.on_server_request: Callable[[ServerRequest], None] | None = None
        self.open_server_requests = 0
        self.paused_s = 0.0
        self.retried = False
        self.sent_server_request = False
        self.source = ""
        self.tool = ""
        self.timeout_s = 0.0
        self.started_at = 0.0
        self.progressed_at = 0.0
        self.timer: TimerHandle | None = None

    @property
    def phase(self) -> Phase:
        """`partial` once there was progress: the tool has certainly begun to run."""
        phase = super().phase
        return PARTIAL if phase == SENT and self.progressed_at else phase

    def notify(self, method: str, params: Json) -> None:
        if method == PROGRESS:
            self.progressed_at = monotonic()
        super().notify(method, params)

    def server_request_opened(self) -> None:
        """The server asked the client something: the clock stops."""
        if not self.open_server_requests:
            self.paused_s -= monotonic()
        self.sent_server_request = True
        self.open_server_requests += 1

    def server_request_closed(self) -> None:
        """The server can go on: the clock restarts, and counts from now as if there had been progress."""
        self.open_server_requests -= 1
        self.progressed_at = now = monotonic()
        if not self.open_server_requests:
            self.paused_s += now

    def cancel(self, reason: str) -> bool:
        """Give up because the caller no longer wants the response."""
        problem = Problem(
            code=CANCELLED,
            message=f"Call cancelled: {reason}",
            source=self.source,
            tool=self.tool,
            phase=self.phase,
            executed=self.executed,
        )
        return self.give_up(Failure(problem))
