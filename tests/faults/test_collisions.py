"""Two hundred clients that use the same request ids: every response goes to its own call."""

from __future__ import annotations

import asyncio
import contextlib
import random
from pathlib import Path
from typing import Any

import pytest
from tests.support.client import HttpClient
from tests.support.gateway import Gateway, stdio_gateway
from tests.support.pairs import IN_FULL
from tests.support.servers import HttpFaults, StdioFaults
from tests.support.waiting import at_most

CLIENTS = 200
IDS = 250 if IN_FULL else 25

pytestmark = [pytest.mark.slow, pytest.mark.law, pytest.mark.timeout(180)]


async def call_all(client: Any, name: str, ids: list[Any], rng: random.Random, servers: list[str]) -> int:
    """One call per id, one after another; how many answers carried somebody else's nonce."""
    mismatches = 0
    for id_ in ids:
        nonce = f"{name}-{id_!r}"
        delay = rng.choice([0, 0, 0.001, 0.01, 0.03])
        answer = await client.call(f"{rng.choice(servers)}_nonce", {"nonce": nonce, "delay": delay}, id=id_)
        mismatches += answer.text != nonce or answer.id != id_ or type(answer.id) is not type(id_)
    return mismatches


async def test_no_answer_of_many_thousands_goes_astray(tmp_path: Path) -> None:
    """`1` and `"1"` are in flight at the same time in every client, and in all clients at once."""
    rng = random.Random(6)
    stdio = StdioFaults(tmp_path, "s", journal="", ledger="")
    with (
        HttpFaults(tmp_path, "h", journal="", ledger="") as http,
        Gateway(
            tmp_path, *(server.entry(sessions="shared", timeout=at_most(60)) for server in (stdio, http))
        ) as gateway,
    ):
        async with contextlib.AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(gateway.client()) for _ in range(CLIENTS)]
            servers = ["s", "s", "s", "s", "h"]

            async def both_kinds(client: HttpClient, name: str) -> int:
                numbers = list(range(IDS))
                texts = [str(number) for number in numbers]
                counts = await asyncio.gather(
                    call_all(client, name, numbers, rng, servers), call_all(client, name, texts, rng, servers)
                )
                return sum(counts)

            found = await asyncio.gather(*(both_kinds(client, f"c{n}") for n, client in enumerate(clients)))
            assert sum(found) == 0


async def test_no_answer_goes_astray_on_one_pipe(tmp_path: Path) -> None:
    """The same over stdio, where all answers of a client share one stream and come in any order."""
    rng = random.Random(7)
    servers = [StdioFaults(tmp_path, name, journal="", ledger="") for name in ("a", "b")]
    async with stdio_gateway(tmp_path, *(server.entry(timeout=at_most(60)) for server in servers)) as client:
        await client.open()
        ids: list[Any] = [*range(100, 600)]
        ids += [str(number) for number in ids]
        rng.shuffle(ids)
        per_task = [ids[start::100] for start in range(100)]
        found = await asyncio.gather(*(call_all(client, "c", part, rng, ["a", "b"]) for part in per_task))
        assert sum(found) == 0
        assert all(client.answers_for(id_) == 1 for id_ in ids[:50])
