"""A server with resources, and those who watch them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.support.waiting import until
from tests.unit.sources.mcp.memory_session import MemorySession, session_on

from trunkline.core.call import Caller, Outcome, Result
from trunkline.core.errors import SOURCE_LOST, SOURCE_PROTOCOL, GatewayError, Problem
from trunkline.core.source import ResourceWatch
from trunkline.protocol.mcp.versions import Era
from trunkline.sources.mcp.session import UpstreamSession
from trunkline.sources.mcp.source import McpSource

SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId"


class Library:
    """A server with resources; every connection to it is a session of its own."""

    def __init__(self, era: Era = "legacy", subscribe: bool = True) -> None:
        self.era: Era = era
        self.capabilities: dict[str, Any] = {"resources": {"subscribe": subscribe}}
        self.sessions: list[MemorySession] = []
        self.errors: dict[str, int] = {}
        self.silent: set[str] = set()
        self.honours: Callable[[list[str]], list[str]] = lambda uris: uris

    async def open(self, era: Era | None, capabilities: bytes, count: Callable[[str], None]) -> UpstreamSession:
        if (era, self.era) == ("legacy", "modern"):
            raise GatewayError(Problem(code=SOURCE_PROTOCOL, message="`initialize` was refused"))
        session = MemorySession(self.respond)
        session.modern = self.era == "modern"
        self.sessions.append(session)
        hello = {"capabilities": self.capabilities, "protocolVersion": "2025-11-25"}
        return session_on(session, self.era, json.dumps(hello).encode())

    def respond(self, session: MemorySession, message: dict[str, Any]) -> None:
        method = message.get("method", "")
        if method in self.silent or "id" not in message:
            return
        if method in self.errors:
            session.say({"id": message["id"], "error": {"code": self.errors[method], "message": "no"}})
        elif method == "subscriptions/listen":
            self.acknowledge(session, message)
        elif method.endswith("/list"):
            member = {"resources/templates/list": "resourceTemplates"}.get(method, method.split("/")[0])
            session.answer(message, {member: []})
        else:
            session.answer(message, {})

    def acknowledge(self, session: MemorySession, message: dict[str, Any]) -> None:
        wanted = dict(message["params"]["notifications"])
        if "resourceSubscriptions" in wanted:
            wanted["resourceSubscriptions"] = self.honours(wanted["resourceSubscriptions"])
        params = {"notifications": wanted, "_meta": {SUBSCRIPTION_ID: message["id"]}}
        session.say({"method": "notifications/subscriptions/acknowledged", "params": params})

    def asked(self, method: str, session: int | None = None) -> list[Any]:
        sessions = self.sessions if session is None else [self.sessions[session]]
        return [message["params"] for each in sessions for message in each.sent if message.get("method") == method]

    def update(self, session: int, uri: str, **more: Any) -> None:
        self.sessions[session].say({"method": "notifications/resources/updated", "params": {"uri": uri, **more}})

    @property
    def listens(self) -> list[list[str]]:
        """The resources of each subscription, in the order they were asked for."""
        asked = self.asked("subscriptions/listen")
        return [params["notifications"].get("resourceSubscriptions", []) for params in asked]


class Watcher:
    def __init__(self, source: McpSource, uri: str = "r:/a", session: str | None = "one", **caller: Any) -> None:
        self.heard: list[dict[str, Any]] = []
        self.settled: list[Outcome] = []
        told = lambda params: self.heard.append(json.loads(bytes(params)))  # noqa: E731
        self.watch = ResourceWatch(Caller("local", session, **caller), uri, told, self.settled.append)
        source.watch_resource(self.watch)

    async def outcome(self) -> Outcome:
        await until(lambda: bool(self.settled), "it is settled")
        (outcome,) = self.settled
        return outcome

    async def holds(self) -> Watcher:
        outcome = await self.outcome()
        assert isinstance(outcome, Result), outcome
        return self


def lose(server: Library, session: int) -> None:
    server.sessions[session].lose(server.sessions[session].problem(SOURCE_LOST, "gone"))
