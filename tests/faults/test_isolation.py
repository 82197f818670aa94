"""Who shares a server: clients of a `per_client` one never meet, those of a `shared` one do; nobody steers another."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from tests.support.answers import Answer
from tests.support.gateway import Gateway
from tests.support.processes import alive
from tests.support.scenes import all_of
from tests.support.servers import HttpFaults, StdioFaults
from tests.support.waiting import until

CANCELLED = (499, "TL310")
TOO_MANY_LANES = (429, "TL206", "no")


async def counts_apart(gateway: Gateway, *, shared: bool) -> None:
    async with gateway.client() as one, gateway.client() as two:
        assert (await one.call("x_counter", {"add": 5})).structured == {"count": 5}
        assert (await two.call("x_counter")).structured == {"count": 5 if shared else 0}
        assert (await two.call("x_counter", {"add": 1})).structured == {"count": 6 if shared else 1}
        assert (await one.call("x_counter")).structured == {"count": 6 if shared else 5}


@pytest.mark.parametrize("sessions", ["per_client", "shared"])
async def test_clients_of_a_stdio_server_share_it_only_when_told_to(tmp_path: Path, sessions: str) -> None:
    server = StdioFaults(tmp_path, "x")
    with Gateway(tmp_path, server.entry(sessions=sessions)) as gateway:
        await counts_apart(gateway, shared=sessions == "shared")


@pytest.mark.parametrize("sessions", ["per_client", "shared"])
async def test_clients_of_an_http_server_share_a_session_only_when_told_to(tmp_path: Path, sessions: str) -> None:
    with HttpFaults(tmp_path, "x") as server, Gateway(tmp_path, server.entry(sessions=sessions)) as gateway:
        await counts_apart(gateway, shared=sessions == "shared")


async def test_tools_that_appear_in_a_clients_own_server_are_its_alone(tmp_path: Path) -> None:
    with Gateway(tmp_path, StdioFaults(tmp_path, "x").entry()) as gateway:
        async with gateway.client() as one, gateway.client() as two:
            before = await two.tool_names()
            assert "x_grown" not in before
            await one.call("x_grow", {"name": "grown"})

            async def sees_it() -> bool:
                return "x_grown" in await one.tool_names()

            await until(sees_it, "the client sees its new tool")
            assert (await one.call("x_grown", {"text": "hello"})).result
            assert await two.tool_names() == before
            assert (await two.call("x_grown")).error


async def test_one_session_keeps_one_process_for_all_its_calls(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "x")
    with Gateway(tmp_path, server.entry()) as gateway:
        async with gateway.client() as client:
            answers = await all_of(client.call("x_pid") for _ in range(10))
            answers += [await client.call("x_pid") for _ in range(5)]
            assert len({answer.structured["pid"] for answer in answers}) == 1
    assert len(server.events("start")) <= 2


async def test_a_session_that_ends_takes_its_process_with_it(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "x")
    with Gateway(tmp_path, server.entry()) as gateway:
        async with gateway.client() as leaving, gateway.client() as staying:
            gone = (await leaving.call("x_pid")).structured["pid"]
            kept = (await staying.call("x_pid")).structured["pid"]
            assert gone != kept
            await leaving.delete()
            await until(lambda: not alive(gone), "the process of the ended session is gone")
            assert (await staying.call("x_pid")).structured["pid"] == kept


async def test_an_http_session_that_ends_is_ended_at_the_server(tmp_path: Path) -> None:
    with HttpFaults(tmp_path, "x") as server, Gateway(tmp_path, server.entry()) as gateway:
        async with gateway.client() as leaving:
            session = (await leaving.call("x_pid")).structured["session"]
            await leaving.delete()
            await server.wait_for("deleted", session=session)


async def test_an_idle_process_is_ended_and_the_next_call_starts_another(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "x")
    with Gateway(tmp_path, server.entry(timeout=1), limits={"lane_idle": 1}) as gateway:
        async with gateway.client() as client:
            first = (await client.call("x_pid")).structured["pid"]
            await until(lambda: not alive(first), "the idle process is gone")
            assert (await client.call("x_pid")).structured["pid"] != first


async def test_more_clients_than_lanes_are_refused_not_mixed(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "x")
    with Gateway(tmp_path, server.entry(), limits={"lanes_per_source": 1}) as gateway:
        async with gateway.client() as one, gateway.client() as two:
            assert (await one.call("x_counter", {"add": 5})).structured == {"count": 5}
            busy = asyncio.ensure_future(one.call("x_sleep", {"seconds": 1}))
            await server.wait_for("call", tool="sleep")
            assert (await two.call("x_counter")).situation == TOO_MANY_LANES
            assert (await busy).text == "slept"
            assert (await one.call("x_counter")).structured == {"count": 5}
            await one.delete()

            async def gets_a_place() -> Answer | None:
                answer = await two.call("x_counter")
                return None if answer.failed else answer

            assert (await until(gets_a_place, "the freed lane is used")).structured == {"count": 0}


async def test_one_clients_crash_is_not_anothers(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "x")
    with Gateway(tmp_path, server.entry()) as gateway:
        async with gateway.client() as one, gateway.client() as two:
            await two.call("x_counter", {"add": 3})
            sleeping = asyncio.ensure_future(two.call("x_sleep", {"seconds": 1}))
            await server.wait_for("call", tool="sleep")
            assert (await one.call("x_crash")).failed
            assert (await sleeping).text == "slept"
            assert (await two.call("x_counter")).structured == {"count": 3}


@pytest.mark.parametrize("kind", ["stdio", "http"])
async def test_one_clients_cancellation_never_cancels_anothers_call(tmp_path: Path, kind: str) -> None:
    if kind == "stdio":
        await cancels_only_its_own(tmp_path, StdioFaults(tmp_path, "x"))
    else:
        with HttpFaults(tmp_path, "x") as server:
            await cancels_only_its_own(tmp_path, server)


async def cancels_only_its_own(folder: Path, server: StdioFaults | HttpFaults) -> None:
    with Gateway(folder, server.entry(sessions="shared")) as gateway:
        async with gateway.client() as one, gateway.client() as two, gateway.client() as third:
            mine = asyncio.ensure_future(one.call("x_sleep", {"seconds": 1.5}, id=1))
            theirs = asyncio.ensure_future(two.call("x_hang", id=1))
            await server.wait_for("call", tool="sleep")
            await server.wait_for("call", tool="hang")
            await third.cancel(1)
            await two.cancel(1)
            assert (await theirs).situation[:2] == CANCELLED
            assert (await mine).text == "slept"
        assert len(server.events("cancelled")) == 1


async def test_a_posted_cancellation_from_a_modern_client_cancels_nothing(tmp_path: Path) -> None:
    """Such a client has no session: acting on an id it chose would let one caller cancel another's call."""
    server = StdioFaults(tmp_path, "x")
    with Gateway(tmp_path, server.entry()) as gateway:
        async with gateway.modern() as one, gateway.modern() as two:
            sleeping = asyncio.ensure_future(one.call("x_sleep", {"seconds": 1}, id=1))
            await server.wait_for("call", tool="sleep")
            headers = {"MCP-Protocol-Version": two.version, "Mcp-Method": "notifications/cancelled"}
            body = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"_meta":{}}}'
            assert (await two.post(body, headers)).status in (202, 400)
            assert (await sleeping).text == "slept"
    assert not server.events("cancelled")


async def test_a_server_sees_only_the_environment_it_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_SECRET", "do not pass on")
    monkeypatch.setenv("SOME_SETTING", "pass on")
    server = StdioFaults(tmp_path, "x")
    entry = server.entry(env={"GIVEN": "yes"}, inherit_env=["SOME_SETTING"])
    with Gateway(tmp_path, entry) as gateway:
        async with gateway.client() as client:
            seen = (await client.call("x_env")).structured
            assert seen["GIVEN"] == "yes"
            assert seen["SOME_SETTING"] == "pass on"
            assert seen["PATH"] == os.environ["PATH"]
            assert "SOME_SECRET" not in seen
            assert "do not pass on" not in seen.values()
