"""Questions of servers to a legacy client: sent under ids of ours, answered once, forgotten when it is gone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from trunkline.core.call import PROGRESS, Caller, Json
from trunkline.core.server_request import NO_CLIENT_ERROR, ServerRequest
from trunkline.frontends.mcp.logs import is_log_message, wants_log_message
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
from trunkline.protocol.mcp.methods import CANCELLED, ELICITATION
from trunkline.protocol.mcp.server_requests import labelled, refusal
from trunkline.runtime.deadlines import Deadline

if TYPE_CHECKING:
    from trunkline.frontends.mcp.conversation import Conversation

MAX_OPEN: Final = 64
_OPEN_BRACE: Final = 0x7B
_ELICITS_SINCE: Final = "2025-06-18"
_VISITS_URLS_SINCE: Final = "2025-11-25"
_ELICITATION_COMPLETE: Final = "notifications/elicitation/complete"
_OF_ONE_HOP: Final = frozenset({PROGRESS, CANCELLED})
Send = Callable[[bytes], bool]


@dataclass(frozen=True, slots=True)
class Rules:
    """How long a client may think, and whether it must be told which of several servers asks."""

    question_s: float
    names_servers: Callable[[], bool]


class _Open:
    """A question that the client has and has not answered. `token` is the server's own for progress, as JSON."""

    __slots__ = ("send", "server_request", "timer", "token")

    def __init__(self, server_request: ServerRequest, send: Send | None, timer: Deadline, token: Json | None) -> None:
        self.server_request = server_request
        self.send = send
        self.timer = timer
        self.token = token


class ClientQuestions:
    def __init__(self, conversation: Conversation) -> None:
        self._conversation: Conversation | None = conversation
        self._rules: Rules | None = None
        self._open: dict[MessageId, _Open] = {}
        self._last_id = 0

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, rules: Rules) -> None:
        """The client has said what it can be asked."""
        self._rules = rules

    # -- from servers ---------------------------------------------------------------------------------------------

    def ask(self, server_request: ServerRequest, send: Send | None = None) -> None:
        """Put a question to the client: with `send` where that can carry it, else outside any request."""
        if server_request.ended:
            return
        refused = self._refusal(server_request)
        if refused is not None:
            server_request.refuse(refused)
            return
        number = self._last_id = self._last_id + 1
        try:
            message, token = self._message(number, server_request)
        except (BadMessage, RecursionError) as error:
            server_request.refuse(_error(-32602, f"The question cannot be passed on: {error}"))
            return
        self._expect(number, server_request, send, token)
        self._send(send, message)

    def _refusal(self, server_request: ServerRequest) -> bytes | None:
        conversation = self._conversation
        if self._rules is None or conversation is None or conversation.push is None:
            return NO_CLIENT_ERROR
        if len(self._open) >= MAX_OPEN:
            return _error(-32603, f"The client has {MAX_OPEN} questions open already")
        return why_not(conversation.caller, server_request.method, server_request.params)

    def _message(self, number: int, server_request: ServerRequest) -> tuple[bytes, Json | None]:
        """The request as the client gets it, and the server's token for progress on it."""
        in_text = self._rules is not None and self._rules.names_servers()
        params = labelled(server_request.source, server_request.method, server_request.params, in_text=in_text)
        meta = members_of(bytes(params["_meta"]), "`_meta`")
        token = meta.get("progressToken")
        if token is not None:
            params["_meta"] = encode_members({**meta, "progressToken": b"%d" % number})
        head = b'{"jsonrpc":"2.0","id":%d,"method":%b,"params":' % (number, encode(server_request.method))
        return b"%b%b}" % (head, encode_members(params)), None if token is None else bytes(token)

    def _expect(self, number: int, server_request: ServerRequest, send: Send | None, token: Json | None) -> None:
        assert self._rules is not None
        question_s = self._rules.question_s
        timer = Deadline(question_s, partial(self._expired, number, question_s))
        self._open[number] = _Open(server_request, send, timer, token)
        server_request.on_withdrawn = lambda: self._take_back(number, "the server took its question back")

    def _send(self, send: Send | None, message: bytes) -> None:
        push = None if self._conversation is None else self._conversation.push
        if not (send is not None and send(message)) and push is not None:
            push(message)

    def _expired(self, number: int, question_s: float) -> None:
        waiting = self._open[number]
        self._take_back(number, "there was no answer in time")
        waiting.server_request.refuse(_error(-32603, f"The client gave no answer within {question_s:g} seconds"))

    def _take_back(self, number: int, reason: str) -> None:
        """The client need not answer any more."""
        waiting = self._take(number)
        if waiting is not None:
            params = b'{"requestId":%d,"reason":%b}' % (number, encode(reason))
            self._send(waiting.send, encode_notification(CANCELLED, params))

    def tell(self, method: str, params: Json) -> None:
        """What one of this client's own servers says outside any call."""
        if self._conversation is None:
            return
        caller = self._conversation.caller
        if method in _OF_ONE_HOP or (is_log_message(method) and not wants_log_message(caller, params)):
            return
        if method == _ELICITATION_COMPLETE and caller.version < _VISITS_URLS_SINCE:
            return
        try:
            self._send(None, encode_notification(method, single_line(params)))
        except BadMessage:
            return

    # -- from the client ------------------------------------------------------------------------------------------

    def answered(self, message: Message) -> None:
        """Its answer to a question of before; one that nobody asked, or that comes late, is nobody's."""
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

    def progressed(self, message: Message) -> None:
        """The client is at work on a question whose server wants to hear of that."""
        try:
            params = {} if message.params is None else members_of(message.params, "`params`")
            number = _token_in(params)
            waiting = None if number is None else self._open.get(number)
            if waiting is not None and waiting.token is not None:
                waiting.server_request.progressed(
                    single_line(encode_members({**params, "progressToken": waiting.token}))
                )
        except BadMessage:
            return

    def close(self) -> None:
        """The client is gone."""
        waiting, self._open = self._open, {}
        for one in waiting.values():
            one.timer.cancel()
            one.server_request.refuse(_error(-32603, "The client is gone"))
        self._conversation = None  # a cycle would stay until the collector finds it

    def _take(self, number: MessageId) -> _Open | None:
        waiting = self._open.pop(number, None)
        if waiting is not None:
            waiting.timer.cancel()
        return waiting


def why_not(caller: Caller, method: str, params: Json) -> bytes | None:
    """The JSON-RPC error for what this client cannot be asked; None when it can."""
    if method == ELICITATION and caller.version < _ELICITS_SINCE:
        return _error(-32601, f"The client speaks {caller.version or 'no version'}, which has no elicitation")
    refused = refusal(caller.capabilities, method, bytes(params))
    if refused is None and method == ELICITATION and caller.version < _VISITS_URLS_SINCE and _is_url(params):
        return _error(-32602, "The client takes no elicitations of mode `url`")
    return refused


def _is_url(params: Json) -> bool:
    return text_member(members_of(bytes(params), "`params`"), "mode") == "url"


def _token_in(params: Members) -> MessageId | None:
    token = params.get("progressToken")
    return None if token is None else read_id(token)


def _error(code: int, message: str) -> bytes:
    return encode({"code": code, "message": message})
