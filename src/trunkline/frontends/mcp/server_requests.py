"""Requests of servers to a legacy client: sampling, elicitation and roots, and the loop that a modern server needs."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from trunkline.core.call import PROGRESS, Caller, Json
from trunkline.core.errors import CANCELLED, NOT_ANSWERED, SOURCE_PROTOCOL, Code, Problem
from trunkline.core.server_request import NO_CLIENT_ERROR, ResponseKind, ServerRequest
from trunkline.frontends.mcp.notifications import wants_log_message
from trunkline.frontends.mcp.requests import refuse
from trunkline.protocol.jsonrpc import (
    BadMessage,
    Members,
    Message,
    MessageId,
    encode,
    encode_members,
    encode_notification,
    members_of,
    read_id,
    single_line,
    text_member,
)
from trunkline.protocol.mcp.methods import (
    ELICITATION_CREATE,
    MAY_REQUIRE_INPUT,
    NOTIFICATIONS_CANCELLED,
    NOTIFICATIONS_ELICITATION_COMPLETE,
    NOTIFICATIONS_MESSAGE,
)
from trunkline.protocol.mcp.server_requests import (
    RETRY_MEMBERS,
    InputRequest,
    labelled,
    read_input_required,
    refusal,
)
from trunkline.protocol.mcp.translation import error_text
from trunkline.runtime.deadlines import Deadline

if TYPE_CHECKING:
    from trunkline.frontends.mcp.calls import RoutedCall
    from trunkline.frontends.mcp.clients import ClientSession

MAX_OPEN: Final = 64
_OPEN_BRACE: Final = 0x7B
_ELICITS_SINCE: Final = "2025-06-18"
_VISITS_URLS_SINCE: Final = "2025-11-25"
_OF_ONE_HOP: Final = frozenset({PROGRESS, NOTIFICATIONS_CANCELLED})
Send = Callable[[bytes], bool]


@dataclass(frozen=True, slots=True)
class ServerRequestRules:
    """How long a client may take to answer, and whether a request must name the server that sends it."""

    timeout_s: float
    names_servers: Callable[[], bool]


class _PendingRequest:
    """A request that the client has not answered. `token` is the server's own for progress, as JSON."""

    __slots__ = ("send", "server_request", "timer", "token")

    def __init__(self, server_request: ServerRequest, send: Send | None, timer: Deadline, token: Json | None) -> None:
        self.server_request = server_request
        self.send = send
        self.timer = timer
        self.token = token


class PendingServerRequests:
    """The requests of servers to one legacy client, sent under ids of the gateway's."""

    def __init__(self, session: ClientSession) -> None:
        self._session: ClientSession | None = session
        self._rules: ServerRequestRules | None = None
        self._open: dict[MessageId, _PendingRequest] = {}
        self._last_id = 0

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, rules: ServerRequestRules) -> None:
        """Send requests from now on: the client has declared its capabilities."""
        self._rules = rules

    # -- from servers ---------------------------------------------------------------------------------------------

    def send_request(self, server_request: ServerRequest, send: Send | None = None) -> None:
        """Send a request to the client: with `send` if that can carry it, else outside any request."""
        if server_request.ended:
            return
        session, rules = self._session, self._rules
        if rules is None or session is None or session.push is None:
            server_request.refuse(NO_CLIENT_ERROR)
            return
        if len(self._open) >= MAX_OPEN:
            refused = _error(-32603, f"The client has {MAX_OPEN} requests open already")
        else:
            refused = request_refusal(session.caller, server_request.method, server_request.params)
        if refused is not None:
            server_request.refuse(refused)
            return
        number = self._last_id = self._last_id + 1
        try:
            message, token = _message(number, server_request, in_text=rules.names_servers())
        except (BadMessage, RecursionError) as error:
            server_request.refuse(_error(-32602, f"The request cannot be passed on: {error}"))
            return
        timer = Deadline(rules.timeout_s, partial(self._expired, number, rules.timeout_s))
        self._open[number] = _PendingRequest(server_request, send, timer, token)
        server_request.on_withdrawn = lambda: self._cancel(number, "the server withdrew its request")
        self._send(send, message)

    def _send(self, send: Send | None, message: bytes) -> None:
        push = None if self._session is None else self._session.push
        if not (send is not None and send(message)) and push is not None:
            push(message)

    def _expired(self, number: int, timeout_s: float) -> None:
        waiting = self._open[number]
        self._cancel(number, "there was no answer in time")
        waiting.server_request.refuse(_error(-32603, f"The client gave no answer within {timeout_s:g} seconds"))

    def _cancel(self, number: int, reason: str) -> None:
        """Tell the client that its answer is not needed any more."""
        waiting = self._take(number)
        if waiting is not None:
            params = b'{"requestId":%d,"reason":%b}' % (number, encode(reason))
            self._send(waiting.send, encode_notification(NOTIFICATIONS_CANCELLED, params))

    def notify(self, method: str, params: Json) -> None:
        """Pass on a notification that one of this client's own servers sent outside any call."""
        if self._session is None:
            return
        caller = self._session.caller
        if method in _OF_ONE_HOP or (method == NOTIFICATIONS_MESSAGE and not wants_log_message(caller, params)):
            return
        if method == NOTIFICATIONS_ELICITATION_COMPLETE and caller.version < _VISITS_URLS_SINCE:
            return
        try:
            self._send(None, encode_notification(method, single_line(params)))
        except BadMessage:
            return

    # -- from the client ------------------------------------------------------------------------------------------

    def handle_response(self, message: Message) -> None:
        """Pass a response of the client to the server that waits for it; drop one that nobody waits for (any more)."""
        waiting = None if message.id is None else self._take(message.id)
        if waiting is None:
            return
        raw = message.error if message.result is None else message.result
        try:
            text = b"" if raw is None else single_line(raw)
        except BadMessage:
            text = b""
        if not text or text[0] != _OPEN_BRACE:
            waiting.server_request.refuse(_error(-32603, "The client's answer is not an object that can be passed on"))
        elif message.result is None:
            waiting.server_request.refuse(text)
        else:
            waiting.server_request.answer(text)

    def handle_progress(self, message: Message) -> None:
        """Pass on the client's progress on a request whose server asked for it."""
        try:
            params = {} if message.params is None else members_of(message.params, "`params`")
            number = params.get("progressToken")
            waiting = None if number is None else self._open.get(read_id(number))
            if waiting is not None and waiting.token is not None:
                waiting.server_request.progressed(
                    single_line(encode_members({**params, "progressToken": waiting.token}))
                )
        except BadMessage:
            return

    def close(self) -> None:
        """Refuse what is open: the client is gone."""
        waiting, self._open = self._open, {}
        for one in waiting.values():
            one.timer.cancel()
            one.server_request.refuse(_error(-32603, "The client is gone"))
        self._session = None  # a cycle would stay until the collector finds it

    def _take(self, number: MessageId) -> _PendingRequest | None:
        waiting = self._open.pop(number, None)
        if waiting is not None:
            waiting.timer.cancel()
        return waiting


def _message(number: int, server_request: ServerRequest, *, in_text: bool) -> tuple[bytes, Json | None]:
    """The request as the client gets it, and the server's token for progress on it."""
    params = labelled(server_request.source, server_request.method, server_request.params, in_text=in_text)
    meta = members_of(bytes(params["_meta"]), "`_meta`")
    token = meta.get("progressToken")
    if token is not None:
        params["_meta"] = encode_members({**meta, "progressToken": b"%d" % number})
    head = b'{"jsonrpc":"2.0","id":%d,"method":%b,"params":' % (number, encode(server_request.method))
    return b"%b%b}" % (head, encode_members(params)), None if token is None else bytes(token)


def request_refusal(caller: Caller, method: str, params: Json) -> bytes | None:
    """The JSON-RPC error for a request that this client does not support; None if it does."""
    if method == ELICITATION_CREATE and caller.version < _ELICITS_SINCE:
        return _error(-32601, f"The client speaks {caller.version or 'no version'}, which has no elicitation")
    refused = refusal(caller.capabilities, method, bytes(params))
    if refused is not None or method != ELICITATION_CREATE or caller.version >= _VISITS_URLS_SINCE:
        return refused
    mode = text_member(members_of(bytes(params), "`params`"), "mode")
    return _error(-32602, "The client does not support elicitation mode `url`") if mode == "url" else None


def _error(code: int, message: str) -> bytes:
    return encode({"code": code, "message": message})


# -- a legacy client of a modern server -------------------------------------------------------------------------------

MAX_ROUNDS: Final = 10
_FIRST_PAUSE_S: Final = 0.05
_MAX_PAUSE_S: Final = 5.0
_CANCEL: Final = b'{"action":"cancel"}'


class InputRequiredLoop:
    """Gets the input that a modern server requires from a legacy client, and sends the request again with it.

    Each round is a call of its own. The client sees one request with server requests in between, as in its own era.
    """

    def __init__(self, routed: RoutedCall) -> None:
        self._routed = routed
        self._source = ""
        self._count = 0
        self._state: bytes | None = None
        self._requests: list[ServerRequest] = []
        self._answers: dict[str, Json] = {}
        self._pause: asyncio.TimerHandle | None = None
        self._over = False

    def continue_with(self, source: str, raw: Json) -> None:
        """Handle the result `input_required` of one round."""
        self._source = source
        self._count += 1
        if self._count > MAX_ROUNDS:
            self._fail(SOURCE_PROTOCOL, f"asked for input more than {MAX_ROUNDS} times")
            return
        try:
            required = read_input_required(raw)
        except BadMessage as error:
            self._fail(SOURCE_PROTOCOL, f"asked for input that cannot be given: {error}")
            return
        if self._routed.message.method not in MAY_REQUIRE_INPUT:
            self._fail(SOURCE_PROTOCOL, "asked for input although the protocol allows none")
            return
        self._state = required.state
        self._answers = {}
        self._routed.calls.add(self._routed.key, self)
        if required.requests:
            self._request_input(required.requests)
        else:
            pause_s = min(_FIRST_PAUSE_S * 2 ** (self._count - 1), _MAX_PAUSE_S)
            self._pause = asyncio.get_running_loop().call_later(pause_s, self._again)

    def _request_input(self, requests: dict[str, InputRequest]) -> None:
        """Send all requests at once; one may be refused before the next is sent."""
        session, responder = self._routed.session, self._routed.responder
        assert session is not None
        self._requests = [
            ServerRequest(self._source, one.method, _with_id(one), partial(self._answered, key, one.method))
            for key, one in requests.items()
        ]
        for server_request in list(self._requests):
            session.server_requests.send_request(server_request, responder.send_request)

    def _answered(self, key: str, method: str, ending: ResponseKind, raw: Json) -> None:
        if self._over:
            return
        if ending == "error" and method != ELICITATION_CREATE:
            self._fail(NOT_ANSWERED, f"`{method}` was not answered: {error_text(raw)}")
            return
        self._answers[key] = raw if ending == "result" else _CANCEL
        if len(self._answers) == len(self._requests):
            self._again()

    def _again(self) -> None:
        """Send the request with the client's input and the server's state as it wrote it."""
        self._pause = None
        members: Members = {name: value for name, value in self._routed.params.items() if name not in RETRY_MEMBERS}
        if self._requests:
            members["inputResponses"] = msgspec.Raw(encode_members(self._answers))
        if self._state is not None:
            members["requestState"] = msgspec.Raw(self._state)
        self._requests = []
        self._routed.send_again(members)

    def cancel(self, why: str) -> bool:
        """The client cancels the request during a round."""
        if self._over:
            return False
        self._end()
        self._routed.responder.cancelled(self._problem(CANCELLED, f"Call cancelled: {why}"))
        return True

    def _fail(self, code: Code, reason: str) -> None:
        self._end()
        refuse(self._routed.responder, self._problem(code, f"Server {self._source}: {reason}"))

    def _end(self) -> None:
        self._over = True
        self._routed.input_required_loop = None
        self._routed.calls.remove(self._routed.key)
        if self._pause is not None:
            self._pause.cancel()
        requests, self._requests = self._requests, []
        for server_request in requests:
            server_request.withdraw()

    def _problem(self, code: Code, message: str) -> Problem:
        tool = self._routed.call.tool if self._routed.call is not None else ""
        return Problem(code=code, message=message, source=self._source, tool=tool, phase="sent", executed="unknown")


def _with_id(request: InputRequest) -> bytes:
    """Its parameters, with the `elicitationId` that mode `url` has in the legacy era only."""
    if request.method != ELICITATION_CREATE:
        return request.params
    params = members_of(request.params, "`params`")
    if bytes(params.get("mode", b"")) != b'"url"' or "elicitationId" in params:
        return request.params
    return encode_members({**params, "elicitationId": encode(secrets.token_urlsafe(12))})
