"""One request of a client, whichever era it speaks: what it asks, who asks, and where the answer goes."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from trunkline.core.call import Caller
from trunkline.frontends.mcp.answer import Answer
from trunkline.frontends.mcp.client_calls import ClientCalls
from trunkline.protocol.jsonrpc import Members, Message

if TYPE_CHECKING:
    from trunkline.frontends.mcp.conversation import Conversation


class Asked:
    """`conversation` is the legacy client's, None for a request that describes itself. `calls` are those that this
    client has in flight, where `key` names this one."""

    __slots__ = ("answer", "caller", "calls", "conversation", "key", "message", "meta", "params")

    def __init__(
        self,
        message: Message,
        params: Members,
        meta: Members | None,
        answer: Answer,
        caller: Caller,
        calls: ClientCalls,
        key: Hashable,
        conversation: Conversation | None = None,
    ) -> None:
        self.message = message
        self.params = params
        self.meta = meta
        self.answer = answer
        self.caller = caller
        self.calls = calls
        self.key = key
        self.conversation = conversation

    @property
    def modern(self) -> bool:
        return self.conversation is None
