"""Calls of clients that one server answers: checked, routed, and answered in the client's protocol version."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Final

from trunkline.core.call import Call, Caller, Failure, Json, NeedsInput, RemoteError, Result
from trunkline.core.errors import CANCELLED, INVALID_PARAMS, SOURCE_PROTOCOL, UNKNOWN_RESOURCE, Problem
from trunkline.core.server_request import ServerRequest
from trunkline.frontends.mcp.clients import InFlightCalls
from trunkline.frontends.mcp.notifications import forward_notification
from trunkline.frontends.mcp.requests import RequestContext, Responder, own_result, refuse, respond, text_or_none
from trunkline.frontends.mcp.server_requests import InputRequiredLoop
from trunkline.protocol.jsonrpc import (
    BadMessage,
    Members,
    Message,
    encode,
    encode_error,
    has_member,
    single_line,
    text_member,
)
from trunkline.protocol.mcp.capabilities import NO_CAPABILITIES
from trunkline.protocol.mcp.methods import (
    COMPLETION_COMPLETE,
    PROMPTS_GET,
    RESOURCES_READ,
    TASKS_CANCEL,
    TASKS_GET,
    TASKS_RESULT,
    TASKS_UPDATE,
    TOOLS_CALL,
    WITH_CONTENT,
)
from trunkline.protocol.mcp.modern import HOP_META, completed_result
from trunkline.protocol.mcp.server_requests import labelled_result
from trunkline.protocol.mcp.translation import (
    RESOURCE_NOT_FOUND,
    URL_ELICITATION_REQUIRED,
    downgraded_result,
    error_code,
    error_for_legacy,
    error_for_modern,
    legacy_code,
)
from trunkline.protocol.mcp.versions import LEGACY, MODERN
from trunkline.router.router import Router
from trunkline.runtime.safe_callbacks import internal_problem

if TYPE_CHECKING:
    from trunkline.frontends.mcp.clients import ClientSession
    from trunkline.frontends.mcp.suspended_calls import SuspendedCall, SuspendedCalls

_HOP_OWNED: Final = frozenset(name.casefold() for name in HOP_META)
"""Compared without case: a server that ignores case must not find a second progress token."""


class RoutedCall(RequestContext):
    """A request, and its call if one server answers it.

    `suspended` is set once a server's request was passed to a modern client: the response may then go to a later
    request. `input_required_loop` is set while a legacy client is asked for the input that a modern server needs.
    """

    __slots__ = ("_router", "_suspended_calls", "call", "input_required_loop", "suspended")

    def __init__(
        self,
        message: Message,
        params: Members,
        meta: Members | None,
        responder: Responder,
        caller: Caller,
        calls: InFlightCalls,
        key: Hashable,
        session: ClientSession | None,
        suspended_calls: SuspendedCalls,
    ) -> None:
        self.message = message
        self.params = params
        self.meta = meta
        self.responder = responder
        self.caller = caller
        self.calls = calls
        self.key = key
        self.session = session
        self.call: Call | None = None
        self.suspended: SuspendedCall | None = None
        self._suspended_calls = suspended_calls
        self.input_required_loop: InputRequiredLoop | None = None

    def call_tool(self, router: Router) -> None:
        """Handle `tools/call`, the one method where every microsecond counts."""
        members = self.params
        try:
            name = text_member(members, "name")
        except BadMessage:
            name = None
        if name is None:
            refuse(self.responder, NO_NAME)
            return
        if "requestState" in members and self.session is None and self._suspended_calls.resume(self, router):
            return
        refusal = self.calls.refusal(self.key) or invalid_arguments(members)
        if refusal is None:
            self._router = router
            self._send(self.params, name)
        else:
            refuse(self.responder, refusal)

    def request(self, router: Router) -> None:
        """Handle any other method that one server answers."""
        members = self.params
        wrong = invalid_params(self.message.method, members)
        if wrong is not None:
            refuse(self.responder, wrong)
            return
        if "requestState" in members and self.session is None and self._suspended_calls.resume(self, router):
            return
        refusal = self.calls.refusal(self.key)
        if refusal is None:
            self._router = router
            self._send(self.params, "")
        else:
            refuse(self.responder, refusal)

    def send_again(self, members: Members) -> None:
        """Send the same request with the input that its client gave."""
        self._send(members, text_or_none(members, "name") or "")

    def _send(self, members: Members, tool: str) -> None:
        meta, caller = self.meta, self.caller
        forwarded_meta: dict[str, Json] | None = None
        progress = False
        if meta is not None:
            progress = "progressToken" in meta
            forwarded_meta = {
                key: single_line(value)
                for key, value in meta.items()
                if key not in HOP_META and key.casefold() not in _HOP_OWNED
            } or None
        on_notification = self._notified if progress or self.session is not None or caller.log_level else None
        on_server_request = None if caller.capabilities == NO_CAPABILITIES else self._server_requested
        method = self.message.method or ""
        if method == TOOLS_CALL:
            call = self._router.call_tool(
                caller,
                tool,
                members,
                self._reply,
                meta=forwarded_meta,
                on_notification=on_notification,
                progress=progress,
                on_server_request=on_server_request,
            )
        else:
            call = self._router.request(
                caller,
                method,
                members,
                self._reply,
                meta=forwarded_meta,
                on_notification=on_notification,
                progress=progress,
                on_server_request=on_server_request,
            )
        self.call = call
        if call.outcome is None:
            self.calls.add(self.key, call)

    # -- from the server --------------------------------------------------------------------------------------------

    def _server_requested(self, server_request: ServerRequest) -> None:
        session = self.session
        if session is None:
            self._suspended_calls.add_request(self, server_request)
        else:
            session.server_requests.send_request(server_request, self.responder.send_request)

    def _notified(self, method: str, params: Json) -> None:
        waiting = self if self.suspended is None else self.suspended.waiting
        if waiting is not None:
            forward_notification(waiting, method, params)

    def _reply(self, call: Call) -> None:
        if self.suspended is not None:
            self.suspended.ended(call)
        elif type(call.outcome) is NeedsInput and self.session is not None:
            if self.input_required_loop is None:
                self.input_required_loop = InputRequiredLoop(self)
            self.input_required_loop.continue_with(call.source, call.outcome.raw)
        else:
            self.input_required_loop = None
            self.calls.remove(self.key)
            self.respond(call)

    def respond(self, call: Call) -> None:
        """Send the outcome to the client, translated to its era."""
        try:
            if self.session is None:
                respond_modern(self, call, self._suspended_calls)
            else:
                respond_legacy(self, self.session, call, self._router)
        except (BadMessage, RecursionError):  # its connection could just parse it, and this is some frames deeper
            problem = Problem(
                code=SOURCE_PROTOCOL,
                message=f"Server {call.source}: the response is nested too deeply",
                source=call.source,
                tool=call.tool,
                phase="sent",
                executed="unknown",
            )
            refuse(self.responder, problem)
        except Exception:  # a bug of ours: the client gets a response, and the router tells the operator
            refuse(self.responder, internal_problem())
            raise


# -- outcomes in the words of the client's era ------------------------------------------------------------------------

_READ_HINTS: Final = {"ttlMs": b"0", "cacheScope": b'"private"'}
_OLD: Final = frozenset(LEGACY[:2])
"""Versions whose clients cannot read every result of today's servers."""
_TRANSLATED: Final = b"-32"
"""What every code that may have to be translated begins with."""


def respond_modern(context: RequestContext, call: Call, suspended_calls: SuspendedCalls) -> None:
    outcome = call.outcome
    if isinstance(outcome, Result):
        raw = completed_result(outcome.raw)
        if call.method == RESOURCES_READ:
            raw = _with_cache_hints(raw)
        elif call.method == TASKS_GET and _has(raw, "inputRequests"):
            raw = labelled_result(call.source, raw, in_text=suspended_calls.rules.names_servers())
        context.responder.result(Result(raw, outcome.message))
    elif isinstance(outcome, NeedsInput):
        raw = labelled_result(call.source, outcome.raw, in_text=suspended_calls.rules.names_servers())
        context.responder.result(Result(raw))
    elif isinstance(outcome, RemoteError) and _TRANSLATED in bytes(outcome.raw):
        _modern_error(context, call, outcome.raw, suspended_calls)
    else:
        respond(context.responder, call)


def _modern_error(context: RequestContext, call: Call, error: Json, suspended_calls: SuspendedCalls) -> None:
    if error_code(error) == URL_ELICITATION_REQUIRED:
        input_required = suspended_calls.urls_to_visit(context, call.source, error)
        if input_required is not None:
            context.responder.result(own_result(input_required))
            return
    uri = text_member(context.params, "uri") if call.method == RESOURCES_READ else None
    context.responder.error(error_for_modern(error, uri), None)


def _with_cache_hints(raw: bytes) -> bytes:
    """Say that a resource may not be cached for any time or for anybody else, unless its server says otherwise."""
    missing = [b'"%b":%b,' % (name.encode(), value) for name, value in _READ_HINTS.items() if not _has(raw, name)]
    return b"{%b%b" % (b"".join(missing), raw[1:]) if missing else raw


def _has(raw: bytes, name: str) -> bool:
    return (b'"%b"' % name.encode() in raw or b"\\u" in raw) and has_member(raw, name)


def respond_legacy(context: RequestContext, session: ClientSession, call: Call, router: Router) -> None:
    outcome = call.outcome
    if isinstance(outcome, Result):
        snapshot = router.catalog.snapshot(call.source)
        newer = snapshot is not None and snapshot.protocol_version in MODERN
        if (newer or session.version in _OLD) and call.method in WITH_CONTENT:
            raw = downgraded_result(outcome.raw, session.version, outcome.message)
            if raw is not outcome.raw:
                outcome = Result(raw)
        context.responder.result(outcome)
    elif isinstance(outcome, RemoteError) and _TRANSLATED in bytes(outcome.raw):
        reading = call.method == RESOURCES_READ and _is_modern(router, call.source)
        context.responder.error(error_for_legacy(outcome.raw, reading=reading), None)
    elif isinstance(outcome, Failure) and outcome.problem.code is not CANCELLED and call.method != COMPLETION_COMPLETE:
        context.responder.error(legacy_error(outcome.problem), outcome.problem)
    else:
        respond(context.responder, call)


def legacy_error(problem: Problem) -> bytes:
    """A problem of the gateway's with a code that clients of versions before 2026-07-28 know."""
    known = problem.code.jsonrpc
    code = RESOURCE_NOT_FOUND if problem.code is UNKNOWN_RESOURCE else legacy_code(known)
    if code == known:
        return encode_error(problem)
    return encode({"code": code, "message": problem.message, "data": problem.data()})


def _is_modern(router: Router, source: str) -> bool:
    snapshot = router.catalog.snapshot(source)
    return snapshot is not None and snapshot.protocol_version in MODERN


# -- parameters -------------------------------------------------------------------------------------------------------

_OPEN_BRACE: Final = 0x7B
_TEXTS: Final = {
    PROMPTS_GET: "name",
    RESOURCES_READ: "uri",
    TASKS_GET: "taskId",
    TASKS_UPDATE: "taskId",
    TASKS_CANCEL: "taskId",
    TASKS_RESULT: "taskId",
}
_OBJECTS: Final = {COMPLETION_COMPLETE: ("ref", "argument"), TASKS_UPDATE: ("inputResponses",)}


def invalid_params(method: str | None, params: Members) -> Problem | None:
    """The problem with the parameters of a request; None if they have the right types."""
    name = _TEXTS.get(method or "")
    if name is not None and text_or_none(params, name) is None:
        return _must_be(name, "a string")
    for name in _OBJECTS.get(method or "", ()):
        if name not in params or memoryview(params[name])[0] != _OPEN_BRACE:
            return _must_be(name, "an object")
    return invalid_arguments(params)


def invalid_arguments(params: Members) -> Problem | None:
    """The problem with `arguments`: an object, or null, which some clients write for none and the server judges."""
    arguments = params.get("arguments")
    if arguments is None or memoryview(arguments)[0] == _OPEN_BRACE or bytes(arguments) == b"null":
        return None
    return _must_be("arguments", "an object")


def _must_be(name: str, what: str) -> Problem:
    return Problem(code=INVALID_PARAMS, message=f"`params.{name}` must be {what}")


NO_NAME: Final = _must_be("name", "a string")
