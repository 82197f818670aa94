"""Scenes that fault tests share: a call in flight beside others, a server that comes back."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Iterable
from typing import Any

from tests.support.answers import LOST, NOT_STARTED, Answer
from tests.support.client import Client
from tests.support.servers import Records
from tests.support.waiting import PATIENCE_S, until

_GATES = itertools.count()


async def works_again(client: Client, server: str) -> Answer:
    """The next call succeeds; until the server is back it may be refused, but never lost."""
    asked = {"again": 1}

    async def attempt() -> Answer | None:
        answer = await client.call(f"{server}_echo", asked)
        if not answer.failed:
            return answer
        assert answer.situation in NOT_STARTED, answer.raw
        return None

    answer = await until(attempt, f"`{server}` answers again", 30)
    assert answer is not None
    assert answer.structured == asked
    return answer


async def beside_a_slow_call(client: Client, server: Records, faulty: Awaitable[Answer], *, name: str) -> Answer:
    """What came of a faulty call; a proper one that was in flight on the same server all the time is answered too."""
    async with held(client, server, name) as slow:
        answer = await faulty
        assert not slow.done(), slow.result().raw
    assert (await slow).text == "let through"
    return answer


@contextlib.asynccontextmanager
async def held(client: Client, server: Records, name: str) -> AsyncIterator[asyncio.Future[Answer]]:
    """A call that its server works on from here to the end of the block, where it is let through."""
    gate = server.journal.with_name(f"{next(_GATES)}.gate")
    calls = len(server.calls("gate"))
    call = asyncio.ensure_future(client.call(f"{name}_gate", {"path": str(gate)}))
    try:
        await server.wait_for("call", calls + 1, tool="gate")
        yield call
        gate.touch()
        await asyncio.wait([call], timeout=PATIENCE_S)
    finally:
        call.cancel()


async def all_of(calls: Iterable[Awaitable[Answer]]) -> list[Answer]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_awaited(call)) for call in calls]
    return [task.result() for task in tasks]


async def _awaited(call: Awaitable[Answer]) -> Answer:
    return await call


def assert_all_lost(answers: Iterable[Answer]) -> None:
    assert {answer.situation for answer in answers} == {LOST}


def cancelled_id(server: Records, tool: str) -> Any:
    """The id under which a server knows its last call of a tool: what a cancellation has to name."""
    return server.calls(tool)[-1]["id"]
