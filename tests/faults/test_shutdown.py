"""A gateway that ends leaves nothing behind: SIGTERM, SIGINT, SIGKILL, exhausted file descriptors."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import subprocess
from pathlib import Path

import pytest
from tests.support.answers import CLIENT_LIMIT, DRAINING, NOT_STARTED, QUEUE_FULL, TIMED_OUT
from tests.support.gateway import TRUNKLINE, Gateway, write_config
from tests.support.http_wire import Wire
from tests.support.ports import free_port
from tests.support.processes import alive
from tests.support.scenes import held, works_again
from tests.support.servers import HttpFaults, StdioFaults
from tests.support.waiting import at_most, until

NASTY = {
    "spawn": ["spawn"],
    "setsid": ["spawn_setsid"],
    "stubborn": ["stubborn"],
    "stubborn_setsid": ["stubborn", "spawn_setsid"],
}


def family(server: StdioFaults) -> list[int]:
    """The processes of a server and those it spawned, at this moment."""
    spawned = [event["child"] for event in server.events("spawned")]
    return [pid for pid in server.pids() + spawned if alive(pid)]


async def families(gateway: Gateway, servers: list[StdioFaults]) -> dict[int, str]:
    """Every process of servers that work, and whose it is."""
    async with gateway.client() as client:
        for server in servers:
            await works_again(client, server.name)
    found = {pid: server.name for server in servers for pid in family(server)}
    assert set(found.values()) == set(NASTY)
    return found


async def all_gone(below: dict[int, str]) -> None:
    """Whose process is left is shown."""
    with contextlib.suppress(AssertionError):
        await until(lambda: not any(map(alive, below)), "everything below the gateway is gone")
    assert [name for pid, name in below.items() if alive(pid)] == []


@pytest.mark.law
async def test_sigterm_ends_every_descendant_and_exits_0(tmp_path: Path) -> None:
    servers = [StdioFaults(tmp_path, name, faults=faults) for name, faults in NASTY.items()]
    with Gateway(tmp_path, *(server.entry() for server in servers)) as gateway:
        below = await families(gateway, servers)
        assert gateway.terminate() == 0
        await all_gone(below)


@pytest.mark.law
async def test_sigkill_of_the_gateway_leaves_no_descendant(tmp_path: Path) -> None:
    servers = [StdioFaults(tmp_path, name, faults=faults) for name, faults in NASTY.items()]
    with Gateway(tmp_path, *(server.entry() for server in servers)) as gateway:
        below = await families(gateway, servers)
        below |= {process.pid: "the gateway" for process in gateway.descendants() if process.pid not in below}
        gateway.kill()
        await all_gone(below)


@pytest.mark.law
async def test_sigkill_in_the_middle_of_calls_leaves_no_descendant(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "s")
    with Gateway(tmp_path, server.entry()) as gateway:
        async with gateway.client() as client:
            await client.call("s_spawn", {"setsid": True})
            hanging = asyncio.ensure_future(client.call("s_hang"))
            await server.wait_for("call", tool="hang")
            below = family(server)
            gateway.kill()
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await hanging
            await until(lambda: not any(map(alive, below)), "everything below the gateway is gone")


@pytest.mark.parametrize("kind", ["stdio", "http"])
async def test_sigterm_lets_calls_finish_and_refuses_new_ones(tmp_path: Path, kind: str) -> None:
    if kind == "stdio":
        await drains(tmp_path, StdioFaults(tmp_path, "x"))
    else:
        with HttpFaults(tmp_path, "x") as server:
            await drains(tmp_path, server)


async def drains(folder: Path, server: StdioFaults | HttpFaults) -> None:
    with Gateway(folder, server.entry()) as gateway:
        async with gateway.client() as client, gateway.client() as other:
            await works_again(other, "x")
            async with held(client, server, "x") as finishing:
                gateway.process.send_signal(signal.SIGTERM)
                await until(lambda: "SIGTERM" in gateway.log, "the log says that the gateway is stopping")
                try:
                    refused = await other.call("x_echo")
                    assert refused.situation == DRAINING
                except (ConnectionError, asyncio.IncompleteReadError):
                    pass  # the listener is closed already, which refuses as well
                assert not finishing.done()
            assert finishing.result().text == "let through"
        assert await asyncio.to_thread(gateway.process.wait, at_most(30)) == 0


async def test_sigterm_waits_for_a_hanging_call_no_longer_than_its_timeout(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "s")
    with Gateway(tmp_path, server.entry(timeout=at_most(2))) as gateway:
        async with gateway.client() as client:
            hanging = asyncio.ensure_future(client.call("s_hang"))
            await server.wait_for("call", tool="hang")
            gateway.process.send_signal(signal.SIGTERM)
            assert (await hanging).situation == TIMED_OUT
        assert await asyncio.to_thread(gateway.process.wait, at_most(30)) == 0


async def test_a_call_that_outlasts_the_drain_is_answered_all_the_same(tmp_path: Path) -> None:
    """With a client that has no session: nothing but its connection is left to answer on."""
    server = StdioFaults(tmp_path, "s")
    with Gateway(tmp_path, server.entry(timeout=at_most(100))) as gateway:
        async with gateway.modern() as client:
            hanging = asyncio.ensure_future(client.call("s_hang"))
            await server.wait_for("call", tool="hang")
            gateway.process.send_signal(signal.SIGTERM)
            error = (await asyncio.wait_for(hanging, at_most(60))).error
            assert (error["code"], error["data"]["executed"]) == (499, "unknown")
        assert await asyncio.to_thread(gateway.process.wait, at_most(30)) == 0


async def test_sigint_ends_the_gateway_as_orderly(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "s")
    with Gateway(tmp_path, server.entry()) as gateway:
        async with gateway.client() as client:
            await works_again(client, "s")
        gateway.process.send_signal(signal.SIGINT)
        assert await asyncio.to_thread(gateway.process.wait, at_most(30)) in (0, 130)


@pytest.mark.law
async def test_sigterm_while_servers_are_starting_leaves_nothing(tmp_path: Path) -> None:
    slow = [StdioFaults(tmp_path, f"s{number}", start_delay=30) for number in range(4)]
    mute = StdioFaults(tmp_path, "mute", faults=["mute"])
    with Gateway(tmp_path, mute.entry(), *(server.entry() for server in slow)) as gateway:
        await mute.wait_for("message")
        assert gateway.terminate() == 0


async def test_a_taken_port_ends_with_2_and_starts_nothing(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "s")
    with socket.create_server(("127.0.0.1", free_port())) as taken:
        config = write_config(tmp_path, server.entry(), listen=f"127.0.0.1:{taken.getsockname()[1]}")
        ended = subprocess.run(
            [TRUNKLINE, "up", "-c", str(config)], capture_output=True, text=True, timeout=at_most(30)
        )
    assert ended.returncode == 2
    assert "TL114" in ended.stderr
    assert not ended.stdout


async def test_a_gateway_out_of_file_descriptors_refuses_and_recovers(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "s")
    with Gateway(tmp_path, server.entry(timeout=at_most(3)), prelude="ulimit -n 48") as gateway:
        async with gateway.client() as client:
            await works_again(client, "s")
            crowd: list[Wire] = []
            try:
                for _ in range(80):
                    crowd.append(await Wire.connect(gateway.port))
                answer = await client.call("s_echo", {"a": 1})
                allowed = {TIMED_OUT, QUEUE_FULL, CLIENT_LIMIT, *NOT_STARTED}
                assert not answer.failed or answer.situation in allowed
                assert gateway.process.poll() is None
            finally:
                for wire in crowd:
                    await wire.abort()
        await until(lambda: serves_a_new_client(gateway), "the gateway has recovered")


async def serves_a_new_client(gateway: Gateway) -> bool:
    try:
        async with gateway.client() as client:
            return not (await client.call("s_echo", {"a": 1})).failed
    except (ConnectionError, asyncio.IncompleteReadError):
        return False
