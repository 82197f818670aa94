"""One request on its way to a source, and the ways it can end.

The core is callback-shaped on purpose: a call costs about 30 µs, and a task per call would add a tenth to that
(docs/adr/0003). `Request.finish` is the single place where an outcome is set, so every call ends exactly once.
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
"""JSON text. Results travel as the bytes their server wrote."""
LF: Final = 0x0A
CR: Final = 0x0D
"""As numbers: looking for one of these in bytes takes an eighth of the time that looking for bytes in bytes does."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks. `session` is None for callers without one; `capabilities` is what a source may ask of this client.

    `log_level` is the least severe log message it wants, empty where it never said. `version` is the protocol version
    that it speaks.
    """

    principal: str = "local"
    session: str | None = None
    client: str = ""
    capabilities: bytes = b"{}"
    log_level: str = ""
    version: str = ""


# The outcomes are not frozen: a frozen dataclass costs half a microsecond more to make, on every call.


@dataclass(slots=True)
class Result:
    """The source's `result` object, byte for byte. A tool that failed is a result too (`isError`).

    `message` is the text that `raw` is a part of, where there is one: it is cheaper to look through than a view.
    """

    raw: Json
    message: bytes | None = None

    @property
    def single_line(self) -> bool:
        """Whether it is known to be without CR and LF; only doors that frame by lines need to ask."""
        message = self.message
        return message is not None and CR not in message and LF not in message


@dataclass(slots=True)
class Cached(Result):
    """A result that was given before: its server was not asked again."""


@dataclass(slots=True)
class RemoteError:
    """The source's own JSON-RPC `error` object: it passes with code, message and data unchanged."""

    raw: Json


@dataclass(slots=True)
class Failure:
    """The call failed on our side of the source; `problem` says whether the tool may have run."""

    problem: Problem


@dataclass(slots=True)
class NeedsInput:
    """The source asks the client something before it can go on (an `input_required` result, byte for byte)."""

    raw: Json


Outcome = Result | RemoteError | Failure | NeedsInput

QUEUED: Final[Phase] = "queued"
SENT: Final[Phase] = "sent"
PARTIAL: Final[Phase] = "partial"
PROGRESS: Final = "notifications/progress"
STREAM_CLOSED: Final = "trunkline/stream-closed"
"""A notice between our own parts: the server closed the stream of a request in the middle and is asked again later."""


class Upstream(Protocol):
    """Whatever took a request to its server, and can be told that nobody waits for the answer any more."""

    def abandon(self, request: Request, /) -> None: ...
    def phase_of(self, request: Request, /) -> Phase: ...


class Request:
    """A method and its raw parameters, answered exactly once.

    `params` is one JSON object without `_meta`; `meta` holds the members of `_meta` that travel on (never those that
    belong to one hop, like the progress token). `on_notification` receives notifications that belong to this request.
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
        """A notification of the server that belongs to this request."""
        if self.on_notification is not None:
            self.on_notification(method, params)

    def finish(self, outcome: Outcome) -> bool:
        """Set the one outcome. False when there is one already: the first wins, the rest is dropped."""
        if self.outcome is not None:
            return False
        self.outcome = outcome
        self.on_done(self)
        return True

    def give_up(self, outcome: Outcome) -> bool:
        """End the request from our side; its server is told that the answer is no longer wanted."""
        upstream = self.upstream
        if not self.finish(outcome):
            return False
        if upstream is not None:
            upstream.abandon(self)
        return True


class AdmissionControl(Protocol):
    """Whatever let a call through to its source, and wants to know when it has ended."""

    def release(self, call: Call, /) -> None: ...


class Keeper(Protocol):
    """Whatever wants to see how a call ended before its caller does, to keep the result or to drop others."""

    def ended(self, call: Call, /) -> None: ...


class Call(Request):
    """A caller's request: what the router adds to a request.

    `on_server_request` takes what the server asks of the client meanwhile, None where the client cannot be asked; while
    `questions` are open the deadline rests, and `paused_s` is how long it did, once none is open. Once it `asked`
    something its result is for that answer alone. `headers` are those that an HTTP server wants to see beside the body.
    """

    __slots__ = (
        "admission",
        "admitted",
        "asked_client",
        "caller",
        "headers",
        "keeper",
        "on_server_request",
        "open_server_requests",
        "paused_s",
        "progressed_at",
        "reply",
        "retried",
        "source",
        "started_at",
        "timeout",
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
        self.asked_client = False
        self.admission: AdmissionControl | None = None
        self.headers: list[tuple[bytes, bytes]] | None = None
        self.keeper: Keeper | None = None
        self.on_server_request: Callable[[ServerRequest], None] | None = None
        self.open_server_requests = 0
        self.paused_s = 0.0
        self.retried = False
        self.source = ""
        self.tool = ""
        self.timeout = 0.0
        self.started_at = 0.0
        self.progressed_at = 0.0
        self.timer: TimerHandle | None = None

    @property
    def phase(self) -> Phase:
        """`partial` once the tool has shown progress: then it has certainly begun to run."""
        phase = super().phase
        return PARTIAL if phase == SENT and self.progressed_at else phase

    def notify(self, method: str, params: Json) -> None:
        if method == PROGRESS:
            self.progressed_at = monotonic()
        super().notify(method, params)

    def server_request_opened(self) -> None:
        """Its server asks the client something, and rests meanwhile."""
        if not self.open_server_requests:
            self.paused_s -= monotonic()
        self.asked_client = True
        self.open_server_requests += 1

    def server_request_closed(self) -> None:
        """Its server can go on, and has its whole time for that."""
        self.open_server_requests -= 1
        self.progressed_at = now = monotonic()
        if not self.open_server_requests:
            self.paused_s += now

    def cancel(self, why: str) -> bool:
        """The caller no longer wants the answer."""
        problem = Problem(
            code=CANCELLED,
            message=f"Call cancelled: {why}",
            source=self.source,
            tool=self.tool,
            phase=self.phase,
            executed=self.executed,
        )
        return self.give_up(Failure(problem))


class TimerHandle(Protocol):
    def cancel(self) -> None: ...
