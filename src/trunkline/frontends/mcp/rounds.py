"""A legacy client and a modern server: what the server wants to know is asked, and the call is made again with it.

Each round is a call of its own. The client sees one request with questions in between, as it knows it from servers of
its own era.
"""

from __future__ import annotations

import asyncio
import secrets
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from trunkline.core.call import Json
from trunkline.core.errors import CANCELLED, NOT_ANSWERED, SOURCE_PROTOCOL, Code, Problem
from trunkline.core.server_request import ResponseKind, ServerRequest
from trunkline.frontends.mcp.answer import refuse
from trunkline.protocol.jsonrpc import BadMessage, Members, encode, encode_members, members_of
from trunkline.protocol.mcp.methods import ELICITATION
from trunkline.protocol.mcp.server_requests import MAY_ASK, ROUND_MEMBERS, Asking, read_input_required
from trunkline.protocol.mcp.translation import message_of

if TYPE_CHECKING:
    from trunkline.frontends.mcp.calls import RoutedCall

MAX_ROUNDS: Final = 10
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 5.0
_CANCEL: Final = b'{"action":"cancel"}'


class Rounds:
    def __init__(self, routed: RoutedCall) -> None:
        self._routed = routed
        self._source = ""
        self._count = 0
        self._state: bytes | None = None
        self._questions: list[ServerRequest] = []
        self._answers: dict[str, Json] = {}
        self._pause: asyncio.TimerHandle | None = None
        self._over = False

    def go_on(self, source: str, raw: Json) -> None:
        """The server cannot go on without this."""
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
        if self._routed.message.method not in MAY_ASK:
            self._fail(SOURCE_PROTOCOL, "asked for input where the protocol allows none")
            return
        self._state = required.state
        self._answers = {}
        self._routed.calls.add(self._routed.key, self)
        if required.asked:
            self._ask(required.asked)
        else:
            pause_s = min(_FIRST_PAUSE_S * 2 ** (self._count - 1), _LONGEST_PAUSE_S)
            self._pause = asyncio.get_running_loop().call_later(pause_s, self._again)

    # -- the client's part ----------------------------------------------------------------------------------------

    def _ask(self, asked: dict[str, Asking]) -> None:
        """Everything at once; a question may be refused before the next one is put."""
        conversation, answer = self._routed.conversation, self._routed.answer
        assert conversation is not None
        self._questions = [
            ServerRequest(self._source, one.method, _with_id(one), partial(self._answered, key, one.method))
            for key, one in asked.items()
        ]
        for server_request in list(self._questions):
            conversation.questions.ask(server_request, answer.ask)

    def _answered(self, key: str, method: str, ending: ResponseKind, raw: Json) -> None:
        if self._over:
            return
        if ending == "error" and method != ELICITATION:
            self._fail(NOT_ANSWERED, f"`{method}` was not answered: {message_of(raw)}")
            return
        self._answers[key] = raw if ending == "result" else _CANCEL
        if len(self._answers) == len(self._questions):
            self._again()

    def _again(self) -> None:
        """The same request with what the client answered, and the server's state as it wrote it."""
        self._pause = None
        members: Members = {name: value for name, value in self._routed.params.items() if name not in ROUND_MEMBERS}
        if self._questions:
            members["inputResponses"] = msgspec.Raw(encode_members(self._answers))
        if self._state is not None:
            members["requestState"] = msgspec.Raw(self._state)
        self._questions = []
        self._routed.send_again(members)

    # -- the end --------------------------------------------------------------------------------------------------

    def cancel(self, why: str) -> bool:
        """The client takes the request back while it is being asked."""
        if self._over:
            return False
        self._end()
        self._routed.answer.cancelled(self._problem(CANCELLED, f"Call cancelled: {why}"))
        return True

    def _fail(self, code: Code, reason: str) -> None:
        self._end()
        refuse(self._routed.answer, self._problem(code, f"Server {self._source}: {reason}"))

    def _end(self) -> None:
        self._over = True
        self._routed.rounds = None
        self._routed.calls.remove(self._routed.key)
        if self._pause is not None:
            self._pause.cancel()
        questions, self._questions = self._questions, []
        for server_request in questions:
            server_request.withdraw()

    def _problem(self, code: Code, message: str) -> Problem:
        tool = self._routed.call.tool if self._routed.call is not None else ""
        return Problem(code=code, message=message, source=self._source, tool=tool, phase="sent", executed="unknown")


def _with_id(asking: Asking) -> bytes:
    """A URL to visit has an id in the legacy era, and none in the modern one."""
    if asking.method != ELICITATION:
        return asking.params
    params = members_of(asking.params, "`params`")
    if bytes(params.get("mode", b"")) != b'"url"' or "elicitationId" in params:
        return asking.params
    return encode_members({**params, "elicitationId": encode(secrets.token_urlsafe(12))})
