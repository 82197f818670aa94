"""Requests that a server makes: on its own session, or inside a result (`input_required`, tasks).

A server may request only what its client declared, and only so much at a time. Answers go out under the server's own
id; a request that the server cancels, or that outlives its session, is withdrawn.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from trunkline.core.call import PROGRESS, Call, Json, Request
from trunkline.core.server_request import NO_CLIENT_ERROR, ResponseKind, ServerRequest
from trunkline.protocol.jsonrpc import (
    BadMessage,
    Members,
    MessageId,
    encode_notification,
    error_message,
    members_of,
    read_id,
    result_message,
    single_line,
    text_member,
)
from trunkline.protocol.mcp.capabilities import TASKS, extensions
from trunkline.protocol.mcp.methods import MAY_REQUIRE_INPUT, PING, SERVER_REQUEST_METHODS, TOOLS_CALL
from trunkline.protocol.mcp.server_requests import METHOD_NOT_FOUND, refusal
from trunkline.runtime.safe_callbacks import call_safely

MAX_OPEN: Final = 64
MAX_OPEN_BYTES: Final = 16 * 1024 * 1024
_TOO_MANY: Final = b'{"code":-32603,"message":"Too many requests are open"}'
_NOT_AN_OBJECT: Final = b'{"code":-32603,"message":"The client gave no valid answer"}'
_CALL_ENDED: Final = b'{"code":-32603,"message":"The call that this was for has ended"}'
_FAILED: Final = b'{"code":-32603,"message":"The client could not be asked"}'

INPUT_MARK: Final = b"input_required"
"""Without these bytes a result asks for no input."""
TASK_MARK: Final = b'"task"'
"""Without these bytes a result is no task."""
ESCAPED: Final = b"\\u00"
"""Letters of either may be spelled like this instead."""

FindCalls = Callable[[], tuple[Call, ...]]
"""Finds the calls in flight that may have caused a request, the likeliest last."""


def refuse_without_client(server_request: ServerRequest) -> None:
    """Refuses what belongs to no call if there is no client to forward it to."""
    server_request.refuse(NO_CLIENT_ERROR)


class CancelledParams(msgspec.Struct):
    """The `params` of `notifications/cancelled`."""

    requestId: int | str


class ServerRequests:
    """The open requests of one server. `declared` is what the client of this session can be asked.

    Requests that belong to no call go to the handler; until one is set they are held, since a server may send them as
    soon as it is initialized.
    """

    def __init__(self, source: str, write: Callable[[bytes], None], count: Callable[[str], None]) -> None:
        self.declared = b"{}"
        self.any_received = False
        self._source = source
        self._write: Callable[[bytes], None] = write
        self._count = count
        self._open: dict[MessageId, ServerRequest] = {}
        self._held: dict[MessageId, Callable[[], None]] = {}
        self._handler: Callable[[ServerRequest], None] | None = None
        self._on_idle: list[Callable[[], None]] = []

    def __len__(self) -> int:
        return len(self._open)

    def when_idle(self, then: Callable[[], None]) -> None:
        """Call `then` once, as soon as nothing is open any more."""
        self._on_idle.append(then)
        self._notify_if_idle()

    def _notify_if_idle(self) -> None:
        if not self._open and self._on_idle:
            waiting, self._on_idle = self._on_idle, []
            for then in waiting:
                call_safely("what waits for a server's requests", then)

    def set_handler(self, handler: Callable[[ServerRequest], None]) -> None:
        """Hand requests outside calls to `handler` from now on, those held so far included."""
        self._handler = handler
        held, self._held = self._held, {}
        for forward in held.values():
            call_safely("a held server request", forward)

    # -- received -----------------------------------------------------------------------------------------------------

    def receive(self, raw_id: msgspec.Raw, method: str, params: bytes, find_calls: FindCalls) -> None:
        """Answer, forward or refuse a request of the server."""
        try:
            request_id = read_id(raw_id)
        except BadMessage:
            self._count("protocol_errors")
            return
        id_json = bytes(raw_id)
        if method == PING:
            self._write(result_message(id_json, b"{}"))
        elif request_id in self._open or request_id in self._held:  # an error under its id would answer the first one
            self._count("protocol_errors")
        elif (refused := self._refusal(method, params)) is not None:
            self._write(error_message(id_json, refused))
        else:
            self._forward(request_id, id_json, method, params, find_calls)

    def _refusal(self, method: str, params: bytes) -> bytes | None:
        if method not in SERVER_REQUEST_METHODS:
            return METHOD_NOT_FOUND
        refused = refusal(self.declared, method, params)
        if refused is not None:
            return refused
        # People take their time, and what they are asked is kept meanwhile. One request alone may be of any size.
        open_bytes = sum(len(server_request.params) for server_request in self._open.values())
        too_large = open_bytes > 0 and open_bytes + len(params) > MAX_OPEN_BYTES
        if too_large or len(self._open) + len(self._held) >= MAX_OPEN:
            self._count("server_requests_refused")
            return _TOO_MANY
        return None

    def _forward(
        self, request_id: MessageId, id_json: bytes, method: str, params: bytes, find_calls: FindCalls
    ) -> None:
        """Hand it to the likeliest call whose client can be asked, else to the handler of requests outside calls."""
        calls = find_calls()
        if not calls and self._handler is None:
            self._held[request_id] = partial(self._forward, request_id, id_json, method, params, find_calls)
            return
        server_request = ServerRequest(self._source, method, params, partial(self._reply, request_id, id_json), calls)
        server_request.on_progress = self._forward_progress
        self._open[request_id] = server_request
        self.any_received = True
        handlers = [call.on_server_request for call in calls if call.on_server_request is not None]
        handler = handlers[-1] if handlers else self._handler or refuse_without_client
        try:
            handler(server_request)
        except Exception:  # a bug on the client's side must not cost the server's other calls
            self._count("internal_errors")
            server_request.refuse(_FAILED)

    def cancelled(self, params: bytes) -> bool:
        """Withdraw a request that the server cancels; False when the notification is about something else."""
        try:
            request_id = msgspec.json.decode(params, type=CancelledParams).requestId
        except (msgspec.MsgspecError, RecursionError):
            return False
        server_request = self._open.pop(request_id, None)
        if server_request is not None:
            server_request.withdraw()
            self._notify_if_idle()
        return server_request is not None or self._held.pop(request_id, None) is not None

    # -- answers ------------------------------------------------------------------------------------------------------

    def _reply(self, request_id: MessageId, id_json: bytes, kind: ResponseKind, raw: Json) -> None:
        self._open.pop(request_id, None)
        try:
            text = single_line(raw).strip()
        except BadMessage:
            text = b""
        if not text.startswith(b"{"):
            self._write(error_message(id_json, _NOT_AN_OBJECT))
        else:
            self._write((result_message if kind == "result" else error_message)(id_json, text))
        self._notify_if_idle()

    def _forward_progress(self, params: Json) -> None:
        self._write(encode_notification(PROGRESS, single_line(params)))

    def refuse_all(self) -> None:
        """Refuse everything: its calls have ended, and the next one on this session may be someone else's."""
        for server_request in list(self._open.values()):
            call_safely("a server request that is over", _refuse, server_request)

    def refuse_for(self, call: Request) -> None:
        """Refuse what was requested for this call alone, as nobody waits for it any more."""
        for server_request in list(self._open.values()):
            if server_request.calls == (call,):
                call_safely("a server request that is over", _refuse, server_request)

    def withdraw_all(self) -> None:
        """Withdraw everything from the clients: the session is lost."""
        withdrawn, self._open = list(self._open.values()), {}
        self._held.clear()
        for server_request in withdrawn:
            call_safely("a server request that is over", server_request.withdraw)
        self._notify_if_idle()

    def close(self) -> None:
        """Write nothing any more."""
        self._write = lambda _: None


def _refuse(server_request: ServerRequest) -> None:
    """Tell the server that there is no answer, and the client that none is wanted."""
    on_withdrawn = server_request.on_withdrawn
    if server_request.refuse(_CALL_ENDED) and on_withdrawn is not None:
        on_withdrawn()


# -- results of modern servers that ask for input, or are tasks -------------------------------------------------------


def wrong_with_input(raw: Json, request: Request) -> str | None:
    """What is wrong with a result that may ask for input: empty for nothing, None when it does not ask."""
    try:
        result = members_of(bytes(raw), "the result")
        return _wrong_with_requests(result, request) if _type_of(result) == "input_required" else None
    except (BadMessage, RecursionError) as error:
        return f"asks for input in a way that is not valid: {error}" if INPUT_MARK in bytes(raw) else None


def _wrong_with_requests(result: Members, request: Request) -> str:
    if request.method not in MAY_REQUIRE_INPUT or not isinstance(request, Call):
        return f"asks for input in an answer to `{request.method}`"
    if "inputRequests" not in result and "requestState" not in result:
        return "asks for input without saying what it needs"
    text_member(result, "requestState")
    requests = members_of(result["inputRequests"], "`inputRequests`") if "inputRequests" in result else {}
    if len(requests) > MAX_OPEN:
        return f"makes {len(requests)} requests at once"
    for raw in requests.values():
        members = members_of(raw, "an input request")
        method = text_member(members, "method") or ""
        if refusal(request.caller.capabilities, method, bytes(members.get("params", b"{}"))) is not None:
            return f"asks its client for `{method}`, which the client did not declare"
    return ""


def wrong_with_task(raw: Json, request: Request) -> str:
    """What is wrong with a result that may be a task: empty if it is none, or its caller knows tasks."""
    try:
        if _type_of(members_of(bytes(raw), "the result")) != "task":
            return ""
    except (BadMessage, RecursionError):
        return ""
    if request.method != TOOLS_CALL or not isinstance(request, Call):
        return f"made a task of `{request.method}`"
    if TASKS in extensions(request.caller.capabilities):
        return ""
    return f"made a task of the call, though its client did not declare `{TASKS}`"


def _type_of(result: Members) -> str | None:
    try:
        return text_member(result, "resultType")
    except BadMessage:
        return None
