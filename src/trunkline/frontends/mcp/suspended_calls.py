"""Suspended calls: a legacy server sends a request to a modern client, and the call waits until the client is back.

The client's request is answered `input_required` with a signed `requestState`; its next request brings the responses
and resumes the call. The outcome goes to the request that waits at that moment.
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
from trunkline.core.server_request import ServerRequest
from trunkline.core.signing import TokenSigner
from trunkline.frontends.mcp.requests import own_result, refuse
from trunkline.frontends.mcp.server_requests import MAX_OPEN, ServerRequestRules, request_refusal
from trunkline.protocol.jsonrpc import BadMessage, Members, encode, encode_members, members_of, single_line, text_member
from trunkline.protocol.mcp.methods import ELICITATION_CREATE, MAY_REQUIRE_INPUT, PROMPTS_GET, RESOURCES_READ
from trunkline.protocol.mcp.server_requests import (
    RETRY_MEMBERS,
    InputRequest,
    encode_input_required,
    labelled,
)
from trunkline.protocol.mcp.translation import urls_required
from trunkline.protocol.mcp.versions import MODERN
from trunkline.router.router import Router
from trunkline.runtime.deadlines import Deadline
from trunkline.runtime.safe_callbacks import call_safely

if TYPE_CHECKING:
    from trunkline.frontends.mcp.calls import RoutedCall
    from trunkline.frontends.mcp.requests import RequestContext

_GATHER_S: Final = 0.01
"""Requests that come this close together are passed on together."""
_URLS: Final = "urls"
_URL: Final = b'{"mode":"url"}'
_TOO_MANY: Final = b'{"code":-32603,"message":"Too many requests are open"}'
_OVER: Final = b'{"code":-32603,"message":"The call is over"}'
_GONE: Final = b'{"code":-32603,"message":"The client did not come back with an answer"}'


class SuspendedCall:
    """A call with server requests to its client.

    `waiting` is the client's request that waits for the outcome; None while the client has the server's requests.
    """

    def __init__(self, suspended_calls: SuspendedCalls, first: RoutedCall) -> None:
        self.handle = secrets.token_urlsafe(16)
        self.waiting: RoutedCall | None = first
        self._suspended_calls = suspended_calls
        self._first = first
        self._calls = first.calls
        self._open: dict[str, tuple[ServerRequest, InputRequest]] = {}
        self._request_count = 0
        self._outcome: Call | None = None
        self._gathering: asyncio.TimerHandle | None = None
        self._expiry: Deadline | None = None
        self._loop = asyncio.get_running_loop()

    # -- from the server ------------------------------------------------------------------------------------------

    def add_request(self, server_request: ServerRequest) -> None:
        if len(self._open) >= MAX_OPEN:
            server_request.refuse(_TOO_MANY)
            return
        try:
            input_request = self._suspended_calls.input_request(server_request)
        except (BadMessage, RecursionError) as error:
            server_request.refuse(encode({"code": -32602, "message": f"The request cannot be passed on: {error}"}))
            return
        self._request_count += 1
        key = f"{server_request.source}-{self._request_count}"
        self._open[key] = (server_request, input_request)

        def withdrawn() -> None:
            self._open.pop(key, None)

        server_request.on_withdrawn = withdrawn
        self._gather()

    def _gather(self) -> None:
        if self.waiting is not None and self._gathering is None:
            self._gathering = self._loop.call_later(_GATHER_S, self._suspend)

    def _suspend(self) -> None:
        """Answer the waiting request with `input_required`; the call keeps its place among those in flight."""
        self._gathering = None
        waiting = self.waiting
        if waiting is None or not self._open:
            return
        self.waiting = None
        self._calls.remove(waiting.key)
        self._calls.add(self, self)
        timeout_s = self._suspended_calls.rules.timeout_s
        self._expiry = Deadline(timeout_s, partial(self.give_up, "the client did not return"))
        state = self._suspended_calls.states.signed(waiting, self.handle)
        input_requests = {key: input_request for key, (_, input_request) in self._open.items()}
        waiting.responder.result(own_result(encode_input_required(input_requests, state)))

    # -- from the client ------------------------------------------------------------------------------------------

    def resume(self, routed: RoutedCall) -> Problem | None:
        """Let this request of the client wait for the outcome from now on; returns the problem if it cannot."""
        if self.waiting is not None:
            return Problem(code=INVALID_PARAMS, message="Another request with this `requestState` waits already")
        try:
            responses = _input_responses(routed.params)
        except BadMessage as error:
            return Problem(code=INVALID_PARAMS, message=str(error))
        self._calls.remove(self)
        refusal = self._calls.refusal(routed.key)
        if refusal is not None:
            self._calls.add(self, self)
            return refusal
        self._stop_timers()
        if self._outcome is not None:
            self._suspended_calls.forget(self)
            routed.respond(self._outcome)
            return None
        self.waiting = routed
        self._calls.add(routed.key, self)
        for key in [key for key in self._open if key in responses]:
            server_request, _ = self._open.pop(key)
            server_request.answer(responses[key])
        if self._open:
            self._gather()
        return None

    # -- the end --------------------------------------------------------------------------------------------------

    def ended(self, call: Call) -> None:
        """Send the outcome to the request that waits, or keep it until the client is back."""
        self._refuse_all(_OVER)
        waiting, self.waiting = self.waiting, None
        self._outcome = call
        self._first.suspended = None  # a cycle would keep both until the collector runs
        if waiting is not None:
            self._stop_timers()
            self._calls.remove(waiting.key)
            self._suspended_calls.forget(self)
            waiting.respond(call)

    def cancel(self, why: str) -> bool:
        """The client cancels the request that waits, or is gone."""
        if self.waiting is None:
            self.give_up(why)
            return True
        return self._first.call is not None and self._first.call.cancel(why)

    def give_up(self, why: str) -> None:
        """Cancel the call: the client will not come back for it."""
        self._stop_timers()
        self._calls.remove(self)
        self._suspended_calls.forget(self)
        self._refuse_all(_GONE)
        if self._first.call is not None:
            self._first.call.cancel(why)

    def _stop_timers(self) -> None:
        for timer in (self._gathering, self._expiry):
            if timer is not None:
                timer.cancel()
        self._gathering = self._expiry = None

    def _refuse_all(self, error: bytes) -> None:
        pending, self._open = self._open, {}
        for server_request, _ in pending.values():
            server_request.refuse(error)


class SuspendedCalls:
    """All suspended calls, by the handle in the `requestState` that their clients hold."""

    def __init__(self, signer: TokenSigner, rules: ServerRequestRules) -> None:
        self.rules = rules
        self.states = StateSigner(signer, rules.timeout_s)
        self._suspended: dict[str, SuspendedCall] = {}

    def __len__(self) -> int:
        return len(self._suspended)

    def add_request(self, routed: RoutedCall, server_request: ServerRequest) -> None:
        """Handle a server's request during this call."""
        refused = request_refusal(routed.caller, server_request.method, server_request.params)
        if refused is not None:
            server_request.refuse(refused)
            return
        if routed.suspended is None:
            routed.suspended = SuspendedCall(self, routed)
            self._suspended[routed.suspended.handle] = routed.suspended
        routed.suspended.add_request(server_request)

    def resume(self, routed: RoutedCall, router: Router) -> bool:
        """Handle a request with a `requestState` of ours; False for one that goes on to its server."""
        try:
            state = text_member(routed.params, "requestState") or ""
        except BadMessage:
            return _refuse(routed, "`params.requestState` must be a string")
        handle = self.states.verified(routed, state)
        if handle is None:
            if not _is_for_legacy(routed, router):
                return False
            return _refuse(routed, "`requestState` was not issued for this request, or has expired")
        if handle == _URLS:
            routed.params = _without_retry_members(routed.params)
            return False
        suspended = self._suspended.get(handle)
        if suspended is None:
            return _refuse(routed, "The call that this `requestState` belongs to has ended")
        problem = suspended.resume(routed)
        if problem is not None:
            refuse(routed.responder, problem)
        return True

    def urls_to_visit(self, context: RequestContext, source: str, error: Json) -> bytes | None:
        """A server's error -32042 as `input_required`, which the client answers by sending the request again.

        None for clients that do not support it.
        """
        urls = urls_required(error)
        if (
            not urls
            or context.message.method not in MAY_REQUIRE_INPUT
            or request_refusal(context.caller, ELICITATION_CREATE, _URL) is not None
        ):
            return None
        requests: dict[str, InputRequest] = {}
        for number, url in enumerate(urls, start=1):
            params = encode_members({name: url[name] for name in url if name not in ("mode", "elicitationId")})
            members = self._labelled(source, ELICITATION_CREATE, params)
            params = encode_members({"mode": b'"url"', **members})
            requests[f"{source}-{number}"] = InputRequest(ELICITATION_CREATE, params)
        return encode_input_required(requests, self.states.signed(context, _URLS))

    def input_request(self, server_request: ServerRequest) -> InputRequest:
        """A server's request for a modern client, which has no way to send progress on it."""
        members = self._labelled(server_request.source, server_request.method, server_request.params)
        meta = members_of(bytes(members["_meta"]), "`_meta`")
        if "progressToken" in meta:
            members["_meta"] = encode_members({name: meta[name] for name in meta if name != "progressToken"})
        if server_request.method == ELICITATION_CREATE:
            members.pop("elicitationId", None)
        return InputRequest(server_request.method, encode_members(members))

    def _labelled(self, source: str, method: str, params: Json) -> dict[str, Json]:
        return labelled(source, method, params, in_text=self.rules.names_servers())

    def forget(self, suspended: SuspendedCall) -> None:
        self._suspended.pop(suspended.handle, None)

    def clear(self) -> None:
        """Give up the calls whose clients are away: shutting down does not wait for them."""
        for suspended in list(self._suspended.values()):
            if suspended.waiting is None:
                call_safely("a suspended call", suspended.give_up, "the gateway is shutting down")

    def close(self) -> None:
        for suspended in list(self._suspended.values()):
            call_safely("a suspended call", suspended.cancel, "the gateway is shutting down")


def _refuse(context: RequestContext, message: str) -> bool:
    refuse(context.responder, Problem(code=INVALID_PARAMS, message=message))
    return True


# -- the signed state -------------------------------------------------------------------------------------------------

_PURPOSE: Final = "requestState"
_GRACE_S: Final = 5.0
"""A client that is back at the last moment is told that the call is over, not that its state is too old."""
_OPEN_BRACE: Final = 0x7B
_canonical: Final = msgspec.json.Encoder(order="sorted").encode


class _RequestState(msgspec.Struct, array_like=True):
    handle: str
    principal: str
    until: float
    digest: str


class StateSigner:
    """Signs a handle as a `requestState` that is valid for one principal and one request, for a limited time."""

    def __init__(self, signer: TokenSigner, server_request_timeout_s: float) -> None:
        self.signer = signer
        self._lasts_s = server_request_timeout_s + _GRACE_S
        self._loop = asyncio.get_running_loop()

    def signed(self, context: RequestContext, handle: str) -> str:
        state = _RequestState(handle, context.caller.principal, self._loop.time() + self._lasts_s, _digest(context))
        return self.signer.sign(_PURPOSE, encode(state))

    def verified(self, context: RequestContext, text: str) -> str | None:
        """The handle in a state that was issued for this very request; None for any other."""
        payload = self.signer.verify(_PURPOSE, text)
        if payload is None:
            return None
        state = msgspec.json.decode(payload, type=_RequestState)
        is_valid = (
            state.principal == context.caller.principal
            and state.until > self._loop.time()
            and state.digest == _digest(context)
        )
        return state.handle if is_valid else None


def _digest(context: RequestContext) -> str:
    """A digest of the request that does not depend on the order in which a client writes its members."""
    params = encode_members({name: context.params[name] for name in sorted(_without_retry_members(context.params))})
    with contextlib.suppress(msgspec.MsgspecError, RecursionError):  # else as it is written
        params = _canonical(msgspec.json.decode(params))
    return hashlib.sha256(f"{context.message.method}\0".encode() + params).hexdigest()


def _without_retry_members(params: Members) -> Members:
    """The parameters of the request itself, without those of a retry."""
    return {name: value for name, value in params.items() if name not in RETRY_MEMBERS and name != "_meta"}


def _input_responses(params: Members) -> dict[str, bytes]:
    """The client's responses, by the keys of the server's requests. Raises BadMessage."""
    raw = params.get("inputResponses")
    responses = {} if raw is None else members_of(raw, "`params.inputResponses`")
    for key, response in responses.items():
        if memoryview(response)[0] != _OPEN_BRACE:
            raise BadMessage(INVALID_PARAMS, f"`params.inputResponses.{key}` must be an object")
    return {key: single_line(response) for key, response in responses.items()}


def _is_for_legacy(context: RequestContext, router: Router) -> bool:
    """Whether the request goes to a legacy server, which has no `requestState`, as far as that is known now."""
    source = _source_of(context, router)
    snapshot = None if source is None else router.catalog.snapshot(source)
    return snapshot is not None and snapshot.protocol_version not in MODERN


def _source_of(context: RequestContext, router: Router) -> str | None:
    params, catalog = context.params, router.views.of(context.caller)
    if context.message.method == RESOURCES_READ:
        found = router.uri_rewriter.resolve_or_guess(context.caller, text_member(params, "uri") or "")
        return None if found is None else found.source
    name = text_member(params, "name") or ""
    if context.message.method == PROMPTS_GET:
        prompt = catalog.prompts.find(name)
        return None if prompt is None else prompt.source
    entry = catalog.find(name)
    if entry is not None and entry.source == RESERVED_SOURCE:  # `execute_tool`: the tool that its `tool_id` names
        try:
            arguments = members_of(params.get("arguments", b"{}"), "`params.arguments`")
            entry = catalog.find(text_member(arguments, "tool_id") or "")
        except BadMessage:
            return None
    return None if entry is None else entry.tool.source
