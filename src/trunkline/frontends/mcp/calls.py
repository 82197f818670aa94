"""One call between its client and the router."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Final

from trunkline.core.call import Call, Caller, Json, NeedsInput
from trunkline.core.errors import INTERNAL, SOURCE_PROTOCOL, Problem
from trunkline.core.server_request import ServerRequest
from trunkline.frontends.mcp.answer import Answer, refuse
from trunkline.frontends.mcp.asked import Asked
from trunkline.frontends.mcp.client_calls import ClientCalls
from trunkline.frontends.mcp.delivery import deliver_legacy, deliver_modern
from trunkline.frontends.mcp.notices import pass_on
from trunkline.frontends.mcp.parameters import NO_NAME, text_or_none, wrong_with, wrong_with_arguments
from trunkline.frontends.mcp.rounds import Rounds
from trunkline.protocol.jsonrpc import BadMessage, Members, Message, single_line, text_member
from trunkline.protocol.mcp.capabilities import NOTHING
from trunkline.protocol.mcp.modern import HOP_OWNED
from trunkline.router.router import Router

if TYPE_CHECKING:
    from trunkline.frontends.mcp.conversation import Conversation
    from trunkline.frontends.mcp.parking import ParkedCall, Parking

_HOP_OWNED: Final = frozenset(name.casefold() for name in HOP_OWNED)
"""Compared without case: a server that ignores case must not find a second progress token."""


class RoutedCall(Asked):
    """A request that one server answers: tied to its call, and to its client where the server asks something meanwhile.

    `parked` is set once a modern client had to be asked: then the answer may belong to a later request.
    """

    __slots__ = ("_parking", "_router", "call", "parked", "rounds")

    def __init__(
        self,
        message: Message,
        params: Members,
        meta: Members | None,
        answer: Answer,
        caller: Caller,
        calls: ClientCalls,
        key: Hashable,
        conversation: Conversation | None,
        parking: Parking,
    ) -> None:
        # All members here, not by way of the base class: that would cost every call a third of a microsecond.
        self.message = message
        self.params = params
        self.meta = meta
        self.answer = answer
        self.caller = caller
        self.calls = calls
        self.key = key
        self.conversation = conversation
        self.call: Call | None = None
        self.parked: ParkedCall | None = None
        self._parking = parking
        self.rounds: Rounds | None = None

    @classmethod
    def of(cls, asked: Asked, parking: Parking) -> RoutedCall:
        return cls(
            asked.message,
            asked.params,
            asked.meta,
            asked.answer,
            asked.caller,
            asked.calls,
            asked.key,
            asked.conversation,
            parking,
        )

    def call_tool(self, router: Router) -> None:
        """`tools/call`, the one method where every microsecond counts."""
        members = self.params
        try:
            name = text_member(members, "name")
        except BadMessage:
            name = None
        if name is None:
            refuse(self.answer, NO_NAME)
            return
        if "requestState" in members and self.conversation is None and self._parking.takes(self, router):
            return
        refusal = self.calls.refusal(self.key) or wrong_with_arguments(members)
        if refusal is None:
            self._router = router
            self._send(self.params, name)
        else:
            refuse(self.answer, refusal)

    def request(self, router: Router) -> None:
        """Any other method that one server answers."""
        members = self.params
        wrong = wrong_with(self.message.method, members)
        if wrong is not None:
            refuse(self.answer, wrong)
            return
        if "requestState" in members and self.conversation is None and self._parking.takes(self, router):
            return
        refusal = self.calls.refusal(self.key)
        if refusal is None:
            self._router = router
            self._send(self.params, "")
        else:
            refuse(self.answer, refusal)

    def send_again(self, members: Members) -> None:
        """The same request, with what its client answered."""
        self._send(members, text_or_none(members, "name") or "")

    def _send(self, members: Members, tool: str) -> None:
        meta, caller = self.meta, self.caller
        passed_on: dict[str, Json] | None = None
        progress = False
        if meta is not None:
            progress = "progressToken" in meta
            passed_on = {
                key: single_line(value)
                for key, value in meta.items()
                if key not in HOP_OWNED and key.casefold() not in _HOP_OWNED
            } or None
        notice = self._noticed if progress or self.conversation is not None or caller.log_level else None
        ask = None if caller.capabilities == NOTHING else self._asked_something
        method = self.message.method or ""
        if method == "tools/call":
            call = self._router.call_tool(
                caller,
                tool,
                members,
                self._reply,
                meta=passed_on,
                on_notification=notice,
                progress=progress,
                on_server_request=ask,
            )
        else:
            call = self._router.request(
                caller,
                method,
                members,
                self._reply,
                meta=passed_on,
                on_notification=notice,
                progress=progress,
                on_server_request=ask,
            )
        self.call = call
        if call.outcome is None:
            self.calls.add(self.key, call)

    # -- what comes back ------------------------------------------------------------------------------------------

    def _asked_something(self, server_request: ServerRequest) -> None:
        conversation = self.conversation
        if conversation is None:
            self._parking.ask(self, server_request)
        else:
            conversation.questions.ask(server_request, self.answer.ask)

    def _noticed(self, method: str, params: Json) -> None:
        waiting = self if self.parked is None else self.parked.waiting
        if waiting is not None:
            pass_on(waiting, method, params)

    def _reply(self, call: Call) -> None:
        if self.parked is not None:
            self.parked.ended(call)
        elif type(call.outcome) is NeedsInput and self.conversation is not None:
            if self.rounds is None:
                self.rounds = Rounds(self)
            self.rounds.go_on(call.source, call.outcome.raw)
        else:
            self.rounds = None
            self.calls.remove(self.key)
            self.deliver(call)

    def deliver(self, call: Call) -> None:
        """To the client, in the words of its era."""
        try:
            if self.conversation is None:
                deliver_modern(self, call, self._parking)
            else:
                deliver_legacy(self, self.conversation, call, self._router)
        except (BadMessage, RecursionError):  # its lane could just read it, and we are some calls deeper
            refuse(self.answer, _too_deep(call))
        except Exception:  # a bug of ours: the client gets its answer, and the router tells the operator
            refuse(self.answer, Problem(code=INTERNAL, message="Internal error", executed="unknown"))
            raise


def _too_deep(call: Call) -> Problem:
    return Problem(
        code=SOURCE_PROTOCOL,
        message=f"Server {call.source}: the answer is nested too deeply",
        source=call.source,
        tool=call.tool,
        phase="sent",
        executed="unknown",
    )
