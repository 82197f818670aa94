"""What clients want to hear of: `subscriptions/listen` of the modern era, `resources/subscribe` of the legacy one."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from trunkline.core.errors import INVALID_PARAMS, UNKNOWN_METHOD, Problem
from trunkline.doors.mcp.answer import Answer, refuse, result_of_ours
from trunkline.doors.mcp.asked import Asked
from trunkline.doors.mcp.conversation import Conversation
from trunkline.router.router import Router
from trunkline.wire.jsonrpc import encode_notification, members_of
from trunkline.wire.mcp.incoming import LIST_CHANGED
from trunkline.wire.mcp.modern import SUBSCRIPTION_ID

MAX_SUBSCRIPTIONS: Final = 1024


class Listen:
    """A modern client's open `subscriptions/listen`."""

    __slots__ = ("_id_json", "answer", "tools")

    def __init__(self, answer: Answer, id_json: bytes, *, tools: bool) -> None:
        self.answer = answer
        self.tools = tools
        self._id_json = id_json

    def acknowledge(self) -> None:
        honoured = b'"toolsListChanged":true' if self.tools else b""
        self._notify("notifications/subscriptions/acknowledged", b'"notifications":{%b},' % honoured)

    def tell_tools_changed(self) -> None:
        if self.tools:
            self._notify(LIST_CHANGED)

    def end(self) -> None:
        """We close it: its request is answered at last, which tells a client that nothing was lost."""
        self.answer.result(result_of_ours(b'{"resultType":"complete",%b}' % self._meta()))

    def _notify(self, method: str, body: bytes = b"") -> None:
        self.answer.notice(encode_notification(method, b"{%b%b}" % (body, self._meta())))

    def _meta(self) -> bytes:
        return b'"_meta":{"%b":%b}' % (SUBSCRIPTION_ID.encode(), self._id_json)


class Listens:
    def __init__(self, router: Router) -> None:
        self._router = router
        self._open: dict[Hashable, Listen] = {}

    def __len__(self) -> int:
        return len(self._open)

    def open(self, asked: Asked) -> None:
        if len(self._open) >= MAX_SUBSCRIPTIONS:
            refuse(asked.answer, Problem(code=INVALID_PARAMS, message="Too many open subscriptions", retryable=True))
            return
        wanted = asked.params.get("notifications")
        kinds = {} if wanted is None else members_of(wanted, "`notifications`", asked.message.id_json)
        tools = bytes(kinds.get("toolsListChanged", b"false")) == b"true"
        listen = self._open[asked.key] = Listen(asked.answer, asked.message.id_json, tools=tools)
        listen.acknowledge()

    def tools_changed(self) -> None:
        for listen in list(self._open.values()):
            listen.tell_tools_changed()

    def close(self, key: Hashable, problem: Problem) -> bool:
        """The client closed it. False when there is none of that name."""
        listen = self._open.pop(key, None)
        if listen is not None:
            listen.answer.cancelled(problem)
        return listen is not None

    def forget(self, conversation: Conversation) -> None:
        """A legacy client is gone, and its subscriptions to resources with it."""

    def end_all(self) -> None:
        listens, self._open = self._open, {}
        for listen in listens.values():
            listen.end()


def subscribe(router: Router, asked: Asked) -> None:
    refuse(asked.answer, Problem(code=UNKNOWN_METHOD, message="Unknown method: resources/subscribe"))


def unsubscribe(asked: Asked) -> None:
    refuse(asked.answer, Problem(code=UNKNOWN_METHOD, message="Unknown method: resources/unsubscribe"))
