"""What clients want to hear of: every open `subscriptions/listen` of the modern era."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import Final

from trunkline.core.errors import CLIENT_LIMIT, INVALID_REQUEST, Problem
from trunkline.frontends.mcp.answer import refuse
from trunkline.frontends.mcp.asked import Asked
from trunkline.frontends.mcp.listen import MAX_CHARACTERS, Listen, read_wanted
from trunkline.protocol.jsonrpc import BadMessage, members_of
from trunkline.router.router import Router

MAX_LISTENS: Final = 4096
MAX_LISTENS_PER_PRINCIPAL: Final = 1024
MAX_WATCHED_PER_PRINCIPAL: Final = 10_000


class Listens:
    def __init__(self, router: Router, names_servers: Callable[[], bool]) -> None:
        self._router = router
        self._names_servers = names_servers
        self.on_open: Callable[[Listen], None] | None = None
        self._open: dict[Hashable, Listen] = {}

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._open

    def open(self, asked: Asked) -> None:
        if len(asked.message.id_json) > MAX_CHARACTERS:  # it is said again with all news
            raise BadMessage(INVALID_REQUEST, f"`id` has more than {MAX_CHARACTERS} characters")
        notifications = asked.params.get("notifications")
        members = {} if notifications is None else members_of(notifications, "`notifications`")
        wanted = read_wanted(members, asked.caller.capabilities)
        principal = asked.caller.principal
        refusal = self._refusal(asked.key, principal, wanted.watched)
        if refusal is not None:
            refuse(asked.answer, refusal)
            return
        listen = Listen(asked.answer, asked.message.id_json, asked.caller, wanted, self._names_servers)
        self._open[asked.key] = listen
        if self.on_open is not None:
            self.on_open(listen)
        router, caller = self._router, asked.caller
        listen.begin(partial(router.subscribe, caller), partial(router.subscribe_tasks, caller))

    def _refusal(self, key: Hashable, principal: str, watched: int) -> Problem | None:
        if key in self._open:
            return Problem(code=INVALID_REQUEST, message="A request with this `id` is still in flight")
        theirs = [listen for listen in self._open.values() if listen.caller.principal == principal]
        if len(self._open) >= MAX_LISTENS or len(theirs) >= MAX_LISTENS_PER_PRINCIPAL:
            return _too_many(f"Too many subscriptions are open: {len(theirs)} of yours, {len(self._open)} in all")
        if watched and sum(listen.wanted.watched for listen in theirs) + watched > MAX_WATCHED_PER_PRINCIPAL:
            return _too_many(f"More than {MAX_WATCHED_PER_PRINCIPAL} resources and tasks are subscribed to")
        return None

    def all(self) -> list[Listen]:
        return list(self._open.values())

    def close(self, key: Hashable, problem: Problem) -> bool:
        """The client closed it. False when there is none of that name."""
        listen = self._open.pop(key, None)
        if listen is not None:
            listen.close()
            listen.answer.cancelled(problem)
        return listen is not None

    def end_all(self) -> None:
        listens, self._open = self._open, {}
        for listen in listens.values():
            listen.end()


def _too_many(message: str) -> Problem:
    return Problem(code=CLIENT_LIMIT, message=message, retryable=True, retry_after_ms=1000)
