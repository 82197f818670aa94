"""A session: one conversation with one server (a process, an HTTP session), with ids of its own.

Many requests are in flight at once and matched by id. Whatever a server sends (noise, strange ids, broken JSON) costs
at most the one request it belongs to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
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
from trunkline.core.errors import SOURCE_AUTH_REQUIRED, SOURCE_LOST, SOURCE_PROTOCOL, Code, GatewayError, Phase, Problem
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
from trunkline.runtime.deadlines import TimeLimit
from trunkline.runtime.safe_calls import call_safely
from trunkline.sources.mcp.server_requests import (
    ESCAPED,
    MARK,
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
_LARGEST_BATCH: Final = 1_000
_LARGEST_BATCH_BYTES: Final = 1 << 20
"""Of messages in one array: nobody else is served while they are read, and there are never so many answers to give."""
_LINGERS_S: Final = 5.0
"""How long a server may go on with a call that was given up. Until then nothing it says is taken for someone else's."""
_NEVER_CANCELLED: Final = frozenset({INITIALIZE, SERVER_DISCOVER})
LISTS_CHANGED: Final = frozenset(f"notifications/{kind}/list_changed" for kind in ("tools", "prompts", "resources"))
SESSION_NOTIFICATIONS: Final = LISTS_CHANGED | {
    NOTIFICATIONS_RESOURCES_UPDATED,
    NOTIFICATIONS_SUBSCRIPTIONS_ACKNOWLEDGED,
    NOTIFICATIONS_TASKS,
    NOTIFICATIONS_CANCELLED,
}
"""What a server tells to whoever tends the session, whichever calls are in flight."""


class UpstreamSession:
    """What all wires to a server share. A wire provides `_write` and calls `received` and `lose`.

    `prepare` gives the `_meta` members for one request, where they depend on its caller. Whoever keeps something on
    the session beyond calls (a subscription) counts itself in `holds`. A session is `mixed` once it has carried calls of
    more than one principal. One that `has_tasks` may get a task for an answer. `expected` are calls that will be sent
    here next: what the server asks may be for them. `served` counts the answers that somebody waited for.
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
        """Takes secrets out of what the server says before others see it."""
        self.principal = ""
        self.mixed = False
        self.served = 0
        self.pending: dict[int, Request] = {}
        self.waiting_calls: list[Call] = []
        self.server_requests = ServerRequests(source, self._write_answer, count)
        self.on_notification: Callable[[str, Json], None] = _ignore
        self.lost: asyncio.Future[Problem] = asyncio.get_running_loop().create_future()
        self._count = count
        self._next_id = 0
        self._shared = False
        self._given_up: dict[int, float] = {}

    # -- requests out ---------------------------------------------------------------------------------------------

    def send(self, request: Request) -> None:
        stamp = self.request_meta if self.meta_for is None else self.meta_for(request)
        self._next_id = upstream_id = self._next_id + 1
        request.upstream_id = upstream_id
        request.upstream = self
        self.pending[upstream_id] = request
        self._write(request, encode_request(request, upstream_id, stamp))

    def send_shared(self, call: Call) -> None:
        """A call on a session that others use too."""
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
        """Whether nothing would be lost but the server's own state if it were closed now."""
        return not self.pending and not self.subscription_count and not self.server_requests

    @property
    def usable(self) -> bool:
        """Whether a request sent now has a chance. One that has not was never written, and may go elsewhere."""
        return not self.lost.done()

    async def request(self, method: str, params: Json, timeout_s: float) -> Outcome:
        """A request of our own: awaited, with a deadline."""
        answered: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        def done(request: Request) -> None:
            if request.outcome is not None and not answered.done():
                answered.set_result(request.outcome)

        request = Request(method, params, done)
        self.send(request)
        try:
            async with TimeLimit(timeout_s):
                return await answered
        except TimeoutError:
            self.abandon(request)
            problem = self.problem(SOURCE_LOST, f"no answer to `{method}` within {timeout_s:g} seconds", request)
            return Failure(problem)
        except asyncio.CancelledError:
            self.abandon(request)
            raise

    def abandon(self, request: Request) -> None:
        """Nobody waits for this answer: tell the server, free the entry, drop what may still come."""
        self.server_requests.refuse_for(request)
        if self.pending.pop(request.upstream_id, None) is None or request.method in _NEVER_CANCELLED:
            return
        if self._shared and isinstance(request, Call):
            self._given_up[request.upstream_id] = monotonic()
        if not self.lost.done():
            self.notify(NOTIFICATIONS_CANCELLED, b'{"requestId":%d}' % request.upstream_id)

    def phase_of(self, request: Request) -> Phase:
        return SENT

    def _write(self, request: Request | None, message: bytes) -> None:
        raise NotImplementedError

    # -- messages in ----------------------------------------------------------------------------------------------

    def received(self, text: bytes, request: Request | None = None) -> None:
        """One message of the server, whole. `request` is the one whose own stream it came on, where there is such."""
        if not text or text[0] != _OPEN_BRACE:
            self._no_object(text, request)
            return
        try:
            if not text.isascii():
                text.decode()
            message = decode_server_message(text)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            self._unreadable(text, request, error)
            return
        if message.method is UNSET:
            self._answered(message, text)
        else:
            self._told(message, message.method, request)

    def _no_object(self, text: bytes, request: Request | None) -> None:
        """Space before a message, several messages at once (2025-03-26), or what programs print beside the protocol,
        which can be so much that it must cost next to nothing."""
        stripped = text.lstrip(_SPACE)
        first = stripped[:1]
        if first == b"{":
            self.received(stripped, request)
        elif first == b"[":
            self._several(text, request)
        else:
            self._count("noise_lines")

    def _several(self, text: bytes, request: Request | None) -> None:
        batch = decode_batch(replace_lone_surrogates(text)) if len(text) <= _LARGEST_BATCH_BYTES else None
        if batch is None or len(batch) > _LARGEST_BATCH:
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

    def _unreadable(self, text: bytes, request: Request | None, error: Exception) -> None:
        """No message as it stands; half a character in a text can be mended."""
        mended = replace_lone_surrogates(text)
        if mended != text:
            self.received(mended, request)
        else:
            self._broken(text, error)

    def _answered(self, message: ServerMessage, text: bytes) -> None:
        request = self._take(message)
        if request is None:
            self._count("unmatched_answers")
            return
        self.served += 1
        result, error = message.result, message.error
        if error is UNSET and result is not UNSET:
            view = memoryview(result)
            if view[0] == _OPEN_BRACE:
                special = self.modern and (INPUT_MARK in text or ESCAPED in text or (self.has_tasks and TASK_MARK in text))
                request.finish(self._special_result(view, text, request) if special else Result(view, text))
                return
        elif error is not UNSET and result is UNSET and memoryview(error)[0] == _OPEN_BRACE:
            request.finish(RemoteError(bytes(error)))
            return
        self._count("protocol_errors")
        problem = self.problem(SOURCE_PROTOCOL, "the answer has neither a result object nor an error object", request)
        request.finish(Failure(problem))

    def _special_result(self, raw: memoryview, text: bytes, request: Request) -> Outcome:
        """A question or a task, if the words mean what they seem to."""
        wrong = wrong_with_input(raw, request)
        if wrong == "":
            return NeedsInput(bytes(raw))
        wrong = wrong or wrong_with_task(raw, request)
        if not wrong:
            return Result(raw, text)
        self._count("protocol_errors")
        return Failure(self.problem(SOURCE_PROTOCOL, wrong, request))

    def _take(self, message: ServerMessage) -> Request | None:
        if message.id is UNSET:
            return None
        try:
            upstream_id = int(bytes(message.id))
        except ValueError:
            return None
        if self._given_up:
            self._given_up.pop(upstream_id, None)
        return self.pending.pop(upstream_id, None)

    def _told(self, message: ServerMessage, method: str, stream: Request | None) -> None:
        """A notification, or a request of the server's own."""
        params = b"{}" if message.params is UNSET else bytes(message.params)
        if message.id is not UNSET:
            self.server_requests.receive(message.id, method, params, lambda: self._causes(stream))
        elif method == PROGRESS:
            self._progressed(params)
        elif method not in SESSION_NOTIFICATIONS:
            self._noticed(method, params, stream)
        elif method != NOTIFICATIONS_CANCELLED or not self.server_requests.cancelled(params):
            self.on_notification(method, params)

    def _causes(self, stream: Request | None) -> tuple[Call, ...]:
        """The calls that may be behind what the server asks, the likeliest last."""
        if stream is not None:
            return (stream,) if isinstance(stream, Call) and not stream.done else ()
        expected = [call for call in self.waiting_calls if not call.done]
        return (*expected, *[request for request in self.pending.values() if isinstance(request, Call)])

    def _noticed(self, method: str, params: bytes, stream: Request | None) -> None:
        """It belongs to the call whose stream it came on, or to the only one there is; else to the session."""
        if not params.startswith(b"{") or method == STREAM_CLOSED:  # that is a word between our own parts
            self._count("protocol_errors")
            return
        call = self._only_call() if stream is None else stream
        if isinstance(call, Call) and call.on_notification is not None and not call.done:
            call.notify(method, params)
        else:
            self.on_notification(method, params)

    def _only_call(self) -> Call | None:
        """The one that must be meant, unless it may be what is left of a call of someone else."""
        if self.mixed or self._given_up_lately():
            return None
        only: Call | None = None
        for request in self.pending.values():
            if isinstance(request, Call):
                if only is not None:
                    return None
                only = request
        return only

    def _given_up_lately(self) -> bool:
        """Whether the server may still be at work for a caller who is gone. Some tell when they have stopped."""
        horizon = monotonic() - _LINGERS_S
        while self._given_up and next(iter(self._given_up.values())) < horizon:
            del self._given_up[next(iter(self._given_up))]
        return bool(self._given_up)

    def _progressed(self, params: bytes) -> None:
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

    def _broken(self, text: bytes, error: Exception) -> None:
        """A message that is no message. Banners cost nothing; a broken answer fails the request whose id it shows."""
        upstream_id = readable_id(text[:256])
        request = None if upstream_id is None else self.pending.pop(upstream_id, None)
        if request is None:
            self._count("noise_lines")
            return
        self._count("protocol_errors")
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        request.finish(Failure(self.problem(SOURCE_PROTOCOL, f"the answer is not valid JSON: {reason}", request)))

    # -- the end --------------------------------------------------------------------------------------------------

    def lose(self, problem: Problem) -> None:
        """The wire is gone: everything in flight ends now, and whoever tends the session learns why.

        It counts as lost before anything ends: a call that takes the place of one that ends must not come here.
        """
        pending, self.pending = self.pending, {}
        if not self.lost.done():
            self.lost.set_result(problem)
        call_safely("questions of a lost server", self.server_requests.withdraw_all)
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
        """The result of a request of our own, or a GatewayError that says why there is none."""
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
        """Until a lost session has answered what it still carries. Most wires lose everything at once."""

    async def close(self) -> None:
        raise NotImplementedError


class _Progress(msgspec.Struct):
    progressToken: int | str


def _about(problem: Problem, request: Request) -> Problem:
    """The same problem, as it concerns one request: whether its tool may have run."""
    phase = request.phase
    not_sent = phase == "queued"
    tool: str = getattr(request, "tool", "")
    return replace(problem, tool=tool, phase=phase, executed="no" if not_sent else "unknown", retryable=not_sent)


def _ignore(method: str, params: Json) -> None:
    """Until someone tends the session, what it is told is dropped."""


async def close_session(session: UpstreamSession) -> None:
    """Close a session that is given up; one that is lost already first gets to answer what it can."""
    if session.lost.done():
        await session.drained()
    await session.close()
    # What leads back to the session is cut: a cycle would stay, with its buffers, until the collector finds it.
    session.server_requests.close()
    session.on_notification = _ignore
    session.meta_for = None
