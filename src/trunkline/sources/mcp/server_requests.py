"""What a server asks on its session: answered here, handed to the client that it works for, or refused.

A server may ask only what its client declared, and only so much at a time. The answer goes out under the server's own
id; a question that the server takes back, or that outlives its session, is withdrawn.
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
from trunkline.protocol.mcp.methods import PING, SERVER_REQUEST_METHODS, TOOLS_CALL
from trunkline.protocol.mcp.server_requests import MAY_REQUIRE_INPUT, METHOD_NOT_FOUND, refusal
from trunkline.runtime.safe_calls import call_safely

MAX_OPEN: Final = 64
MAX_OPEN_BYTES: Final = 16 * 1024 * 1024
_TOO_MANY: Final = b'{"code":-32603,"message":"Too many questions are open"}'
_NOT_AN_OBJECT: Final = b'{"code":-32603,"message":"The client gave no valid answer"}'
_OVER: Final = b'{"code":-32603,"message":"The call that this was for is over"}'
_FAILED: Final = b'{"code":-32603,"message":"The client could not be asked"}'

Causes = Callable[[], tuple[Call, ...]]
"""The calls in flight that may have caused a question, the likeliest last."""


def refuse_nobody(server_request: ServerRequest) -> None:
    """Where nobody can be asked outside a call."""
    server_request.refuse(NO_CLIENT_ERROR)


class ServerRequests:
    """`declared` is what the client of this session said it can be asked. `on_server_request` takes what belongs to no
    call; until someone sets it, such questions are held (a server may ask as soon as it is greeted)."""

    def __init__(self, source: str, write: Callable[[bytes], None], count: Callable[[str], None]) -> None:
        self.declared = b"{}"
        self.any_received = False
        self._source = source
        self._write = write
        self._count = count
        self._open: dict[MessageId, ServerRequest] = {}
        self._held: dict[MessageId, Callable[[], None]] = {}
        self._on_server_request: Callable[[ServerRequest], None] | None = None
        self._on_quiet: list[Callable[[], None]] = []

    def __len__(self) -> int:
        return len(self._open)

    def when_idle(self, then: Callable[[], None]) -> None:
        """Once, when nothing is open any more: at once, if that is so."""
        self._on_quiet.append(then)
        self._tell_if_quiet()

    def _tell_if_quiet(self) -> None:
        if not self._open and self._on_quiet:
            waiting, self._on_quiet = self._on_quiet, []
            for then in waiting:
                call_safely("whoever waited for quiet", then)

    def set_handler(self, on_server_request: Callable[[ServerRequest], None]) -> None:
        """Someone takes questions outside calls from now on, and those that came too early."""
        self._on_server_request = on_server_request
        held, self._held = self._held, {}
        for ask in held.values():
            call_safely("a question that came early", ask)

    # -- what the server says -------------------------------------------------------------------------------------

    def receive(self, raw_id: msgspec.Raw, method: str, params: bytes, causes: Causes) -> None:
        """A request of the server."""
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
        else:
            refused = self._refusal(method, params)
            if refused is not None:
                self._write(error_message(id_json, refused))
            else:
                self._ask(request_id, id_json, method, params, causes)

    def _refusal(self, method: str, params: bytes) -> bytes | None:
        if method not in SERVER_REQUEST_METHODS:
            return METHOD_NOT_FOUND
        refused = refusal(self.declared, method, params)
        if refused is None and (len(self._open) + len(self._held) >= MAX_OPEN or self._is_too_much(params)):
            self._count("questions_refused")
            return _TOO_MANY
        return refused

    def _is_too_much(self, params: bytes) -> bool:
        """People take their time, and what they are asked is kept meanwhile. One question alone may be of any size."""
        open_bytes = sum(len(server_request.params) for server_request in self._open.values())
        return open_bytes > 0 and open_bytes + len(params) > MAX_OPEN_BYTES

    def _ask(self, request_id: MessageId, id_json: bytes, method: str, params: bytes, causes: Causes) -> None:
        calls = causes()
        if not calls and self._on_server_request is None:
            self._held[request_id] = partial(self._ask, request_id, id_json, method, params, causes)
            return
        server_request = ServerRequest(self._source, method, params, partial(self._reply, request_id, id_json), calls)
        server_request.on_progress = self._progressed
        self._open[request_id] = server_request
        self.any_received = True
        self._hand_over(server_request)

    def _hand_over(self, server_request: ServerRequest) -> None:
        """To the likeliest call whose client can be asked, else to the client outside any call."""
        takers = [call.on_server_request for call in server_request.calls if call.on_server_request is not None]
        ask = takers[-1] if takers else self._on_server_request or refuse_nobody
        try:
            ask(server_request)
        except Exception:  # a bug on the client's side must not cost the server's other calls
            self._count("internal_errors")
            server_request.refuse(_FAILED)

    def cancelled(self, params: bytes) -> bool:
        """The server takes back a question of its own; False when it means something else."""
        try:
            request_id = msgspec.json.decode(params, type=_Cancelled).requestId
        except (msgspec.MsgspecError, RecursionError):
            return False
        server_request = self._open.pop(request_id, None)
        if server_request is not None:
            server_request.withdraw()
            self._tell_if_quiet()
        return server_request is not None or self._held.pop(request_id, None) is not None

    # -- what goes back -------------------------------------------------------------------------------------------

    def _reply(self, request_id: MessageId, id_json: bytes, ending: ResponseKind, raw: Json) -> None:
        self._open.pop(request_id, None)
        try:
            text = single_line(raw).strip()
        except BadMessage:
            text = b""
        if not text.startswith(b"{"):
            self._write(error_message(id_json, _NOT_AN_OBJECT))
        elif ending == "result":
            self._write(result_message(id_json, text))
        else:
            self._write(error_message(id_json, text))
        self._tell_if_quiet()

    def _progressed(self, params: Json) -> None:
        self._write(encode_notification(PROGRESS, single_line(params)))

    # -- the end --------------------------------------------------------------------------------------------------

    def refuse_all(self) -> None:
        """Whatever was asked was for calls that have ended; the next one on this session may be someone else's."""
        for server_request in list(self._open.values()):
            call_safely("a question that is over", _end, server_request)

    def refuse_for(self, call: Request) -> None:
        """Nobody waits for this call any more, nor for the answers to what was asked for it alone."""
        for server_request in list(self._open.values()):
            if server_request.calls == (call,):
                call_safely("a question that is over", _end, server_request)

    def withdraw_all(self) -> None:
        """The session is gone."""
        questions, self._open = list(self._open.values()), {}
        self._held.clear()
        for server_request in questions:
            call_safely("a question that is over", server_request.withdraw)
        self._tell_if_quiet()

    def close(self) -> None:
        """Nothing is written any more."""
        self._write = _drop


def _drop(message: bytes) -> None:
    """The session it would go to is closed."""


def _end(server_request: ServerRequest) -> None:
    """The server is told that there is no answer, the client that none is wanted."""
    on_withdrawn = server_request.on_withdrawn
    if server_request.refuse(_OVER) and on_withdrawn is not None:
        on_withdrawn()


class _Cancelled(msgspec.Struct):
    requestId: int | str


# Results of modern servers that are not the last word: questions and tasks, and whether its caller takes them.

MARK: Final = b"input_required"
"""Without these bytes a result is no question."""
TASK_MARK: Final = b'"task"'
"""Without these bytes a result is no task."""
ESCAPED: Final = b"\\u00"
"""How letters of either may be spelled instead."""


def wrong_with_input(raw: Json, request: Request) -> str | None:
    """What is wrong with a result that may ask for input: empty for nothing, None when it does not ask."""
    try:
        result = members_of(bytes(raw), "the result")
        if _type_of(result) != "input_required":
            return None
        return _wrong(result, request)
    except (BadMessage, RecursionError) as error:
        return f"asks for input in a way that is not valid: {error}" if MARK in bytes(raw) else None


def _wrong(result: Members, request: Request) -> str:
    if request.method not in MAY_REQUIRE_INPUT or not isinstance(request, Call):
        return f"asks for input in an answer to `{request.method}`"
    if "inputRequests" not in result and "requestState" not in result:
        return "asks for input without saying what it needs"
    text_member(result, "requestState")
    asked = members_of(result["inputRequests"], "`inputRequests`") if "inputRequests" in result else {}
    if len(asked) > MAX_OPEN:
        return f"asks {len(asked)} things at once"
    for raw in asked.values():
        server_request = members_of(raw, "an input request")
        method = text_member(server_request, "method") or ""
        if refusal(request.caller.capabilities, method, bytes(server_request.get("params", b"{}"))) is not None:
            return f"asks its client for `{method}`, which the client did not declare"
    return ""


def wrong_with_task(raw: Json, request: Request) -> str:
    """What is wrong with a result that may be a task: nothing where it is none, or its caller knows tasks."""
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
