"""The rows of the fault matrix that read the same for every kind of source, each with a real gateway and a real peer.

What only one kind can suffer is in the files named after the kinds. Clients that read slowly are cut off by the door,
which knows nothing of kinds (`test_calls_in_flight.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import signal
from collections.abc import AsyncIterator
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
from tests.support.waiting import until

from trunkline.sources import KINDS

CANCELLED = (499, "TL310")
CHANGED = b"notifications/tools/list_changed"
every_kind = pytest.mark.parametrize("kind", KINDS)


class House:
    """A gateway, one source in it, and what is behind that."""

    def __init__(self, folder: Path, kind: str, prelude: str = "", **keys: Any) -> None:
        self.rig: Rig = rig_of(kind, folder)
        self.gateway = Gateway(folder, self.rig.entry(**keys), prelude=prelude)

    async def call(self, client: Client, use: Use, **more: Any) -> Answer:
        tool, arguments = use
        return await client.call(f"{self.rig.server}.{tool}", arguments, **more)

    async def works(self, client: Client) -> bool:
        """Whether a call is answered; one that is not may not have reached anybody."""
        answer = await self.call(client, self.rig.echo("hello"))
        assert not answer.failed or answer.executed == "no", answer.raw
        return not answer.failed and answer.text == "hello"

    def configure(self, sources: dict[str, Any]) -> None:
        """Other sources from now on."""
        settings = json.loads(self.gateway.config.read_text())
        self.gateway.config.write_text(json.dumps({**settings, "sources": sources}))
        self.gateway.process.send_signal(signal.SIGHUP)


@contextlib.asynccontextmanager
async def house(folder: Path, kind: str, **more: Any) -> AsyncIterator[House]:
    here = House(folder, kind, **more)
    try:
        with here.gateway:
            await asyncio.to_thread(here.rig.start)
            async with here.gateway.client() as client:
                await until(lambda: here.works(client), "it works", 30)
            yield here
    finally:
        await asyncio.to_thread(here.rig.close)


@every_kind
async def test_a_client_that_leaves_stops_its_call(tmp_path: Path, kind: str) -> None:
    async with house(tmp_path, kind) as here, here.gateway.modern() as client, here.gateway.modern() as other:
        tool, arguments = here.rig.sleep(60)
        async with client.start_call(f"{here.rig.server}.{tool}", arguments):
            await until(lambda: here.rig.sleeping() == 1, "it runs")
        await until(lambda: here.rig.told_to_stop() == 1, "it was told to stop")
        assert await here.works(other)


@every_kind
async def test_a_cancellation_and_an_answer_that_cross_give_one_outcome(tmp_path: Path, kind: str) -> None:
    rng = random.Random(20261115)
    async with house(tmp_path, kind) as here, here.gateway.client() as client:

        async def race(number: int) -> Answer:
            call = asyncio.ensure_future(here.call(client, here.rig.sleep(0.02), id=f"race-{number}"))
            await asyncio.sleep(rng.uniform(0, 0.06))
            await client.cancel(f"race-{number}")
            return await call

        for outcome in await all_of(race(number) for number in range(20)):
            assert outcome.situation[:2] == CANCELLED if outcome.failed else outcome.text == "slept"
        assert await here.works(client)


@every_kind
async def test_a_source_that_is_replaced_ends_its_calls_where_they_began(tmp_path: Path, kind: str) -> None:
    async with house(tmp_path, kind) as here, here.gateway.client() as client:
        began = asyncio.ensure_future(here.call(client, here.rig.sleep(2)))
        await until(lambda: here.rig.sleeping() == 1, "it runs")
        here.configure(here.rig.entry(start_timeout=50))
        assert (await began).text == "slept"
        assert here.rig.told_to_stop() == 0


@every_kind
async def test_clients_are_told_when_its_tools_go_and_when_they_come_back(tmp_path: Path, kind: str) -> None:
    async with house(tmp_path, kind) as here, here.gateway.client() as client, client.listen() as stream:
        names = await client.tool_names()
        assert names
        here.configure({})
        assert CHANGED in await anext(stream)
        assert await client.tool_names() == set()
        await asyncio.to_thread(here.rig.close)
        here.configure(here.rig.entry())
        await asyncio.to_thread(here.rig.start)
        assert CHANGED in await anext(stream)
        await until(lambda: here.works(client), "it works again", 30)
        assert await client.tool_names() == names


@every_kind
async def test_sigterm_lets_a_call_finish(tmp_path: Path, kind: str) -> None:
    async with house(tmp_path, kind) as here, here.gateway.client() as client:
        call = asyncio.ensure_future(here.call(client, here.rig.sleep(1)))
        await until(lambda: here.rig.sleeping() == 1, "it runs")
        below = [process.pid for process in here.gateway.descendants()]
        assert await asyncio.to_thread(here.gateway.terminate) == 0
        assert (await call).text == "slept"
        await until(lambda: not any(map(alive, below)), "everything below the gateway is gone")


@every_kind
async def test_sigkill_in_the_middle_of_a_call_leaves_no_process(tmp_path: Path, kind: str) -> None:
    async with house(tmp_path, kind) as here, here.gateway.modern() as client:
        tool, arguments = here.rig.sleep(60)
        async with client.start_call(f"{here.rig.server}.{tool}", arguments):
            await until(lambda: here.rig.sleeping() == 1, "it runs")
            below = [process.pid for process in here.gateway.descendants()]
            here.gateway.kill()
            await until(lambda: not any(map(alive, below)), "everything below the gateway is gone")


@every_kind
async def test_without_files_to_open_calls_are_refused_and_work_again_later(tmp_path: Path, kind: str) -> None:
    async with house(tmp_path, kind, prelude="ulimit -n 64", timeout=3) as here:
        async with here.gateway.client() as client:
            crowd: list[Wire] = []
            try:
                for _ in range(100):
                    crowd.append(await Wire.connect(here.gateway.port))
                answer = await here.call(client, here.rig.echo("hello"))
                assert not answer.failed or answer.situation in {TIMED_OUT, QUEUE_FULL, CLIENT_LIMIT, *NOT_STARTED}
                assert here.gateway.process.poll() is None
            finally:
                for wire in crowd:
                    await wire.abort()

        async def recovered() -> bool:
            try:
                async with here.gateway.client() as client:
                    return await here.works(client)
            except (ConnectionError, asyncio.IncompleteReadError):
                return False

        await until(recovered, "the gateway has recovered", 30)


@every_kind
async def test_a_log_that_cannot_be_written_costs_no_call(tmp_path: Path, kind: str) -> None:
    async with house(tmp_path, kind, prelude="exec >/dev/full 2>&1") as here, here.gateway.client() as client:
        assert (await here.call(client, here.rig.fail())).result["isError"] is True
        assert await here.works(client)
