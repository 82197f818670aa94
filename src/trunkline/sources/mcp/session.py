"""One MCP session with one server, over any transport: requests by id, notifications, and the end of the session.

Many requests are in flight at once and matched by id. Whatever a server sends (noise, unknown ids, broken JSON) costs
at most the one request it belongs to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from time import monotonic
from typing import ClassVar, Final

import msgspec
from msgspec import UNSET

from trunkline.core.call import (
    PROGRESS,
    SENT,
    STREAM_CLOSED,
    Call,
    Failure,
    Json,
    NeedsInput,
    Outcome,
    RemoteError,
    Request,
    Result,
)
from trunkline.core.errors import (
    CANCELLED,
    SOURCE_AUTH_REQUIRED,
    SOURCE_LOST,
    SOURCE_PROTOCOL,
    Code,
    GatewayError,
    Phase,
    Problem,
)
from trunkline.protocol.jsonrpc import (
    ServerMessage,
    decode_batch,
    decode_server_message,
    encode_notification,
    encode_request,
    readable_id,
    replace_lone_surrogates,
)
from trunkline.protocol.mcp.methods import (
    INITIALIZE,
    NOTIFICATIONS_CANCELLED,
    NOTIFICATIONS_RESOURCES_UPDATED,
    NOTIFICATIONS_SUBSCRIPTIONS_ACKNOWLEDGED,
    NOTIFICATIONS_TASKS,
    SERVER_DISCOVER,
)
from trunkline.protocol.mcp.versions import InitializeResult
from trunkline.runtime.child_io import head_text
from trunkline.runtime.deadlines import Deadline, settle
from trunkline.runtime.safe_callbacks import call_safely
from trunkline.sources.mcp.server_requests import (
    ESCAPED,
    INPUT_MARK,
    TASK_MARK,
    ServerRequests,
    wrong_with_input,
    wrong_with_task,
)

Count = Callable[[str], None]
_OPEN_BRACE: Final = 0x7B
_SPACE: Final = b" \t\r\n"
_EXCERPT_BYTES: Final = 2048
_SHOWN_CHARACTERS: Final = 300
_MAX_BATCH: Final = 1_000
_MAX_BATCH_BYTES: Final = 1 << 20
"""Nobody else is served while an array is read, and there are never that many answers to give."""
_LINGERS_S: Final = 5.0
"""How long a server may go on with an abandoned call; until then no notification is attributed to another call."""
_NEVER_CANCELLED: Final = frozenset({INITIALIZE, SERVER_DISCOVER})
LISTS_CHANGED: Final = frozenset(f"notifications/{kind}/list_changed" for kind in ("tools", "prompts", "resources"))
SESSION_NOTIFICATIONS: Final = LISTS_CHANGED | {
    NOTIFICATIONS_RESOURCES_UPDATED,
    NOTIFICATIONS_SUBSCRIPTIONS_ACKNOWLEDGED,
    NOTIFICATIONS_TASKS,
    NOTIFICATIONS_CANCELLED,
}
"""What concerns the session as a whole, whichever calls are in flight."""


class UpstreamSession:
    """What all transports share. A transport provides `_write` and calls `received` and `lose`.

    `server` is known once the session is initialized. `meta_for` gives the `_meta` members of one request, where they
    depend on its caller. A session is `mixed` once it has carried calls of more than one principal; a server that
    `has_tasks` may answer with a task. `waiting_calls` will be sent here next: the server's requests may be for them.
    `redact` removes secrets from what the server says.
    """

    is_process: ClassVar[bool] = False
    """Whether its server is a process of ours, which runs as long as the session is not lost."""

    def __init__(self, source: str, count: Count) -> None:
        self.source = source
        self.server: InitializeResult
        self.modern = False
        self.has_tasks = False
        self.request_meta = b""
        self.meta_for: Callable[[Request], bytes] | None = None
        self.subscription_count = 0
        self.redact: Callable[[str], str] = str
        self.principal = ""
        self.mixed = False
        self.served = 0
        self.pending: dict[int, Request] = {}
        self.waiting_calls: Iterable[Call] = ()
        self.server_requests = ServerRequests(source, self._write_answer, count)
        self.on_notification: Callable[[str, Json], None] = _ignore
        self.lost: asyncio.Future[Problem] = asyncio.get_running_loop().create_future()
        self._count = count
        self._next_id = 0
        self._shared = False
        self._abandoned: dict[int, float] = {}

    # -- sending ------------------------------------------------------------------------------------------------------

    def send(self, request: Request) -> None:
        meta = self.request_meta if self.meta_for is None else self.meta_for(request)
        self._next_id = upstream_id = self._next_id + 1
        request.upstream_id = upstream_id
        request.upstream = self
        self.pending[upstream_id] = request
        self._write(request, encode_request(request, upstream_id, meta))

    def send_shared(self, call: Call) -> None:
        """Send a call on a session that several callers share."""
        principal = call.caller.principal
        if principal != self.principal:
            self.mixed = bool(self.principal)
            self.principal = self.principal or principal
        self._shared = True
        self.send(call)

    def notify(self, method: str, params: Json | None = None) -> None:
        self._write(None, encode_notification(method, params))

    def _write_answer(self, message: bytes) -> None:
        self._write(None, message)

    @property
    def idle(self) -> bool:
        """Whether closing it now would lose nothing but the server's own state."""
        return not self.pending and not self.subscription_count and not self.server_requests

    @property
    def usable(self) -> bool:
        """Whether a request can be sent now; one that cannot was never written, and may go elsewhere."""
        return not self.lost.done()

    def start_request(self, method: str, params: Json, timeout_s: float, on_done: Callable[[Request], None]) -> Request:
        """Send a request of our own, which fails unless it is answered in time."""

        def done(request: Request) -> None:
            deadline.cancel()
            on_done(request)

        def give_up() -> None:
            reason = f"no answer to `{method}` within {timeout_s:g} seconds"
            request.give_up(Failure(self.problem(SOURCE_LOST, reason, request)))

        request = Request(method, params, done)
        deadline = Deadline(timeout_s, give_up)
        self.send(request)
        return request

    async def request(self, method: str, params: Json, timeout_s: float) -> Outcome:
        """Send a request of our own and wait for its outcome."""
        answered: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        def done(request: Request) -> None:
            if request.outcome is not None:
                settle(answered, request.outcome)

        request = self.start_request(method, params, timeout_s, done)
        try:
            return await answered
        except asyncio.CancelledError:
            request.give_up(Failure(self.problem(CANCELLED, "nobody waits for the answer")))
            raise

    def abandon(self, request: Request) -> None:
        """Forget a request that nobody waits for, tell the server, and drop the answer that may still come."""
        self.server_requests.refuse_for(request)
        if self.pending.pop(request.upstream_id, None) is None or request.method in _NEVER_CANCELLED:
            return
        if self._shared and isinstance(request, Call):
            self._abandoned[request.upstream_id] = monotonic()
        if not self.lost.done():
            self.notify(NOTIFICATIONS_CANCELLED, b'{"requestId":%d}' % request.upstream_id)

    def phase_of(self, request: Request) -> Phase:
        return SENT

    def _write(self, request: Request | None, message: bytes) -> None:
        raise NotImplementedError

    # -- received -----------------------------------------------------------------------------------------------------

    def received(self, text: bytes, request: Request | None = None) -> None:
        """Handle one whole message of the server. `request` is the one on whose own stream it came, if any."""
        if not text or text[0] != _OPEN_BRACE:
            self._receive_other(text, request)
            return
        try:
            if not text.isascii():
                text.decode()
            message = decode_server_message(text)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            self._receive_undecodable(text, request, error)
            return
        if message.method is UNSET:
            self._receive_response(message, text)
        else:
            self._receive_method(message, message.method, request)

    def _receive_other(self, text: bytes, request: Request | None) -> None:
        """Handle leading space, batches (2025-03-26), and plain output, which must cost next to nothing."""
        stripped = text.lstrip(_SPACE)
        first = stripped[:1]
        if first == b"{":
            self.received(stripped, request)
        elif first == b"[":
            self._receive_batch(text, request)
        else:
            self._count("noise_lines")

    def _receive_batch(self, text: bytes, request: Request | None) -> None:
        batch = decode_batch(replace_lone_surrogates(text)) if len(text) <= _MAX_BATCH_BYTES else None
        if batch is None or len(batch) > _MAX_BATCH:
            self._count("protocol_errors")
            return
        if not batch:
            self._count("noise_lines")
        for raw in batch:
            message = bytes(raw)
            if message.startswith(b"{"):
                self.received(message, request)
            else:
                self._count("noise_lines")

    def _receive_undecodable(self, text: bytes, request: Request | None, error: Exception) -> None:
        """Retry with lone surrogates replaced, else treat the message as malformed."""
        mended = replace_lone_surrogates(text)
        if mended != text:
            self.received(mended, request)
        else:
            self._receive_malformed(text, error)

    def _receive_response(self, message: ServerMessage, text: bytes) -> None:
        request: Request | None = None
        if message.id is not UNSET:
            try:
                upstream_id = int(bytes(message.id))
            except ValueError:
                upstream_id = 0
            if self._abandoned:
                self._abandoned.pop(upstream_id, None)
            request = self.pending.pop(upstream_id, None)
        if request is None:
            self._count("unmatched_answers")
            return
        self.served += 1
        result, error = message.result, message.error
        if error is UNSET and result is not UNSET:
            view = memoryview(result)
            if view[0] == _OPEN_BRACE:
                special = self.modern and (
                    INPUT_MARK in text or ESCAPED in text or (self.has_tasks and TASK_MARK in text)
                )
                request.finish(self._special_result(view, text, request) if special else Result(view, text))
                return
        elif error is not UNSET and result is UNSET and memoryview(error)[0] == _OPEN_BRACE:
            request.finish(RemoteError(bytes(error)))
            return
        self._count("protocol_errors")
        problem = self.problem(SOURCE_PROTOCOL, "the answer has neither a result object nor an error object", request)
        request.finish(Failure(problem))

    def _special_result(self, raw: memoryview, text: bytes, request: Request) -> Outcome:
        """The outcome of a result that seems to ask for input or to be a task."""
        wrong = wrong_with_input(raw, request)
        if wrong == "":
            return NeedsInput(bytes(raw))
        wrong = wrong or wrong_with_task(raw, request)
        if not wrong:
            return Result(raw, text)
        self._count("protocol_errors")
        return Failure(self.problem(SOURCE_PROTOCOL, wrong, request))

    def _receive_method(self, message: ServerMessage, method: str, stream: Request | None) -> None:
        """Handle a notification or a request of the server."""
        params = b"{}" if message.params is UNSET else bytes(message.params)
        if message.id is not UNSET:
            self.server_requests.receive(message.id, method, params, lambda: self._candidate_calls(stream))
        elif method == PROGRESS:
            self._receive_progress(params)
        elif method not in SESSION_NOTIFICATIONS:
            self._receive_notification(method, params, stream)
        elif method != NOTIFICATIONS_CANCELLED or not self.server_requests.cancelled(params):
            self.on_notification(method, params)

    def _candidate_calls(self, stream: Request | None) -> tuple[Call, ...]:
        """The calls that may have caused a request of the server, the likeliest last."""
        if stream is not None:
            return (stream,) if isinstance(stream, Call) and not stream.done else ()
        waiting = [call for call in self.waiting_calls if not call.done]
        return (*waiting, *[request for request in self.pending.values() if isinstance(request, Call)])

    def _receive_notification(self, method: str, params: bytes, stream: Request | None) -> None:
        """Hand a notification to the call on whose stream it came, or the only call there is, else to the session."""
        if not params.startswith(b"{") or method == STREAM_CLOSED:  # used only inside the gateway
            self._count("protocol_errors")
            return
        call = self._only_call() if stream is None else stream
        if isinstance(call, Call) and call.on_notification is not None and not call.done:
            call.notify(method, params)
        else:
            self.on_notification(method, params)

    def _only_call(self) -> Call | None:
        """The only call in flight, unless a notification may belong to an abandoned call or to another caller."""
        horizon = monotonic() - _LINGERS_S
        while self._abandoned and next(iter(self._abandoned.values())) < horizon:
            del self._abandoned[next(iter(self._abandoned))]
        if self.mixed or self._abandoned:
            return None
        only: Call | None = None
        for request in self.pending.values():
            if isinstance(request, Call):
                if only is not None:
                    return None
                only = request
        return only

    def _receive_progress(self, params: bytes) -> None:
        try:
            token = msgspec.json.decode(params, type=_Progress).progressToken
        except msgspec.MsgspecError:
            self._count("protocol_errors")
            return
        request = self.pending.get(token) if isinstance(token, int) else None
        if request is not None and request.on_notification is not None:
            request.notify(PROGRESS, params)
        else:
            self._count("unmatched_progress")

    def _receive_malformed(self, text: bytes, error: Exception) -> None:
        """Count noise such as banners; fail the request whose id a broken answer shows."""
        upstream_id = readable_id(text[:256])
        request = None if upstream_id is None else self.pending.pop(upstream_id, None)
        if request is None:
            self._count("noise_lines")
            return
        self._count("protocol_errors")
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        request.finish(Failure(self.problem(SOURCE_PROTOCOL, f"the answer is not valid JSON: {reason}", request)))

    # -- the end ------------------------------------------------------------------------------------------------------

    def lose(self, problem: Problem) -> None:
        """Fail everything in flight and report the loss.

        The session counts as lost before any request ends: a call that follows one of them must not come here.
        """
        pending, self.pending = self.pending, {}
        settle(self.lost, problem)
        call_safely("requests of a lost server", self.server_requests.withdraw_all)
        for request in pending.values():
            call_safely("a request to a lost server", request.finish, Failure(_about(problem, request)))

    def problem(self, code: Code, reason: str, request: Request | None = None, hint: str = "") -> Problem:
        message = f"Server {self.source}: {self.redact(reason)}"
        problem = Problem(code=code, message=message, source=self.source, retryable=True, hint=hint)
        return problem if request is None else _about(problem, request)

    def login_problem(self, status: int) -> Problem:
        hint = "give it a credential under `headers` in the configuration"
        return self.problem(SOURCE_AUTH_REQUIRED, f"answered HTTP {status}", hint=hint)

    def result_of(self, outcome: Outcome) -> bytes:
        """The result of a request of our own. Raises GatewayError if there is none."""
        if isinstance(outcome, Result):
            return bytes(outcome.raw)
        if isinstance(outcome, Failure):
            raise GatewayError(outcome.problem)
        text = self.redact(head_text(bytes(outcome.raw), _EXCERPT_BYTES))
        raise GatewayError(Problem(code=SOURCE_PROTOCOL, message=f"refused: {text[:_SHOWN_CHARACTERS]}"))

    def stderr_tail(self) -> str:
        """The end of what a server that is a process wrote to stderr, safe to show."""
        return ""

    async def drained(self) -> None:
        """Wait until a lost session has answered what it still carries. Most transports lose everything at once."""

    async def close(self) -> None:
        raise NotImplementedError


class _Progress(msgspec.Struct):
    progressToken: int | str


def _about(problem: Problem, request: Request) -> Problem:
    """The same problem for one request, with whether its tool may have run."""
    phase = request.phase
    not_sent = phase == "queued"
    tool: str = getattr(request, "tool", "")
    return replace(problem, tool=tool, phase=phase, executed="no" if not_sent else "unknown", retryable=not_sent)


def _ignore(method: str, params: Json) -> None:
    """Drops notifications until there is a handler."""


async def close_session(session: UpstreamSession) -> None:
    """Close a session; one that is lost already first gets to answer what it still carries."""
    if session.lost.done():
        await session.drained()
    await session.close()
    # Break reference cycles, which would keep its buffers until the collector runs.
    session.server_requests.close()
    session.on_notification = _ignore
    session.meta_for = None
