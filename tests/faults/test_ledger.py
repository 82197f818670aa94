"""The ledger: servers are killed at random while clients call them, and afterwards the books must balance.

Every call carries a nonce. The servers write down what they run before they run it; the clients write down what they
were told. Then: one answer per call, to the right caller; nothing ran twice; what succeeded ran; what is said not to
have run did not.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.answers import LOST, NOT_STARTED, TIMED_OUT, TIMED_OUT_UNSENT, Answer
from tests.support.client import Client
from tests.support.gateway import Gateway, stdio_gateway
from tests.support.pairs import IN_FULL
from tests.support.servers import HttpFaults, Records, StdioFaults, kill

ALLOWED = {LOST, TIMED_OUT, TIMED_OUT_UNSENT, *NOT_STARTED}
CALLS_PER_CLIENT = 3000 if IN_FULL else 120
SEEDS = range(1, 6) if IN_FULL else range(1, 3)
AT_ONCE = 4
BETWEEN_KILLS = (200, 800) if IN_FULL else (10, 40)
BETWEEN_KILLS_OF_ONE = (100, 400) if IN_FULL else (4, 12)
"""Calls that succeed, not seconds: a slow machine sees as many kills, for many clients and for one. For long not as
often: servers that die again and again are kept waiting, and nearly every call would be refused."""

pytestmark = [pytest.mark.slow, pytest.mark.law, pytest.mark.timeout(600 if IN_FULL else 150)]


class Book:
    """What the clients were told."""

    def __init__(self, seed: int, between_kills: tuple[int, int]) -> None:
        self.rng = random.Random(seed)
        self.between_kills = between_kills
        self.answers: dict[str, Answer] = {}
        self.succeeded = 0
        self.done = False

    async def client_calls(self, client: Client, name: str, servers: list[str]) -> None:
        numbers = iter(range(CALLS_PER_CLIENT))

        async def one_after_another() -> None:
            for number in numbers:
                nonce = f"{name}-{number}"
                delay = self.rng.choice([0, 0.01, 0.05, 0.2])
                tool = f"{self.rng.choice(servers)}_nonce"
                answer = await client.call(tool, {"nonce": nonce, "delay": delay})
                assert nonce not in self.answers
                self.answers[nonce] = answer
                self.succeeded += not answer.failed
                if answer.failed:
                    await asyncio.sleep(0.2)  # a client that is refused does not come back at once

        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(one_after_another())

    def balances_with(self, servers: list[Records]) -> None:
        steps = Counter(step for server in servers for step in server.steps())
        for nonce, answer in self.answers.items():
            started, finished = steps["start", nonce], steps["done", nonce]
            assert started <= 1, f"{nonce} ran {started} times"
            if answer.failed:
                assert answer.situation in ALLOWED, answer.raw
                assert answer.executed != "no" or started == 0, f"{nonce} ran although {answer.raw!r}"
            else:
                assert answer.text == nonce
                assert (started, finished) == (1, 1)

    def is_worth_something(self, clients: int) -> None:
        """A run in which nothing succeeded, or nothing was lost, shows nothing."""
        assert len(self.answers) == clients * CALLS_PER_CLIENT
        assert self.succeeded > len(self.answers) * 0.2
        assert any(answer.failed and answer.situation == LOST for answer in self.answers.values())


async def kill_at_random(book: Book, stdio: list[StdioFaults], http: HttpFaults) -> None:
    """Until the clients are done: a process of a stdio server, or the HTTP server with a restart."""
    while not book.done:
        goal = book.succeeded + book.rng.randint(*book.between_kills)
        while book.succeeded < goal and not book.done:
            await asyncio.sleep(0.01)
        pids = [pid for server in stdio for pid in server.pids()]
        if book.rng.random() < 0.25:
            http.restart()
        elif pids:
            kill(book.rng.choice(pids))


@contextlib.asynccontextmanager
async def killing(book: Book, stdio: list[StdioFaults], http: HttpFaults) -> AsyncIterator[None]:
    killer = asyncio.get_running_loop().create_task(kill_at_random(book, stdio, http))
    try:
        yield
    finally:
        book.done = True
        await killer


@pytest.mark.parametrize("seed", SEEDS)
async def test_the_books_balance_for_clients_over_http(tmp_path: Path, seed: int) -> None:
    own, shared = StdioFaults(tmp_path, "own"), StdioFaults(tmp_path, "shared")
    book = Book(seed, BETWEEN_KILLS)
    with (
        HttpFaults(tmp_path, "h") as http,
        Gateway(tmp_path, own.entry(), shared.entry(sessions="shared"), http.entry()) as gateway,
    ):
        async with contextlib.AsyncExitStack() as stack:
            clients: list[Client] = [await stack.enter_async_context(gateway.client()) for _ in range(4)]
            clients += [await stack.enter_async_context(gateway.modern()) for _ in range(2)]
            async with killing(book, [own, shared], http), asyncio.TaskGroup() as group:
                for number, client in enumerate(clients):
                    group.create_task(book.client_calls(client, f"c{number}", ["own", "shared", "h"]))
        book.balances_with([own, shared, http])
        book.is_worth_something(len(clients))


async def test_the_books_balance_for_a_client_over_stdio(tmp_path: Path) -> None:
    own, shared = StdioFaults(tmp_path, "own"), StdioFaults(tmp_path, "shared")
    book = Book(3, BETWEEN_KILLS_OF_ONE)
    with HttpFaults(tmp_path, "h") as http:
        entries = [own.entry(), shared.entry(sessions="shared"), http.entry()]
        async with stdio_gateway(tmp_path, *entries) as client:
            await client.open()
            async with killing(book, [own, shared], http):
                await book.client_calls(client, "c", ["own", "shared", "h"])
            assert all(client.answers_for(answer.id) == 1 for answer in book.answers.values())
        book.balances_with([own, shared, http])
        book.is_worth_something(1)
