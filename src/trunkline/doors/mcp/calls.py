"""One call between its client and the router, and the set of those a client has in flight."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Final

from trunkline.core.call import Call, Json, Result
from trunkline.core.errors import (
    CLIENT_LIMIT,
    INVALID_PARAMS,
    INVALID_REQUEST,
    SOURCE_PROTOCOL,
    UNKNOWN_METHOD,
    Problem,
)
from trunkline.doors.mcp.answer import deliver, refuse
from trunkline.router.router import Router
from trunkline.wire.jsonrpc import (
    BadMessage,
    Members,
    encode_members,
    encode_notification,
    members_of,
    single_line,
    text_member,
)
from trunkline.wire.mcp.incoming import PROGRESS
from trunkline.wire.mcp.modern import HOP_OWNED, complete

if TYPE_CHECKING:
    from trunkline.doors.mcp.asked import Asked
    from trunkline.doors.mcp.parking import Parking

_OPEN_BRACE: Final = 0x7B
_HOP_OWNED: Final = frozenset(name.casefold() for name in HOP_OWNED)
"""Compared without case: a server that ignores case must not find a second progress token."""


class ClientCalls:
    """What one client has in flight, by its own request ids. A session has one; so has each principal without one."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._calls: dict[Hashable, Call] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def refusal(self, key: Hashable) -> Problem | None:
        if key in self._calls:
            return Problem(code=INVALID_REQUEST, message="A request with this `id` is still in flight")
        if len(self._calls) >= self.limit:
            message = f"More than {self.limit} calls in flight (`limits.in_flight_per_client`)"
            return Problem(code=CLIENT_LIMIT, message=message, retryable=True, retry_after_ms=1000)
        return None

    def add(self, key: Hashable, call: Call) -> None:
        self._calls[key] = call

    def remove(self, key: Hashable) -> None:
        self._calls.pop(key, None)

    def cancel(self, key: Hashable, why: str) -> bool:
        call = self._calls.get(key)
        return call is not None and call.cancel(why)

    def cancel_all(self, why: str) -> None:
        for call in list(self._calls.values()):
            call.cancel(why)


def _bad_arguments(members: Members) -> Problem | None:
    """Arguments are an object. Some clients write null for none; whether that will do is for the server to say."""
    arguments = members.get("arguments")
    if arguments is None or memoryview(arguments)[0] == _OPEN_BRACE or bytes(arguments) == b"null":
        return None
    return Problem(code=INVALID_PARAMS, message="`params.arguments` must be an object")


class RoutedCall:
    """Ties one call to its answer. Modern clients get results that say they are complete."""

    __slots__ = ("_asked", "_parking", "_token")

    def __init__(self, asked: Asked, parking: Parking) -> None:
        self._asked = asked
        self._parking = parking
        self._token: Json | None = None

    def request(self, router: Router) -> None:
        """Any method but `tools/call` that one server answers."""
        message = f"Unknown method: {self._asked.message.method}"
        refuse(self._asked.answer, Problem(code=UNKNOWN_METHOD, message=message))

    def call_tool(self, router: Router) -> None:
        asked = self._asked
        members, meta = asked.params, asked.meta
        try:
            name = text_member(members, "name")
        except BadMessage:
            name = None
        if name is None:
            refuse(asked.answer, Problem(code=INVALID_PARAMS, message="`params.name` must be a string"))
            return
        refusal = asked.calls.refusal(asked.key) or _bad_arguments(members)
        if refusal is not None:
            refuse(asked.answer, refusal)
            return
        passed_on: dict[str, Json] | None = None
        notice: Callable[[str, Json], None] | None = None
        if meta is not None:
            passed_on = {
                key: single_line(value) for key, value in meta.items() if key.casefold() not in _HOP_OWNED
            } or None
            token = meta.get("progressToken")
            if token is not None:
                self._token = single_line(token)
                notice = self._notice
        call = router.call_tool(
            asked.caller, name, members, self._reply, meta=passed_on, notice=notice, progress=notice is not None
        )
        if not call.done:
            asked.calls.add(asked.key, call)

    def _reply(self, call: Call) -> None:
        self._asked.calls.remove(self._asked.key)
        try:
            self._deliver(call)
        except (BadMessage, RecursionError):  # its lane could just read it, and we are some calls deeper
            refuse(self._asked.answer, _too_deep(call))

    def _deliver(self, call: Call) -> None:
        outcome = call.outcome
        if self._asked.modern and isinstance(outcome, Result):
            self._asked.answer.result(Result(complete(outcome.raw), outcome.message))
        else:
            deliver(self._asked.answer, call)

    def _notice(self, method: str, params: Json) -> None:
        """A progress notification under the token its client chose. One that cannot be read for sure is dropped."""
        if method != PROGRESS or self._token is None:
            return
        try:
            members = {**members_of(bytes(params), "params"), "progressToken": self._token}
            notice = single_line(encode_members(members))
        except (BadMessage, RecursionError):
            return
        self._asked.answer.notice(encode_notification(method, notice))


def _too_deep(call: Call) -> Problem:
    return Problem(
        code=SOURCE_PROTOCOL,
        message=f"Server {call.source}: the answer is nested too deeply",
        source=call.source,
        tool=call.tool,
        phase="sent",
        executed="unknown",
    )
