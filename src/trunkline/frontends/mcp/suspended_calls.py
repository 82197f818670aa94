"""A modern client and a legacy server: a call whose server asks something is parked until the client is back.

The request is answered `input_required` with a sealed state; the client's next request brings the answers and takes
over the call. Whatever comes of it goes to the request that waits at that moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from trunkline.core.call import Call, Json
from trunkline.core.errors import INVALID_PARAMS, Problem
from trunkline.core.names import RESERVED_SOURCE
from trunkline.core.seal import Sealer
from trunkline.core.server_request import ServerRequest
from trunkline.frontends.mcp.requests import own_result, refuse
from trunkline.frontends.mcp.server_requests import MAX_OPEN, ServerRequestRules, request_refusal
from trunkline.protocol.jsonrpc import BadMessage, Members, encode, encode_members, members_of, single_line, text_member
from trunkline.protocol.mcp.methods import ELICITATION_CREATE, PROMPTS_GET, RESOURCES_READ
from trunkline.protocol.mcp.server_requests import (
    MAY_REQUIRE_INPUT,
    RETRY_MEMBERS,
    InputRequest,
    encode_input_required,
    labelled,
)
from trunkline.protocol.mcp.translation import urls_required
from trunkline.protocol.mcp.versions import MODERN
from trunkline.router.catalog import ToolEntry
from trunkline.router.router import Router
from trunkline.runtime.deadlines import Deadline
from trunkline.runtime.safe_calls import call_safely

if TYPE_CHECKING:
    from trunkline.frontends.mcp.calls import RoutedCall
    from trunkline.frontends.mcp.requests import RequestContext


_GATHER_S: Final = 0.01
"""Questions that come this close together are asked together."""
_URLS: Final = "urls"
_URL: Final = b'{"mode":"url"}'
_TOO_MANY: Final = b'{"code":-32603,"message":"Too many questions are open"}'
_OVER: Final = b'{"code":-32603,"message":"The call that this was for is over"}'
_GONE: Final = b'{"code":-32603,"message":"The client did not come back with an answer"}'


class SuspendedCall:
    """A call with questions to its client. `waiting` is the request that the client waits with, None while it has to
    ask its user first."""

    def __init__(self, suspended_calls: SuspendedCalls, first: RoutedCall) -> None:
        self.handle = secrets.token_urlsafe(16)
        self.waiting: RoutedCall | None = first
        self._suspended_calls = suspended_calls
        self._first = first
        self._calls = first.calls
        self._open: dict[str, tuple[ServerRequest, InputRequest]] = {}
        self._asked_so_far = 0
        self._outcome: Call | None = None
        self._gathering: asyncio.TimerHandle | None = None
        self._expiry: Deadline | None = None
        self._loop = asyncio.get_running_loop()

    # -- questions out --------------------------------------------------------------------------------------------

    def send_request(self, server_request: ServerRequest) -> None:
        if len(self._open) >= MAX_OPEN:
            server_request.refuse(_TOO_MANY)
            return
        try:
            asking = self._suspended_calls.asking(server_request)
        except (BadMessage, RecursionError) as error:
            server_request.refuse(encode({"code": -32602, "message": f"The question cannot be passed on: {error}"}))
            return
        self._asked_so_far += 1
        key = f"{server_request.source}-{self._asked_so_far}"
        self._open[key] = (server_request, asking)
        server_request.on_withdrawn = lambda: self._withdrawn(key)
        self._gather()

    def _withdrawn(self, key: str) -> None:
        self._open.pop(key, None)

    def _gather(self) -> None:
        if self.waiting is not None and self._gathering is None:
            self._gathering = self._loop.call_later(_GATHER_S, self._give)

    def _give(self) -> None:
        """Answer the request that waits with what is to be asked; the call keeps its place among the client's."""
        self._gathering = None
        waiting = self.waiting
        if waiting is None or not self._open:
            return
        self.waiting = None
        self._calls.remove(waiting.key)
        self._calls.add(self, self)
        self._expiry = Deadline(
            self._suspended_calls.rules.server_request_timeout_s, partial(self.give_up, "the client did not return")
        )
        state = self._suspended_calls.state_of(waiting, self.handle)
        asking = encode_input_required({key: asking for key, (_, asking) in self._open.items()}, state)
        waiting.responder.result(own_result(asking))

    # -- answers in -----------------------------------------------------------------------------------------------

    def resume(self, routed: RoutedCall) -> Problem | None:
        """The client is back: this request waits from now on. The problem when it cannot."""
        if self.waiting is not None:
            return Problem(code=INVALID_PARAMS, message="Another request with this `requestState` waits already")
        answers = answers_in(routed.params)
        if isinstance(answers, Problem):
            return answers
        self._calls.remove(self)
        refusal = self._calls.refusal(routed.key)
        if refusal is not None:
            self._calls.add(self, self)
            return refusal
        self._stop_clocks()
        self._take_over(routed, answers)
        return None

    def _take_over(self, routed: RoutedCall, answers: dict[str, bytes]) -> None:
        if self._outcome is not None:
            self._suspended_calls.forget(self)
            routed.deliver(self._outcome)
            return
        self.waiting = routed
        self._calls.add(routed.key, self)
        for key in [key for key in self._open if key in answers]:
            server_request, _ = self._open.pop(key)
            server_request.answer(answers[key])
        if self._open:
            self._gather()

    # -- the end --------------------------------------------------------------------------------------------------

    def ended(self, call: Call) -> None:
        """The server has answered, or will not: kept for the client where it is away."""
        self._refuse_all(_OVER)
        waiting, self.waiting = self.waiting, None
        self._outcome = call
        self._first.suspended = None  # a circle would keep both until the collector runs
        if waiting is not None:
            self._stop_clocks()
            self._calls.remove(waiting.key)
            self._suspended_calls.forget(self)
            waiting.deliver(call)

    def cancel(self, why: str) -> bool:
        """The client takes back the request that waits, or is gone altogether."""
        if self.waiting is None:
            self.give_up(why)
            return True
        return self._first.call is not None and self._first.call.cancel(why)

    def give_up(self, why: str) -> None:
        """Nobody will come back for it."""
        self._stop_clocks()
        self._calls.remove(self)
        self._suspended_calls.forget(self)
        self._refuse_all(_GONE)
        if self._first.call is not None:
            self._first.call.cancel(why)

    def _stop_clocks(self) -> None:
        for timer in (self._gathering, self._expiry):
            if timer is not None:
                timer.cancel()
        self._gathering = self._expiry = None

    def _refuse_all(self, error: bytes) -> None:
        questions, self._open = self._open, {}
        for server_request, _ in questions.values():
            server_request.refuse(error)


class SuspendedCalls:
    """All parked calls, and the states that clients hold in their place."""

    def __init__(self, sealer: Sealer, rules: ServerRequestRules) -> None:
        self.rules = rules
        self._seal = StateSeal(sealer, rules.server_request_timeout_s)
        self._suspended: dict[str, SuspendedCall] = {}

    def __len__(self) -> int:
        return len(self._suspended)

    def send_request(self, routed: RoutedCall, server_request: ServerRequest) -> None:
        """A server's question during this call."""
        refused = request_refusal(routed.caller, server_request.method, server_request.params)
        if refused is not None:
            server_request.refuse(refused)
            return
        if routed.suspended is None:
            routed.suspended = SuspendedCall(self, routed)
            self._suspended[routed.suspended.handle] = routed.suspended
        routed.suspended.send_request(server_request)

    def takes(self, routed: RoutedCall, router: Router) -> bool:
        """Whether a request with a `requestState` is answered here; if not it goes on to its server."""
        context = routed
        try:
            state = text_member(context.params, "requestState") or ""
        except BadMessage:
            return _refuse(context, "`params.requestState` must be a string")
        handle = self._seal.opened(context, state)
        if handle is None:
            if not is_for_legacy(context, router):
                return False
            return _refuse(context, "`requestState` is not one that was given for this request, or is too old")
        if handle == _URLS:
            context.params = without_retry_members(context.params)
            return False
        suspended = self._suspended.get(handle)
        if suspended is None:
            return _refuse(context, "The call of this `requestState` is over")
        problem = suspended.resume(routed)
        if problem is not None:
            refuse(context.responder, problem)
        return True

    def urls_to_visit(self, context: RequestContext, source: str, error: Json) -> bytes | None:
        """A server's error -32042 as questions to a client that takes such; the retry simply calls again."""
        urls = urls_required(error)
        if (
            not urls
            or context.message.method not in MAY_REQUIRE_INPUT
            or request_refusal(context.caller, ELICITATION_CREATE, _URL) is not None
        ):
            return None
        asking: dict[str, InputRequest] = {}
        for number, url in enumerate(urls, start=1):
            params = encode_members({name: url[name] for name in url if name not in ("mode", "elicitationId")})
            members = self._labelled(source, ELICITATION_CREATE, params)
            asking[f"{source}-{number}"] = InputRequest(
                ELICITATION_CREATE, encode_members({"mode": b'"url"', **members})
            )
        return encode_input_required(asking, self.state_of(context, _URLS))

    def asking(self, server_request: ServerRequest) -> InputRequest:
        """A question as its client sees it: modern clients have no way to show progress on it."""
        members = self._labelled(server_request.source, server_request.method, server_request.params)
        meta = members_of(bytes(members["_meta"]), "`_meta`")
        if "progressToken" in meta:
            members["_meta"] = encode_members({name: meta[name] for name in meta if name != "progressToken"})
        if server_request.method == ELICITATION_CREATE:
            members.pop("elicitationId", None)
        return InputRequest(server_request.method, encode_members(members))

    def _labelled(self, source: str, method: str, params: Json) -> dict[str, Json]:
        return labelled(source, method, params, in_text=self.rules.names_servers())

    def state_of(self, context: RequestContext, handle: str) -> str:
        return self._seal.sealed(context, handle)

    def forget(self, suspended: SuspendedCall) -> None:
        self._suspended.pop(suspended.handle, None)

    def clear(self) -> None:
        """Shutting down: calls whose client is away are not waited for."""
        for suspended in list(self._suspended.values()):
            if suspended.waiting is None:
                call_safely("a parked call", suspended.give_up, "the gateway is shutting down")

    def close(self) -> None:
        for suspended in list(self._suspended.values()):
            call_safely("a parked call", suspended.cancel, "the gateway is shutting down")


def _refuse(context: RequestContext, message: str) -> bool:
    refuse(context.responder, Problem(code=INVALID_PARAMS, message=message))
    return True


# `requestState` of ours: what it names, whose it is, how long it holds, and for which request alone.

_PURPOSE: Final = "requestState"
_GRACE_S: Final = 5.0
"""A client that is back in the last moment finds out from us that it is too late, not from a state gone bad."""
_OPEN_BRACE: Final = 0x7B
_canonical: Final = msgspec.json.Encoder(order="sorted").encode


class _State(msgspec.Struct, array_like=True):
    handle: str
    principal: str
    until: float
    digest: str


class StateSeal:
    def __init__(self, sealer: Sealer, server_request_timeout_s: float) -> None:
        self._sealer = sealer
        self._lasts_s = server_request_timeout_s + _GRACE_S
        self._loop = asyncio.get_running_loop()

    def sealed(self, context: RequestContext, handle: str) -> str:
        state = _State(handle, context.caller.principal, self._loop.time() + self._lasts_s, _digest(context))
        return self._sealer.seal(_PURPOSE, encode(state))

    def opened(self, context: RequestContext, text: str) -> str | None:
        """The handle in a state that was given for this very request; None for any other."""
        payload = self._sealer.open(_PURPOSE, text)
        if payload is None:
            return None
        state = msgspec.json.decode(payload, type=_State)
        is_asked_for = (
            state.principal == context.caller.principal
            and state.until > self._loop.time()
            and state.digest == _digest(context)
        )
        return state.handle if is_asked_for else None


def _digest(context: RequestContext) -> str:
    """What is asked, whichever way it is written: a client may order its arguments differently the next time."""
    params = encode_members({name: context.params[name] for name in sorted(without_retry_members(context.params))})
    with contextlib.suppress(msgspec.MsgspecError, RecursionError):  # else as it is written
        params = _canonical(msgspec.json.decode(params))
    return hashlib.sha256(f"{asked.message.method}\0".encode() + params).hexdigest()


def without_retry_members(params: Members) -> Members:
    """The parameters of the request itself, without what belongs to a round of questions."""
    return {name: value for name, value in params.items() if name not in RETRY_MEMBERS and name != "_meta"}


def answers_in(params: Members) -> dict[str, bytes] | Problem:
    """What the client answered, by the keys it was asked under."""
    raw = params.get("inputResponses")
    try:
        answers = {} if raw is None else members_of(raw, "`params.inputResponses`")
        return {key: single_line(_object(key, answer)) for key, answer in answers.items()}
    except BadMessage as error:
        return Problem(code=INVALID_PARAMS, message=str(error))


def _object(key: str, answer: msgspec.Raw) -> msgspec.Raw:
    if memoryview(answer)[0] != _OPEN_BRACE:
        raise BadMessage(INVALID_PARAMS, f"`params.inputResponses.{key}` must be an object")
    return answer


def is_for_legacy(context: RequestContext, router: Router) -> bool:
    """Whether the server that this goes to has no such states, as far as that is known now."""
    source = _source_of(context, router)
    snapshot = None if source is None else router.catalog.snapshot(source)
    return snapshot is not None and snapshot.protocol_version not in MODERN


def _source_of(context: RequestContext, router: Router) -> str | None:
    if context.message.method == RESOURCES_READ:
        place = router.uri_rewriter.resolve_or_guess(context.caller, text_member(context.params, "uri") or "")
        return None if place is None else place.source
    name = text_member(context.params, "name") or ""
    if context.message.method == PROMPTS_GET:
        prompt = router.views.of(context.caller).prompts.find(name)
        return None if prompt is None else prompt.source
    entry = _tool_of(context, router, name)
    return None if entry is None else entry.tool.source


def _tool_of(context: RequestContext, router: Router, name: str) -> ToolEntry | None:
    """The tool that answers: what is executed by a tool of ours, is answered by the one that was named."""
    catalog = router.views.of(context.caller)
    entry = catalog.find(name)
    if entry is None or entry.source != RESERVED_SOURCE:
        return entry
    try:
        arguments = members_of(context.params.get("arguments", b"{}"), "`params.arguments`")
        return catalog.find(text_member(arguments, "tool_id") or "")
    except BadMessage:
        return None
