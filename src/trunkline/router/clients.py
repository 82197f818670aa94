"""The clients that hold a session, by its name: where a server's questions and news go that belong to no call."""

from __future__ import annotations

from typing import Protocol

from trunkline.core.call import Caller, Json
from trunkline.core.question import NOBODY, Question
from trunkline.router.tasks import Tasks


class Client(Protocol):
    caller: Caller

    def ask(self, question: Question, /) -> None: ...
    def tell(self, source: str, method: str, params: Json, /) -> None: ...


class Clients:
    def __init__(self, tasks: Tasks) -> None:
        self._clients: dict[str, Client] = {}
        self._tasks = tasks

    def join(self, session: str, client: Client) -> None:
        self._clients[session] = client

    def leave(self, session: str) -> None:
        self._clients.pop(session, None)

    def ask(self, session: str, question: Question) -> None:
        client = self._clients.get(session)
        if client is None:
            question.refuse(NOBODY)
        else:
            question.params = self._tasks.to_caller(client.caller, question.source, question.params)
            client.ask(question)

    def tell(self, session: str, source: str, method: str, params: Json) -> None:
        client = self._clients.get(session)
        if client is not None:
            client.tell(source, method, self._tasks.to_caller(client.caller, source, params))
