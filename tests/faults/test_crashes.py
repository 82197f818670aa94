"""Repeated crashes: other clients' processes are unaffected, and a server that worked is restarted at once."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path

import pytest
from tests.support.answers import DOWN, LOST
from tests.support.client import Client
from tests.support.gateway import Gateway
from tests.support.http_wire import fetch
from tests.support.scenes import works_again
from tests.support.servers import StdioFaults, kill
from tests.support.waiting import until

AT_ONCE = 5
"""How often in a minute a server that worked is started again without a wait."""


async def pid_of(client: Client, server: str) -> int:
    return (await client.call(f"{server}_pid")).structured["pid"]


async def wear_down(stateless: Client, server: StdioFaults, spared: set[int]) -> None:
    """Kill the process that all share until the gateway leaves it alone for a while and says so."""

    async def is_at_rest() -> bool:
        for pid in set(server.pids()) - spared:
            kill(pid)
        answer = await stateless.call(f"{server.name}_echo")
        assert not answer.failed or answer.situation in {DOWN, LOST}, answer.raw
        return answer.failed and answer.situation == DOWN

    await until(is_at_rest, "calls without a session are refused", 60)


async def test_a_process_that_all_share_and_that_keeps_crashing_costs_clients_with_their_own_nothing(
    tmp_path: Path,
) -> None:
    server = StdioFaults(tmp_path, "s")
    with Gateway(tmp_path, server.entry()) as gateway:
        async with gateway.client() as one, gateway.client() as newcomer, gateway.modern() as stateless:
            own = await pid_of(one, "s")
            await wear_down(stateless, server, {own})
            assert await pid_of(one, "s") == own
            assert await pid_of(newcomer, "s") != own  # a server that serves one client will serve another
            assert "s_echo" in await one.tool_names()
            await works_again(stateless, "s")
            assert await pid_of(one, "s") == own


async def test_a_client_whose_own_process_keeps_crashing_costs_nobody_else_anything(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "s")
    with Gateway(tmp_path, server.entry()) as gateway:
        async with gateway.client() as crashing, gateway.client() as one, gateway.modern() as stateless:
            own, shared = await pid_of(one, "s"), await pid_of(stateless, "s")

            async def is_at_rest() -> bool:
                answer = await crashing.call("s_crash")
                return answer.situation != LOST

            await until(is_at_rest, "the client that crashes its server is refused for a while", 60)
            assert (await pid_of(one, "s"), await pid_of(stateless, "s")) == (own, shared)
            async with gateway.client() as newcomer:
                assert await pid_of(newcomer, "s") not in (own, shared)
            await works_again(crashing, "s")


@pytest.mark.parametrize("sessions", ["shared", "per_client"])
async def test_a_server_that_works_between_crashes_is_back_at_once(tmp_path: Path, sessions: str) -> None:
    """Several, since waits are drawn by lot and one might be lucky."""
    servers = [StdioFaults(tmp_path, f"s{number}") for number in range(4)]
    with Gateway(tmp_path, *(server.entry(sessions=sessions) for server in servers)) as gateway:
        async with gateway.client() as client:
            await asyncio.gather(*(works_and_dies(gateway, client, server) for server in servers))


async def works_and_dies(gateway: Gateway, client: Client, server: StdioFaults) -> None:
    """As often as it may, with all its processes. One that is killed while it starts has not worked."""

    async def all_work() -> bool:
        reply = await fetch(gateway.port, "GET", "/readyz")
        return json.loads(reply.body)["servers"][server.name]["state"] == "ready"

    for _ in range(AT_ONCE):
        pid = await pid_of(client, server.name)
        await until(all_work, f"every process of `{server.name}` has started")
        for each in server.pids():
            kill(each)
        await until(partial(answers_anew, client, server.name, pid), f"another process of `{server.name}` answers")


async def answers_anew(client: Client, server: str, pid: int) -> bool:
    """The end of a process may cost a call that was sent to it; none is refused."""
    answer = await client.call(f"{server}_pid")
    assert not answer.failed or answer.situation == LOST, answer.raw
    return not answer.failed and answer.structured["pid"] != pid
