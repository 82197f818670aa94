"""Who shares a server: clients of a `per_client` one never meet, those of a `shared` one do; nobody steers another."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.answers import Answer
from tests.support.gateway import Gateway
from tests.support.processes import alive
from tests.support.scenes import all_of, cancelled_id, held
from tests.support.servers import HttpFaults, StdioFaults
from tests.support.shared_gateway import shared_gateway, visiting
from tests.support.waiting import START_WAIT_S, until

CANCELLED = (499, "TL310")
TOO_MANY_UPSTREAM_SESSIONS = (429, "TL206", "no")


Servers = dict[str, StdioFaults | HttpFaults]
pytestmark = pytest.mark.law


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Gateway, Servers]]:
    """A server of each transport for each client, and, as `shared_…`, one for all of them."""
    folder = tmp_path_factory.mktemp("isolation")
    stdio, shared_stdio = StdioFaults(folder, "stdio"), StdioFaults(folder, "shared_stdio")
    with HttpFaults(folder, "http") as http, HttpFaults(folder, "shared_http") as shared_http:
        own, shared = (stdio, http), (shared_stdio, shared_http)
        entries = [server.entry() for server in own] + [server.entry(sessions="shared") for server in shared]
        with shared_gateway(Gateway(folder, *entries, start_wait=START_WAIT_S)) as gateway:
            yield gateway, {server.name: server for server in (*own, *shared)}


@pytest.fixture
def gateway(place: tuple[Gateway, Servers]) -> Gateway:
    return place[0]


@pytest.fixture
def servers(place: tuple[Gateway, Servers]) -> Servers:
    for server in place[1].values():
        server.forget()
    return place[1]


@pytest.mark.parametrize("name", ["stdio", "shared_stdio", "http", "shared_http"])
async def test_clients_share_a_server_only_when_told_to(gateway: Gateway, name: str) -> None:
    shared = name.startswith("shared")
    async with visiting(gateway) as one, visiting(gateway) as two:
        assert (await one.call(f"{name}_counter", {"add": 5})).structured == {"count": 5}
        assert (await two.call(f"{name}_counter")).structured == {"count": 5 if shared else 0}
        assert (await two.call(f"{name}_counter", {"add": 1})).structured == {"count": 6 if shared else 1}
        assert (await one.call(f"{name}_counter")).structured == {"count": 6 if shared else 5}


async def test_tools_that_appear_in_a_clients_own_server_are_its_alone(gateway: Gateway) -> None:
    async with visiting(gateway) as one, visiting(gateway) as two:
        before = await two.tool_names()
        assert "stdio_grown" not in before
        await one.call("stdio_grow", {"name": "grown"})

        async def sees_it() -> bool:
            return "stdio_grown" in await one.tool_names()

        await until(sees_it, "the client sees its new tool")
        assert (await one.call("stdio_grown", {"text": "hello"})).result
        assert await two.tool_names() == before
        assert (await two.call("stdio_grown")).error


async def test_one_session_keeps_one_process_for_all_its_calls(gateway: Gateway, servers: Servers) -> None:
    async with visiting(gateway) as client:
        answers = await all_of(client.call("stdio_pid") for _ in range(10))
        answers += [await client.call("stdio_pid") for _ in range(5)]
        assert len({answer.structured["pid"] for answer in answers}) == 1
    assert len(servers["stdio"].events("start")) <= 1


async def test_a_session_that_ends_takes_its_process_with_it(gateway: Gateway) -> None:
    async with gateway.client() as leaving, visiting(gateway) as staying:
        gone = (await leaving.call("stdio_pid")).structured["pid"]
        kept = (await staying.call("stdio_pid")).structured["pid"]
        assert gone != kept
        await leaving.delete()
        await until(lambda: not alive(gone), "the process of the ended session is gone")
        assert (await staying.call("stdio_pid")).structured["pid"] == kept


async def test_an_http_session_that_ends_is_ended_at_the_server(gateway: Gateway, servers: Servers) -> None:
    async with gateway.client() as leaving:
        session = (await leaving.call("http_pid")).structured["session"]
        await leaving.delete()
        await servers["http"].wait_for("deleted", session=session)


async def test_an_idle_process_is_ended_and_the_next_call_starts_another(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "x")
    with Gateway(tmp_path, server.entry(), limits={"source_session_idle": 1}) as gateway:
        async with gateway.client() as client:
            first = (await client.call("x_pid")).structured["pid"]
            await until(lambda: not alive(first), "the idle process is gone")
            assert (await client.call("x_pid")).structured["pid"] != first


async def test_more_clients_than_sessions_are_refused_not_mixed(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "x")
    with Gateway(tmp_path, server.entry(), limits={"sessions_per_source": 1}) as gateway:
        async with gateway.client() as one, gateway.client() as two:
            assert (await one.call("x_counter", {"add": 5})).structured == {"count": 5}
            async with held(one, server, "x") as busy:
                assert (await two.call("x_counter")).situation == TOO_MANY_UPSTREAM_SESSIONS
            assert busy.result().text == "let through"
            assert (await one.call("x_counter")).structured == {"count": 5}
            await one.delete()

            async def gets_a_place() -> Answer | None:
                answer = await two.call("x_counter")
                return None if answer.failed else answer

            assert (await until(gets_a_place, "the freed session is used")).structured == {"count": 0}


async def test_one_clients_crash_is_not_anothers(gateway: Gateway, servers: Servers) -> None:
    async with visiting(gateway) as one, visiting(gateway) as two:
        await two.call("stdio_counter", {"add": 3})
        async with held(two, servers["stdio"], "stdio") as other:
            assert (await one.call("stdio_crash")).failed
            assert not other.done()
        assert other.result().text == "let through"
        assert (await two.call("stdio_counter")).structured == {"count": 3}


@pytest.mark.parametrize("name", ["shared_stdio", "shared_http"])
async def test_one_clients_cancellation_never_cancels_anothers_call(
    gateway: Gateway, servers: Servers, name: str
) -> None:
    server = servers[name]
    async with visiting(gateway) as one, visiting(gateway) as two, visiting(gateway) as third:
        mine = asyncio.ensure_future(one.call(f"{name}_sleep", {"seconds": 1}, id=1))
        theirs = asyncio.ensure_future(two.call(f"{name}_hang", id=1))
        await server.wait_for("call", tool="sleep")
        await server.wait_for("call", tool="hang")
        await third.cancel(1)
        await two.cancel(1)
        assert (await theirs).situation[:2] == CANCELLED
        assert (await mine).text == "slept"
    assert [event["requestId"] for event in server.events("cancelled")] == [cancelled_id(server, "hang")]


async def test_a_posted_cancellation_from_a_modern_client_cancels_nothing(gateway: Gateway, servers: Servers) -> None:
    """Such a client has no session: acting on an id it chose would let one caller cancel another's call."""
    server = servers["stdio"]
    async with gateway.modern() as one, gateway.modern() as two:
        sleeping = asyncio.ensure_future(one.call("stdio_sleep", {"seconds": 1}, id=1))
        await server.wait_for("call", tool="sleep")
        headers = {"MCP-Protocol-Version": two.version, "Mcp-Method": "notifications/cancelled"}
        body = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"_meta":{}}}'
        assert (await two.post(body, headers)).status in (202, 400)
        assert (await sleeping).text == "slept"
        assert cancelled_id(server, "sleep") not in [event["requestId"] for event in server.events("cancelled")]


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
