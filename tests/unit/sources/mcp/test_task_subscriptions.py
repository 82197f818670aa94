from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.waiting import until
from tests.unit.sources.mcp.memory_session import MemorySession, session_on
from tests.unit.sources.mcp.source_rig import ready_source

from trunkline.core.call import Caller
from trunkline.core.errors import SOURCE_LOST
from trunkline.core.source import TaskWatch
from trunkline.protocol.mcp.versions import Era
from trunkline.runtime.server_lifecycle import RetryBackoff
from trunkline.sources.mcp import task_subscriptions
from trunkline.sources.mcp.initialize import RequestMeta
from trunkline.sources.mcp.session import UpstreamSession
from trunkline.sources.mcp.source import McpSource

PREFIX = "io.modelcontextprotocol/"
SUBSCRIPTION_ID = PREFIX + "subscriptionId"
TASKS = PREFIX + "tasks"


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RetryBackoff, "next_delay_s", lambda self: 0.01)


class Server:
    """A modern server with tasks; it tells of those that it knows."""

    def __init__(self, era: Era = "modern", extensions: dict[str, Any] | None = None) -> None:
        self.era: Era = era
        self.extensions = {TASKS: {}} if extensions is None else extensions
        self.tasks: dict[str, str] = {"1": "working", "2": "working"}
        self.sessions: list[MemorySession] = []
        self.listens: list[dict[str, Any]] = []
        self.refuses = False
        self.answers_get = True

    async def open(self, era: Era | None, capabilities: bytes, count: Callable[[str], None]) -> UpstreamSession:
        session = MemorySession(self.respond)
        session.modern = self.era == "modern"
        if session.modern:
            session.has_tasks = TASKS in self.extensions
            session.meta_for = RequestMeta(logs=False, tasks=session.has_tasks)
        self.sessions.append(session)
        hello = {"capabilities": {"extensions": self.extensions}, "protocolVersion": "2025-11-25"}
        return session_on(session, self.era, json.dumps(hello).encode())

    def respond(self, session: MemorySession, message: dict[str, Any]) -> None:
        method = message.get("method", "")
        if method == "subscriptions/listen":
            self.listen(session, message)
        elif method == "tasks/get" and self.answers_get:
            assert TASKS in message["params"]["_meta"][PREFIX + "clientCapabilities"]["extensions"]
            task_id = message["params"]["taskId"]
            session.answer(message, {"resultType": "complete", "taskId": task_id, "status": self.tasks[task_id]})
        elif method.endswith("/list"):
            session.answer(message, {method.split("/")[0]: []})

    def listen(self, session: MemorySession, message: dict[str, Any]) -> None:
        assert TASKS in message["params"]["_meta"][PREFIX + "clientCapabilities"]["extensions"]
        if self.refuses:
            session.say({"id": message["id"], "error": {"code": -32602, "message": "unknown task"}})
            return
        self.listens.append(message)
        asked = message["params"]["notifications"]["taskIds"]
        honoured = {"taskIds": [task_id for task_id in asked if task_id in self.tasks]}
        params = {"notifications": honoured, "_meta": {SUBSCRIPTION_ID: message["id"]}}
        session.say({"method": "notifications/subscriptions/acknowledged", "params": params})

    def tell(self, task_id: str, listen: int | None, status: str = "working") -> None:
        meta = {} if listen is None else {"_meta": {SUBSCRIPTION_ID: self.listens[listen]["id"]}}
        params = {"taskId": task_id, "status": status, **meta}
        self.sessions[-1].say({"method": "notifications/tasks", "params": params})

    @property
    def asked(self) -> list[list[str]]:
        return [message["params"]["notifications"]["taskIds"] for message in self.listens]


class Watcher:
    def __init__(self, source: McpSource, *task_ids: str) -> None:
        self.heard: list[tuple[str, str]] = []
        self.settled: list[frozenset[str]] = []
        self.watch = TaskWatch(Caller(), frozenset(task_ids), self._told, self.settled.append)
        source.watch_tasks(self.watch)

    def _told(self, task_id: str, params: Any) -> None:
        self.heard.append((task_id, json.loads(bytes(params))["status"]))

    async def honoured(self) -> set[str]:
        await until(lambda: bool(self.settled), "it is settled")
        [honoured] = self.settled
        return set(honoured)


def open_listens(server: Server) -> list[int]:
    return [request.upstream_id for request in server.sessions[-1].pending.values() if "listen" in request.method]


async def test_each_watch_has_a_subscription_of_its_own_and_hears_what_comes_by_it() -> None:
    server = Server()
    async with ready_source(server) as source:
        one, both = Watcher(source, "1", "unknown"), Watcher(source, "1", "2")
        assert (await one.honoured(), await both.honoured()) == ({"1"}, {"1", "2"})
        assert server.asked == [["1", "unknown"], ["1", "2"]]
        server.tell("1", listen=1)
        assert (one.heard, both.heard) == ([], [("1", "working")])
        server.tell("2", listen=0)
        server.tell("1", listen=None)
        assert (one.heard, both.heard) == ([("1", "working")], [("1", "working")] * 2)
        both.watch.close()
        server.tell("1", listen=1)
        assert len(both.heard) == 2
        assert len(open_listens(server)) == 1


async def test_a_subscription_is_over_with_its_last_task() -> None:
    server = Server()
    async with ready_source(server) as source:
        watcher = Watcher(source, "1", "2")
        assert await watcher.honoured() == {"1", "2"}
        server.tell("1", listen=0, status="completed")
        server.tell("1", listen=0, status="completed")
        assert len(open_listens(server)) == 1
        server.tell("2", listen=0, status="cancelled")
        assert watcher.heard == [("1", "completed"), ("2", "cancelled")]
        assert open_listens(server) == []


@pytest.mark.parametrize("loss", ["session", "listen", "cancelled"])
async def test_after_a_loss_it_is_made_anew_and_what_was_missed_is_told(loss: str) -> None:
    server = Server()
    async with ready_source(server) as source:
        watcher = Watcher(source, "1", "2")
        assert await watcher.honoured() == {"1", "2"}
        server.tasks["1"] = "failed"
        session = server.sessions[0]
        if loss == "session":
            session.lose(session.problem(SOURCE_LOST, "gone"))
        elif loss == "listen":
            session.answer(server.listens[0], {"resultType": "complete"})
        else:
            params = {"requestId": server.listens[0]["id"]}
            session.say({"method": "notifications/cancelled", "params": params})
        await until(lambda: len(watcher.heard) == 2, "both are told")
        assert watcher.heard == [("1", "failed"), ("2", "working")]
        server.tell("2", listen=-1, status="completed")
        assert watcher.heard[-1] == ("2", "completed")


async def test_a_server_that_never_says_what_was_missed_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_subscriptions, "_GET_S", 0.01)
    server = Server()
    server.answers_get = False
    async with ready_source(server) as source:
        watcher = Watcher(source, "1", "2")
        await watcher.honoured()
        server.sessions[0].answer(server.listens[0], {})
        await until(lambda: server.sessions[0].methods().count("tasks/get") == 2, "it is asked for both")
        await until(lambda: len(server.sessions[0].pending) == 1, "and given up on both")
        assert watcher.heard == []


@pytest.mark.parametrize("server", [Server("legacy"), Server(extensions={}), Server(extensions={"other/thing": {}})])
async def test_servers_without_the_extension_are_not_asked(server: Server) -> None:
    async with ready_source(server) as source:
        assert await Watcher(source, "1").honoured() == set()
        assert server.asked == []


async def test_a_refusal_is_nobody_elses_loss() -> None:
    server = Server()
    async with ready_source(server) as source:
        held = Watcher(source, "1")
        assert await held.honoured() == {"1"}
        server.refuses = True
        assert await Watcher(source, "2").honoured() == set()
        server.tell("1", listen=0)
        assert held.heard == [("1", "working")]


async def test_what_is_watched_is_bounded_and_ends_with_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_subscriptions, "MAX_WATCHES", 1)
    server = Server()
    async with ready_source(server) as source:
        assert await Watcher(source, "1").honoured() == {"1"}
        assert await Watcher(source, "2").honoured() == set()
    assert await Watcher(source, "1").honoured() == set()


async def test_nonsense_about_tasks_is_dropped() -> None:
    server = Server()
    async with ready_source(server) as source:
        watcher = Watcher(source, "1")
        await watcher.honoured()
        for params in ({}, {"taskId": 7}, {"taskId": "2"}, {"taskId": "1", "_meta": {SUBSCRIPTION_ID: "strange"}}):
            server.sessions[0].say({"method": "notifications/tasks", "params": params})
        assert watcher.heard == []
