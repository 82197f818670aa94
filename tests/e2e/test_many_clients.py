"""Many clients at once, of both eras, on two servers that have the same names for everything.

They are forty, and two hundred in `make test-all`.

Every client of the SDK counts its requests from the same number and uses that as its progress token, all of them watch
resources of the same URIs, and both servers give links to the same URIs. Whatever one of them hears must be its own.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest
from tests.support.gateway import Gateway
from tests.support.interactions.client import Client, Era, Json, Person, Question, text_of
from tests.support.interactions.python_client import python_client
from tests.support.interactions.scene import over_http
from tests.support.pairs import IN_FULL
from tests.support.waiting import START_WAIT_S, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.law,
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]
CLIENTS = 200 if IN_FULL else 40
ROOMS = 10
NOISY_ROOMS = range(5)
SERVERS = ("old", "new")
PATIENCE_S = 300
LIMITS = {
    "sessions_per_source": 2 * CLIENTS,
    "sessions": 2 * CLIENTS,
    "connections": 10 * CLIENTS,
    "in_flight_per_client": 10 * CLIENTS,  # those without a session are one client
}


class Visitor:
    """One client with a name that nobody else has."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.name = f"visitor-{number}"
        self.era: Era = "modern" if number % 2 else "legacy"
        self.room = f"test://linked/room-{number // 2 % ROOMS}"
        self.person = Person(self.answer)
        self.client: Client

    def answer(self, question: Question) -> Json:
        if question.method == "sampling/createMessage":
            content = {"type": "text", "text": f"{self.name} on {question.text}"}
            return {"role": "assistant", "model": "visitor", "stopReason": "endTurn", "content": content}
        return {"action": "accept", "content": {"name": self.name, "age": self.number % 100, "colour": "red"}}

    @property
    def rooms(self) -> list[str]:
        """As this client knows its room: the second server's has the same URI, so it goes by its address."""
        return [self.room, f"trunkline://new/{self.room}"]

    async def visit(self, server: str) -> None:
        await self.is_asked(server)
        await self.is_told(server)
        await self.follows_a_link(server)

    async def is_asked(self, server: str) -> None:
        form, thought = await asyncio.gather(
            self.call(server, "survey", question=self.name), self.call(server, "think", about=self.name)
        )
        assert form["structuredContent"]["content"]["name"] == self.name
        assert thought["structuredContent"]["content"]["text"] == f"{self.name} on {self.name}"

    async def is_told(self, server: str) -> None:
        steps, progress = self.number % 7 + 1, []
        worked, _ = await asyncio.gather(
            self.call(server, "work", steps=steps, progress=progress), self.call(server, "chatter", word=self.name)
        )
        assert text_of(worked) == f"{steps} steps"
        assert [step["progress"] for step in progress] == list(range(1, steps + 1))
        assert {step["total"] for step in progress} == {steps}

    async def follows_a_link(self, server: str) -> None:
        """All pairs of clients share a link, which both servers give."""
        shared = f"shared-{self.number // 4}"
        link = (await self.call(server, "link", name=shared))["content"][0]["uri"]
        read = await self.client.read(link)
        assert read["contents"][0]["text"] == f"{server} linked {shared}"
        assert read["contents"][0]["uri"] == link

    async def call(self, server: str, tool: str, **arguments: Any) -> Json:
        return await self.client.call(f"{server}_{tool}", **arguments)

    def was_told(self) -> bool:
        return set(self.client.heard.updated()) == set(self.rooms)

    def crossings(self) -> list[str]:
        """Whatever reached this client and was meant for another."""
        questions = [question.text for question in self.person.asked if not question.text.endswith(self.name)]
        logs = [str(log) for log in self.client.heard.logs if log["data"]["said"] != self.name]
        rooms = [uri for uri in self.client.heard.updated() if uri not in self.rooms]
        return questions + logs + rooms


@pytest.fixture
def two_servers(tmp_path: Path) -> Any:
    with contextlib.ExitStack() as stack:
        old = stack.enter_context(over_http(tmp_path, "legacy", "old"))
        new = stack.enter_context(over_http(tmp_path, "modern", "new"))
        sources = {**old.entry(), **new.entry()}
        yield stack.enter_context(Gateway(tmp_path, sources, start_wait=START_WAIT_S, limits=LIMITS))


class Clients:
    """All visitors, each in a task of its own: they come, wait for each other, visit, and stay until it is over."""

    def __init__(self, url: str, log: Path) -> None:
        self.visitors = [Visitor(number) for number in range(CLIENTS)]
        self.over = asyncio.Event()
        self._url = url
        self._log = log
        self._all_here = asyncio.Barrier(CLIENTS)
        self._done = 0

    async def attend(self, visitor: Visitor) -> None:
        joined = python_client("sdk", visitor.era, self._url, self._log, person=visitor.person)
        async with joined as visitor.client, visitor.client.watching(visitor.rooms):
            await visitor.client.set_level("debug")
            await self._all_here.wait()
            await asyncio.gather(*(visitor.visit(server) for server in SERVERS))
            self._done += 1
            await self.over.wait()

    async def have_visited(self) -> None:
        await until(lambda: self._done == CLIENTS, "everybody has visited both servers", PATIENCE_S)

    @property
    def noisy(self) -> list[Visitor]:
        return [visitor for visitor in self.visitors if visitor.number // 2 % ROOMS in NOISY_ROOMS]

    @property
    def quiet(self) -> list[Visitor]:
        return [visitor for visitor in self.visitors if visitor not in self.noisy]


@pytest.mark.timeout(2 * PATIENCE_S)
async def test_they_hear_nothing_that_is_not_theirs(two_servers: Gateway, tmp_path: Path) -> None:
    clients = Clients(f"http://127.0.0.1:{two_servers.port}/mcp", tmp_path / "client.log")
    async with asyncio.TaskGroup() as tasks:
        for visitor in clients.visitors:
            tasks.create_task(clients.attend(visitor))
        await clients.have_visited()
        for room in NOISY_ROOMS:
            for server in SERVERS:
                await clients.visitors[0].call(server, "touch", uri=f"test://linked/room-{room}")
        await until(lambda: all(visitor.was_told() for visitor in clients.noisy), "all are told", PATIENCE_S)
        clients.over.set()
    assert [crossing for visitor in clients.visitors for crossing in visitor.crossings()] == []
    assert [len(visitor.client.heard.logs) for visitor in clients.visitors] == [8] * CLIENTS
    assert [len(visitor.person.asked) for visitor in clients.visitors] == [4] * CLIENTS
    assert [visitor.client.heard.updated() for visitor in clients.quiet] == [[]] * len(clients.quiet)
