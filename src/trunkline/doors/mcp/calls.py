"""One call between its client and the router, and the set of those a client has in flight."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Final, Protocol

from trunkline.core.call import Call, Json, NeedsInput
from trunkline.core.errors import CLIENT_LIMIT, INVALID_REQUEST, SOURCE_PROTOCOL, Problem
from trunkline.core.question import Question
from trunkline.doors.mcp.answer import refuse
from trunkline.doors.mcp.delivery import deliver_legacy, deliver_modern
from trunkline.doors.mcp.notices import pass_on
from trunkline.doors.mcp.parameters import NO_NAME, text_or_none, wrong_with, wrong_with_arguments
from trunkline.doors.mcp.rounds import Rounds
from trunkline.router.router import Router
from trunkline.wire.jsonrpc import BadMessage, Members, single_line, text_member
from trunkline.wire.mcp.modern import HOP_OWNED

if TYPE_CHECKING:
    from trunkline.doors.mcp.asked import Asked
    from trunkline.doors.mcp.parking import ParkedCall, Parking

_NOTHING: Final = b"{}"
_HOP_OWNED: Final = frozenset(name.casefold() for name in HOP_OWNED)
"""Compared without case: a server that ignores case must not find a second progress token."""


class InFlight(Protocol):
    """Something under way for a client that it can take back."""

    def cancel(self, why: str, /) -> bool: ...


class ClientCalls:
    """What one client has in flight, by its own request ids. A session has one; so has each principal without one."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._calls: dict[Hashable, InFlight] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def refusal(self, key: Hashable) -> Problem | None:
        if key in self._calls:
            return Problem(code=INVALID_REQUEST, message="A request with this `id` is still in flight")
        if len(self._calls) >= self.limit:
            message = f"More than {self.limit} calls in flight (`limits.in_flight_per_client`)"
            return Problem(code=CLIENT_LIMIT, message=message, retryable=True, retry_after_ms=1000)
        return None

    def add(self, key: Hashable, call: InFlight) -> None:
        self._calls[key] = call

    def remove(self, key: Hashable) -> None:
        self._calls.pop(key, None)

    def cancel(self, key: Hashable, why: str) -> bool:
        call = self._calls.get(key)
        return call is not None and call.cancel(why)

    def cancel_all(self, why: str) -> None:
        for call in list(self._calls.values()):
            call.cancel(why)


class RoutedCall:
    """Ties one call to its answer, and to its client where the server asks something meanwhile.

    `parked` is set once a modern client had to be asked: then the answer may belong to a later request.
    """

    __slots__ = ("_parking", "_rounds", "_router", "asked", "call", "parked")

    def __init__(self, asked: Asked, parking: Parking) -> None:
        self.asked = asked
        self.call: Call | None = None
        self.parked: ParkedCall | None = None
        self._parking = parking
        self._rounds: Rounds | None = None

    def call_tool(self, router: Router) -> None:
        """`tools/call`, the one method where every microsecond counts."""
        asked = self.asked
        members = asked.params
        try:
            name = text_member(members, "name")
        except BadMessage:
            name = None
        if name is None:
            refuse(asked.answer, NO_NAME)
            return
        if "requestState" in members and asked.conversation is None and self._parking.takes(self, router):
            return
        refusal = asked.calls.refusal(asked.key) or wrong_with_arguments(members)
        if refusal is None:
            self._router = router
            self._send(asked.params, name)
        else:
            refuse(asked.answer, refusal)

    def request(self, router: Router) -> None:
        """Any other method that one server answers."""
        asked = self.asked
        members = asked.params
        wrong = wrong_with(asked.message.method, members)
        if wrong is not None:
            refuse(asked.answer, wrong)
            return
        if "requestState" in members and asked.conversation is None and self._parking.takes(self, router):
            return
        refusal = asked.calls.refusal(asked.key)
        if refusal is None:
            self._router = router
            self._send(asked.params, "")
        else:
            refuse(asked.answer, refusal)

    def send_again(self, members: Members) -> None:
        """The same request, with what its client answered."""
        self._send(members, text_or_none(members, "name") or "")

    def _send(self, members: Members, tool: str) -> None:
        asked = self.asked
        meta, caller = asked.meta, asked.caller
        passed_on: dict[str, Json] | None = None
        progress = False
        if meta is not None:
            progress = "progressToken" in meta
            passed_on = {
                key: single_line(value) for key, value in meta.items() if key.casefold() not in _HOP_OWNED
            } or None
        notice = self._noticed if progress or asked.conversation is not None or caller.log_level else None
        ask = None if caller.capabilities == _NOTHING else self._asked_something
        method = asked.message.method or ""
        if method == "tools/call":
            call = self._router.call_tool(
                caller, tool, members, self._reply, meta=passed_on, notice=notice, progress=progress, ask=ask
            )
        else:
            call = self._router.request(
                caller, method, members, self._reply, meta=passed_on, notice=notice, progress=progress, ask=ask
            )
        self.call = call
        if call.outcome is None:
            asked.calls.add(asked.key, call)

    # -- what comes back ------------------------------------------------------------------------------------------

    def _asked_something(self, question: Question) -> None:
        conversation = self.asked.conversation
        if conversation is None:
            self._parking.ask(self, question)
        else:
            conversation.questions.ask(question, self.asked.answer.ask)

    def _noticed(self, method: str, params: Json) -> None:
        waiting = self if self.parked is None else self.parked.waiting
        if waiting is not None:
            pass_on(waiting.asked, method, params)

    def _reply(self, call: Call) -> None:
        asked = self.asked
        if self.parked is not None:
            self.parked.ended(call)
        elif type(call.outcome) is NeedsInput and asked.conversation is not None:
            if self._rounds is None:
                self._rounds = Rounds(self)
            self._rounds.go_on(call.source, call.outcome.raw)
        else:
            asked.calls.remove(asked.key)
            self.deliver(call)

    def deliver(self, call: Call) -> None:
        """To the client, in the words of its era."""
        asked = self.asked
        try:
            if asked.conversation is None:
                deliver_modern(asked, call, self._parking)
            else:
                deliver_legacy(asked, asked.conversation, call, self._router)
        except (BadMessage, RecursionError):  # its lane could just read it, and we are some calls deeper
            refuse(asked.answer, _too_deep(call))


def _too_deep(call: Call) -> Problem:
    return Problem(
        code=SOURCE_PROTOCOL,
        message=f"Server {call.source}: the answer is nested too deeply",
        source=call.source,
        tool=call.tool,
        phase="sent",
        executed="unknown",
    )
