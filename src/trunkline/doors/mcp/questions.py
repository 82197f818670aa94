"""Questions of servers to a legacy client: sent under ids of ours, answered once, forgotten when it is gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from trunkline.core.call import Json
from trunkline.core.question import Question
from trunkline.router.clients import NOBODY
from trunkline.wire.jsonrpc import Message

if TYPE_CHECKING:
    from trunkline.doors.mcp.conversation import Conversation


class ClientQuestions:
    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation

    def ask(self, question: Question, send: Callable[[bytes], None] | None) -> None:
        question.refuse(NOBODY)

    def answered(self, message: Message) -> None: ...

    def progressed(self, message: Message) -> None: ...

    def tell(self, source: str, method: str, params: Json) -> None: ...

    def close(self) -> None: ...
