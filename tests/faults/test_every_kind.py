"""Faults that all kinds of source have in common, each with a real gateway and a real peer.

One gateway has a source of every kind, and a test plays its scene with all of them at once. What only one kind can
suffer is in the files named after the kinds. Clients that read slowly are cut off by the server, which knows nothing of
kinds (`test_calls_in_flight.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.contract.kinds.rig import Rig, Use, rig_of
from tests.support.answers import CLIENT_LIMIT, NOT_STARTED, QUEUE_FULL, TIMED_OUT, Answer
from tests.support.client import Client
from tests.support.gateway import Gateway
from tests.support.http_wire import Wire
from tests.support.processes import alive
from tests.support.scenes import all_of
from tests.support.waiting import at_most, until

from trunkline.sources import KINDS

CANCELLED = (499, "TL310")
CHANGED = b"notifications/tools/list_changed"


class House:
    """A gateway, a source of each kind in it, and what is behind those. Servers are named after their kinds."""

    def __init__(self, folder: Path, kinds: Iterable[str], prelude: str = "", **keys: Any) -> None:
        self.rigs: list[Rig] = []
        for kind in kinds:
            (folder / kind).mkdir()
            self.rigs.append(rig_of(kind, folder / kind, kind))
        self.gateway = Gateway(folder, self.entries(**keys), prelude=prelude)

    def entries(self, **keys: Any) -> dict[str, Any]:
        return {name: entry for rig in self.rigs for name, entry in rig.entry(**keys).items()}

    async def call(self, client: Client, rig: Rig, use: Use, **more: Any) -> Answer:
        tool, arguments = use
        return await client.call(f"{rig.server}.{tool}", arguments, **more)

    async def works(self, client: Client, rig: Rig) -> bool:
        """Whether a call is answered; one that is not may not have reached anybody."""
        answer = await self.call(client, rig, rig.echo("hello"))
        assert not answer.failed or answer.executed == "no", answer.raw
        return not answer.failed and answer.text == "hello"

    async def each(self, scene: Callable[[Rig], Awaitable[None]]) -> None:
        """Play a scene with all of them at once; a failure says with which."""

        async def play(rig: Rig) -> None:
            try:
                await scene(rig)
            except Exception as error:
                error.add_note(f"with a source of the kind `{rig.kind}`")
                raise

        async with asyncio.TaskGroup() as group:
            for rig in self.rigs:
                group.create_task(play(rig))

    async def all_work(self) -> None:
        async with self.gateway.client() as client:
            await self.each(lambda rig: until(lambda: self.works(client, rig), f"{rig.kind} works", 30))

    def configure(self, sources: dict[str, Any]) -> None:
        """Other sources from now on."""
        settings = json.loads(self.gateway.config.read_text())
        self.gateway.config.write_text(json.dumps({**settings, "sources": sources}))
        self.gateway.process.send_signal(signal.SIGHUP)


@contextlib.asynccontextmanager
async def house(folder: Path, kinds: Iterable[str] = KINDS, **more: Any) -> AsyncIterator[House]:
    here = House(folder, kinds, **more)
    try:
        with here.gateway:
            await here.each(lambda rig: asyncio.to_thread(rig.start))
            await here.all_work()
            yield here
    finally:
        await here.each(lambda rig: asyncio.to_thread(rig.close))


async def one_runs(rig: Rig) -> None:
    await until(lambda: rig.sleeping() == 1, "it runs")


async def test_a_client_that_leaves_stops_its_call(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.gateway.modern() as other:

        async def scene(rig: Rig) -> None:
            tool, arguments = rig.sleep(60)
            async with here.gateway.modern() as client, client.start_call(f"{rig.server}.{tool}", arguments):
                await one_runs(rig)
            await until(lambda: rig.told_to_stop() == 1, "it was told to stop")
            assert await here.works(other, rig)

        await here.each(scene)


@pytest.mark.law
async def test_a_cancellation_and_an_answer_that_cross_give_one_outcome(tmp_path: Path) -> None:
    rng = random.Random(20261115)
    async with house(tmp_path) as here:

        async def scene(rig: Rig) -> None:
            async with here.gateway.client() as client:

                async def race(number: int) -> Answer:
                    call = asyncio.ensure_future(here.call(client, rig, rig.sleep(0.02), id=f"race-{number}"))
                    await asyncio.sleep(rng.uniform(0, 0.06))
                    await client.cancel(f"race-{number}")
                    return await call

                for outcome in await all_of(race(number) for number in range(20)):
                    assert outcome.situation[:2] == CANCELLED if outcome.failed else outcome.text == "slept"
                assert await here.works(client, rig)

        await here.each(scene)


async def test_a_source_that_is_replaced_ends_its_calls_where_they_began(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.gateway.client() as client:
        began = [asyncio.ensure_future(here.call(client, rig, rig.sleep(2))) for rig in here.rigs]
        await here.each(one_runs)
        here.configure(here.entries(start_timeout=50))
        for rig, call in zip(here.rigs, began, strict=True):
            assert (await call).text == "slept", rig.kind
            assert rig.told_to_stop() == 0, rig.kind


@pytest.mark.parametrize("kind", KINDS)
async def test_clients_are_told_when_its_tools_go_and_when_they_come_back(tmp_path: Path, kind: str) -> None:
    async with house(tmp_path, [kind]) as here, here.gateway.client() as client, client.listen() as stream:
        (rig,) = here.rigs
        names = await client.tool_names()
        assert names
        here.configure({})
        assert CHANGED in await anext(stream)
        assert await client.tool_names() == set()
        await asyncio.to_thread(rig.close)
        here.configure(rig.entry())
        await asyncio.to_thread(rig.start)
        assert CHANGED in await anext(stream)
        await until(lambda: here.works(client, rig), "it works again", 30)
        assert await client.tool_names() == names


async def test_sigterm_lets_a_call_finish(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.gateway.client() as client:
        calls = [asyncio.ensure_future(here.call(client, rig, rig.sleep(1.5))) for rig in here.rigs]
        await here.each(one_runs)
        below = [process.pid for process in here.gateway.descendants()]
        assert await asyncio.to_thread(here.gateway.terminate) == 0
        for rig, call in zip(here.rigs, calls, strict=True):
            assert (await call).text == "slept", rig.kind
        await until(lambda: not any(map(alive, below)), "everything below the gateway is gone")


@pytest.mark.law
async def test_sigkill_in_the_middle_of_a_call_leaves_no_process(tmp_path: Path) -> None:
    async with house(tmp_path) as here, contextlib.AsyncExitStack() as calls:
        for rig in here.rigs:
            client = await calls.enter_async_context(here.gateway.modern())
            tool, arguments = rig.sleep(60)
            await calls.enter_async_context(client.start_call(f"{rig.server}.{tool}", arguments))
        await here.each(one_runs)
        below = [process.pid for process in here.gateway.descendants()]
        here.gateway.kill()
        await until(lambda: not any(map(alive, below)), "everything below the gateway is gone")


async def test_without_files_to_open_calls_are_refused_and_work_again_later(tmp_path: Path) -> None:
    async with house(tmp_path, prelude="ulimit -n 96", timeout=at_most(3)) as here:
        async with here.gateway.client() as client:
            crowd: list[Wire] = []
            try:
                for _ in range(150):
                    crowd.append(await Wire.connect(here.gateway.port))
                for rig in here.rigs:
                    answer = await here.call(client, rig, rig.echo("hello"))
                    allowed = {TIMED_OUT, QUEUE_FULL, CLIENT_LIMIT, *NOT_STARTED}
                    assert not answer.failed or answer.situation in allowed, rig.kind
                assert here.gateway.process.poll() is None
            finally:
                for wire in crowd:
                    await wire.abort()

        async def recovered(rig: Rig) -> bool:
            try:
                async with here.gateway.client() as client:
                    return await here.works(client, rig)
            except (ConnectionError, asyncio.IncompleteReadError):
                return False

        await here.each(lambda rig: until(lambda: recovered(rig), "the gateway has recovered", 30))


async def test_a_log_that_cannot_be_written_costs_no_call(tmp_path: Path) -> None:
    async with house(tmp_path, prelude="exec >/dev/full 2>&1") as here, here.gateway.client() as client:

        async def scene(rig: Rig) -> None:
            assert (await here.call(client, rig, rig.fail())).result["isError"] is True
            assert await here.works(client, rig)

        await here.each(scene)
