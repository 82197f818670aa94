"""Thousands of apps and of other connections at one gateway: well-behaved apps do not notice."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.app_peer import AppPeer
from tests.support.app_peer_house import House, house
from tests.support.scenes import all_of
from tests.support.waiting import until

MANY = 1000


@pytest.fixture
def many_files() -> Iterator[None]:
    """Each app is an open file here and one in the gateway, which inherits the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 8192 if hard == resource.RLIM_INFINITY else min(hard, 8192)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def only_good(here: House) -> bool:
    return await here.client.tool_names() == {"Good_echo"}


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("many_files")
@pytest.mark.law
async def test_a_thousand_apps_each_get_their_own_calls(tmp_path: Path) -> None:
    async with house(tmp_path) as here, contextlib.AsyncExitStack() as apps:
        for number in range(MANY):
            app = await apps.enter_async_context(await here.dial(f"App{number}", (f"App{number}:echo",)))
            app.serve()
        all_there = f", {MANY + 1} apps connected"
        await until(lambda: all_there in here.gateway.log, "all are connected", 60)
        for start in range(0, MANY, 100):
            numbers = range(start, start + 100)
            answers = await all_of(here.client.call(f"App{n}:echo", {"n": n}) for n in numbers)
            assert [answer.structured["n"] for answer in answers] == list(numbers)
        assert len(await here.client.tools()) == MANY + 1
        await apps.aclose()
        await until(lambda: only_good(here), "only one is left")
        await here.good_works()


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("many_files")
async def test_ten_thousand_dials_that_say_nothing_cost_an_honest_app_nothing(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        held: list[socket.socket] = []
        try:
            for _ in range(100):
                held += [socket.create_connection(("127.0.0.1", here.port)) for _ in range(100)]
                await here.good_works()
                while len(held) > 2000:
                    held.pop(0).close()

            async def dropped() -> bool:
                return await here.gateway.counted("app_connections_dropped", "desktop") > 9000

            await until(dropped, "they were dropped")
            await here.works_again()
        finally:
            for half_open in held:
                half_open.close()
        await here.good_works()


async def test_dials_do_not_use_up_the_files_that_a_gateway_may_open(tmp_path: Path) -> None:
    async with house(tmp_path, prelude="ulimit -n 128") as here:
        held = [socket.create_connection(("127.0.0.1", here.port)) for _ in range(300)]
        try:
            await here.good_works()
            async with here.gateway.client() as another:
                assert (await another.call("Good_echo", {"a": 2})).structured == {"a": 2}
            await here.works_again()
        finally:
            for half_open in held:
                half_open.close()


@pytest.mark.parametrize("registered", [True, False], ids=["of an app", "of a stranger"])
async def test_a_flood_of_junk_lines_costs_an_honest_app_nothing(tmp_path: Path, registered: bool) -> None:
    junk = b"".join(b"junk line number %d {}\n" % number for number in range(20_000))

    async def flood(app: AppPeer) -> None:
        while True:
            app.writer.write(junk)
            await app.writer.drain()

    async with house(tmp_path) as here, await AppPeer.dial(here.port) as app:
        if registered:
            await app.register("T")
        flooding = asyncio.ensure_future(flood(app))
        counted_as = "T" if registered else "desktop"

        async def floods() -> bool:
            return await here.gateway.counted("noise_lines", counted_as) > 50_000

        await until(floods, "the junk is read", 40)
        for _ in range(50):
            await here.good_works()
        if registered:
            assert (await here.client.call("Good.echo", {"n": 1})).structured == {"n": 1}
        flooding.cancel()
        await asyncio.wait([flooding])
        app.reset()
        await here.good_works()
        lines = here.gateway.log.count("no message")
        assert 0 < lines < 50, "a flood does not flood the log"


async def test_two_apps_that_claim_one_name_again_and_again_leave_it_to_the_first(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        for _ in range(20):
            async with await AppPeer.dial(here.port) as second:
                assert (await second.register("Good", ["more"]))["type"] == "refused"
            await here.good_works()
        assert await here.client.tool_names() == {"Good_echo"}
        assert await here.gateway.counted("apps_refused", "desktop") == 20


@pytest.mark.law
async def test_an_app_that_comes_and_goes_all_the_time_leaves_nothing(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        for _ in range(50):
            await here.works_again()
        await here.good_works()
        await until(lambda: only_good(here), "only one is left")
