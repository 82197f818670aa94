"""Many connections that are idle, unfinished or retrying: others are served, and memory is bounded."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.app_peer import AppPeer
from tests.support.client import Client, ModernClient
from tests.support.gateway import Gateway
from tests.support.http_wire import Wire, fetch
from tests.support.ports import free_port
from tests.support.retrying_clients import RETRIERS, Retrier
from tests.support.servers import StdioFaults
from tests.support.waiting import at_most, until

MIB = 1024 * 1024
HEAD = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
UNFINISHED = HEAD + b"Content-Length: 100\r\n\r\n{ }"
HURRIED = (
    sys.executable,
    "-c",
    "import trunkline.frontends.http.connection as c; c.READ_S = 1.0; c.LINGER_S = 0.5; c.IDLE_S = 2.0\n"
    "from trunkline.cli import main; main()",
)
"""The same program with a faster clock for connections, so that nobody has to wait for half a minute."""


async def ended(wire: Wire) -> None:
    async with asyncio.timeout(at_most(20)):
        await wire.read_to_end()


@contextlib.asynccontextmanager
async def connected(port: int, count: int, first: bytes = b"") -> AsyncIterator[list[Wire]]:
    wires = [await Wire.connect(port) for _ in range(count)]
    try:
        for wire in wires:
            if first:
                wire.writer.write(first)
        yield wires
    finally:
        for wire in wires:
            await wire.abort()


# The clock ------------------------------------------------------------------------------------------------------------


async def test_a_request_that_never_ends_does_not_stop_the_clock_of_the_others(tmp_path: Path) -> None:
    with Gateway(tmp_path, program=HURRIED) as gateway:
        async with connected(gateway.port, 3) as wires:
            beginnings = (UNFINISHED, HEAD + b"X-Half: ", HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{")
            for wire, beginning in zip(wires, beginnings, strict=True):
                await wire.send(beginning)
            for wire in wires:
                assert (await wire.read()).status == 408
            await until(lambda: _connections(gateway, 1), "they are cut, although they never close")
            # and so is whoever comes later and says nothing, or nothing more
            async with await Wire.connect(gateway.port) as silent, await Wire.connect(gateway.port) as idle:
                assert (await idle.ask(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")).status == 200
                await ended(silent)
                await ended(idle)
        assert '"event":"internal"' not in gateway.log


async def _connections(gateway: Gateway, count: int) -> bool:
    return (await gateway.metrics())["trunkline_connections{}"] == count


# Memory ---------------------------------------------------------------------------------------------------------------


def resident_mib(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize() / MIB


async def test_unfinished_bodies_are_bounded_all_together_and_the_oldest_gives_way(tmp_path: Path) -> None:
    with Gateway(tmp_path, limits={"unfinished_bytes": 16 * MIB}) as gateway:
        before = resident_mib(gateway.process.pid)
        beginning = HEAD + b"Content-Length: %d\r\n\r\n" % (2 * MIB) + b" " * (MIB + MIB // 2)
        async with connected(gateway.port, 0) as wires:
            for _ in range(60):  # 90 MiB of bodies that do not end
                wires.append(await Wire.connect(gateway.port))
                await wires[-1].send(beginning)
            refused = await asyncio.wait_for(wires[0].read(), at_most(15))
            assert refused.status == 503
            assert json.loads(refused.body)["error"]["data"]["code"] == "TL416"
            assert resident_mib(gateway.process.pid) - before < 60
            last = wires[-1]  # the newest is still welcome
            await last.send(b" " * (MIB // 2))
            assert (await last.read()).status == 400, "blanks are no message, but they were read to their end"
            samples = await gateway.metrics()
            assert samples["trunkline_unfinished_bytes{}"] <= 16 * MIB
            assert samples["trunkline_unfinished_given_way_total{}"] >= 40
        await until(lambda: _unfinished(gateway, 0), "nothing is held for those who left")


async def _unfinished(gateway: Gateway, expected: int) -> bool:
    return (await gateway.metrics())["trunkline_unfinished_bytes{}"] == expected


async def test_requests_that_wait_their_turn_on_a_connection_count_too(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path)
    with Gateway(tmp_path, server.entry(), limits={"unfinished_bytes": 4 * MIB}) as gateway:
        async with gateway.modern() as client:
            await until(lambda: _has_tool(client, "s_hang"), "the server is up")
            call = client.post_bytes(*_call(client, "s_hang"))
            big = client.post_bytes(*_call(client, "s_echo", {"text": "x" * MIB}))
            async with connected(gateway.port, 3) as wires:
                for wire in wires:
                    await wire.send(call)
                    for _ in range(3):
                        wire.writer.write(big)
                await until(lambda: _given_way(gateway), "some gave way")
                samples = await gateway.metrics()
                assert samples["trunkline_unfinished_bytes{}"] <= 4 * MIB
            assert (await client.call("s_echo", {"a": 1})).structured == {"a": 1}


async def test_large_calls_that_wait_or_run_are_bounded_all_together_and_small_ones_go_on(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path)
    with Gateway(tmp_path, server.entry(), limits={"unfinished_bytes": 16 * MIB}) as gateway:
        async with gateway.modern() as client:
            await until(lambda: _has_tool(client, "s_hang"), "the server is up")
            before = resident_mib(gateway.process.pid)
            big = client.post_bytes(*_call(client, "s_hang", {"text": "x" * MIB}))
            async with connected(gateway.port, 60) as wires:
                for wire in wires:
                    await wire.send(big)
                refused = 0
                for wire in wires[7:]:  # the first seven are within the bound, and never answered
                    answer = await asyncio.wait_for(wire.read(), at_most(15))
                    refused += json.loads(answer.body)["error"]["data"]["code"] == "TL303"
                assert refused == len(wires) - 7
                held_bytes = (await gateway.metrics())["trunkline_large_call_bytes{}"]
                assert 14 * MIB <= held_bytes <= 16 * MIB, "as they came, and as their server gets them"
                assert resident_mib(gateway.process.pid) - before < 60
                assert (await client.call("s_echo", {"a": 1})).structured == {"a": 1}
            await until(lambda: _no_large_call(gateway), "those whose clients have left are let go of")
            assert (await client.call("s_echo", {"text": "x" * MIB})).structured


async def _no_large_call(gateway: Gateway) -> bool:
    return (await gateway.metrics())["trunkline_large_call_bytes{}"] == 0


def _call(client: ModernClient, tool: str, arguments: dict[str, str] | None = None) -> tuple[bytes, dict[str, str]]:
    message = client.message("tools/call", {"name": tool, "arguments": arguments or {}})
    headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": tool}
    return json.dumps(message).encode(), headers


async def _has_tool(client: Client, tool: str) -> bool:
    return tool in await client.tool_names()


async def _given_way(gateway: Gateway) -> bool:
    return (await gateway.metrics())["trunkline_unfinished_given_way_total{}"] > 0


async def test_long_targets_of_requests_that_wait_count_too(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path)
    with Gateway(tmp_path, server.entry(), limits={"unfinished_bytes": 2 * MIB}) as gateway:
        async with gateway.modern() as client:
            await until(lambda: _has_tool(client, "s_hang"), "the server is up")
            call = client.post_bytes(*_call(client, "s_hang"))
            async with connected(gateway.port, 6) as wires:
                for wire in wires:
                    await wire.send(call)
                    for number in range(20):
                        wire.writer.write(
                            b"GET /healthz?%d%s HTTP/1.1\r\nHost: localhost\r\n\r\n" % (number, b"x" * 60_000)
                        )
                await until(lambda: _given_way(gateway), "some gave way")
            # there is room for the requests of one, and while they wait nothing more is read from it
            await until(lambda: _at_most_one_in_flight(gateway), "those who gave way and left are noticed")
            await client.call("s_crash")  # the gateway's end would wait for the call that is left


async def _at_most_one_in_flight(gateway: Gateway) -> bool:
    return (await gateway.metrics())["trunkline_calls_in_flight{}"] <= 1


async def test_lines_of_registered_apps_that_do_not_end_are_bounded_too(tmp_path: Path) -> None:
    port = free_port()
    apps = {"desk": {"kind": "app", "listen": f"127.0.0.1:{port}"}}
    with Gateway(tmp_path, apps, limits={"unfinished_bytes": 16 * MIB}) as gateway:
        await until(lambda: '"message":"desk is ready' in gateway.log, "it listens for apps")
        before = resident_mib(gateway.process.pid)
        async with contextlib.AsyncExitStack() as stack:
            peers: list[AppPeer] = []
            for number in range(20):  # 80 MiB of lines that do not end
                peer = await stack.enter_async_context(await AppPeer.dial(port))
                peers.append(peer)
                await peer.register(f"App{number}")
                with contextlib.suppress(ConnectionError):
                    peer.writer.write(b"x" * (4 * MIB))
                    await peer.writer.drain()
            await asyncio.wait_for(peers[0].ended(), at_most(15))
            assert resident_mib(gateway.process.pid) - before < 60
            fresh = await stack.enter_async_context(await AppPeer.dial(port))
            await fresh.register("Fresh")
            fresh.serve()
            async with gateway.client() as client:
                await until(lambda: _has_tool(client, "Fresh_echo"), "the newcomer is known")
                assert (await client.call("Fresh_echo", {"a": 1})).structured == {"a": 1}


async def test_a_body_is_not_waited_for_where_the_head_says_enough(tmp_path: Path) -> None:
    with Gateway(tmp_path, token="s3cret-t0ken") as gateway:
        bearer = b"Authorization: Bearer s3cret-t0ken\r\n"
        for more, status in (
            (b"", 401),
            (b"Authorization: Bearer wrong\r\n", 401),
            (bearer + b"Origin: http://evil.example\r\n", 403),
            (bearer.replace(b"Bearer", b"Basic"), 401),
        ):
            for expects in (b"", b"Expect: 100-continue\r\n"):
                async with await Wire.connect(gateway.port) as wire:
                    await wire.send(HEAD + more + expects + b"Content-Length: 4000000\r\n\r\n" + b"{" * 10)
                    assert (await wire.read()).status == status
                    await ended(wire)
        async with await Wire.connect(gateway.port) as wire:
            await wire.send(HEAD.replace(b"127.0.0.1", b"evil.example") + b"Content-Length: 4000000\r\n\r\n{")
            assert (await wire.read()).status == 421
        async with await Wire.connect(gateway.port) as wire:
            await wire.send(HEAD + bearer + b"Content-Length: 2\r\n\r\n")
            await asyncio.sleep(0.1)
            assert (await wire.ask(b"{}")).status == 400, "whoever may come in is read to the end"


async def test_a_head_behind_other_requests_is_judged_before_its_body_comes_too(tmp_path: Path) -> None:
    ask = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with Gateway(tmp_path, token="s3cret-t0ken") as gateway:
        for before in (1, 3, 6, 30):
            async with await Wire.connect(gateway.port) as wire:
                await wire.send(ask * before + HEAD + b"Content-Length: 4000000\r\n\r\n" + b"{" * 10)
                for _ in range(before):
                    assert (await wire.read()).status == 200
                assert (await wire.read()).status == 401
                await wire.send(b"{" * 100_000)
                await ended(wire)


# Connections ----------------------------------------------------------------------------------------------------------


async def test_silent_connections_give_way_to_whoever_asks_something(tmp_path: Path) -> None:
    with Gateway(tmp_path, limits={"connections": 40}) as gateway:
        async with connected(gateway.port, 30), connected(gateway.port, 30, HEAD) as newer:
            for _ in range(50):
                assert (await fetch(gateway.port, "GET", "/healthz")).status == 200
            async with connected(gateway.port, 10):
                assert (await fetch(gateway.port, "GET", "/healthz")).status == 200
            assert any(not wire.reader.at_eof() for wire in newer), "no more gave way than had to"
            await until(lambda: '"event":"connections_full"' in gateway.log, "the operator is told")
        assert gateway.log.count('"event":"connections_full"') == 1, "once, not for each of them"
        assert any("connections_evicted" in name for name in await gateway.metrics())


async def test_connections_that_asked_something_once_refuse_nobody_either(tmp_path: Path) -> None:
    ask = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with Gateway(tmp_path, limits={"connections": 20}) as gateway:
        async with connected(gateway.port, 20, ask) as wires:
            for wire in wires:
                assert (await wire.read()).status == 200
            await asyncio.sleep(0.3)
            for _ in range(10):
                assert (await fetch(gateway.port, "GET", "/healthz")).status == 200


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
async def test_newcomers_that_come_together_take_the_places_of_idle_connections_not_each_others(
    tmp_path: Path, loop: str
) -> None:
    ask = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    prelude = f"export TRUNKLINE_LOOP={loop}"
    with Gateway(tmp_path, prelude=prelude, limits={"connections": 40}) as gateway:
        async with connected(gateway.port, 40, ask) as wires:
            for wire in wires:
                assert (await wire.read()).status == 200
            await asyncio.sleep(0.3)  # they are idle, which takes a moment
            os.kill(gateway.process.pid, signal.SIGSTOP)  # so that newcomers are accepted together
            newcomers = await asyncio.gather(*[Wire.connect(gateway.port) for _ in range(20)])
            for wire in newcomers:
                await wire.send(ask)
            os.kill(gateway.process.pid, signal.SIGCONT)
            async with asyncio.timeout(at_most(15)):
                for wire in newcomers:
                    assert (await wire.read()).status == 200
                    await wire.close()


async def test_connections_that_asked_something_and_began_something_refuse_nobody(tmp_path: Path) -> None:
    ask = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with Gateway(tmp_path, limits={"connections": 20}) as gateway:
        async with connected(gateway.port, 20, ask + b"G") as wires:
            for wire in wires:
                assert (await wire.read()).status == 200
            await asyncio.sleep(0.3)
            for _ in range(10):
                assert (await fetch(gateway.port, "GET", "/healthz")).status == 200


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
async def test_connections_that_come_all_at_once_are_not_lost_sight_of(tmp_path: Path, loop: str) -> None:
    prelude = f"export TRUNKLINE_LOOP={loop}"
    with Gateway(tmp_path, prelude=prelude, program=HURRIED, limits={"connections": 8}) as gateway:
        os.kill(gateway.process.pid, signal.SIGSTOP)  # so that they are accepted together
        opening = [asyncio.ensure_future(Wire.connect(gateway.port)) for _ in range(100)]
        wires = await asyncio.gather(*opening)
        os.kill(gateway.process.pid, signal.SIGCONT)
        async with asyncio.timeout(at_most(30)):
            for wire in wires:
                await ended(wire)
                await wire.close()


async def test_idle_connections_are_closed_before_newcomers_have_to_be_refused(tmp_path: Path) -> None:
    program = (*HURRIED[:2], HURRIED[2].replace("IDLE_S = 2.0", "IDLE_S = 75.0"))
    patched = "import trunkline.frontends.http.server as s; s._IDLE_S = 0.5\n"
    with Gateway(tmp_path, program=(*program[:2], patched + program[2]), limits={"connections": 20}) as gateway:
        ask = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
        async with connected(gateway.port, 20, ask) as wires:
            for wire in wires:
                assert (await wire.read()).status == 200

            async def served() -> bool:
                with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                    return (await fetch(gateway.port, "GET", "/healthz")).status == 200
                return False

            await until(served, "somebody new is served")


async def test_connections_leave_descriptors_for_servers_and_children_have_their_old_limit(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path)
    with Gateway(tmp_path, server.entry(), prelude="ulimit -Sn 200; ulimit -Hn 256") as gateway:
        await until(lambda: '"event":"few_descriptors"' in gateway.log, "the operator is told")
        limits = Path(f"/proc/{gateway.process.pid}/limits").read_text()
        assert re.search(r"Max open files\s+256\s+256", limits)
        async with connected(gateway.port, 0) as wires, gateway.client() as client:
            with contextlib.suppress(OSError):
                for _ in range(300):
                    wires.append(await Wire.connect(gateway.port))
            assert (await client.call("s_echo", {"a": 1})).structured == {"a": 1}, "its server could be started"
            pid = server.pids()[0]
            assert re.search(r"Max open files\s+200\s+256", Path(f"/proc/{pid}/limits").read_text())
            assert (await fetch(gateway.port, "GET", "/healthz")).status == 200


async def test_those_who_dial_as_apps_leave_descriptors_for_servers_too(tmp_path: Path) -> None:
    server, port = StdioFaults(tmp_path), free_port()
    apps = {"desk": {"kind": "app", "listen": f"127.0.0.1:{port}"}}
    with Gateway(tmp_path, server.entry(sessions="per_client"), apps, prelude="ulimit -n 256") as gateway:
        await until(lambda: '"message":"desk is ready' in gateway.log, "it listens for apps")
        async with connected(gateway.port, 300), connected(port, 100), gateway.client() as client:
            await until(lambda: _has_tool(client, "s_echo"), "the server is up")
            for number in range(3):
                assert (await client.call("s_echo", {"a": number})).structured == {"a": number}
            assert (await fetch(gateway.port, "GET", "/healthz")).status == 200


FLOOD = """
import os, socket, sys, threading
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
flood = sys.stdin.buffer.read()
def read():
    while connection.recv(1 << 20): pass
    os._exit(0)
threading.Thread(target=read, daemon=True).start()
print("on", flush=True)
while True: connection.sendall(flood)
"""
FLOODS = {
    "requests sent ahead": b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 500,
    "a body in single bytes": b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\n \r\n" * 20_000 + b"0\r\n\r\n",
}


@pytest.mark.parametrize("what", FLOODS)
async def test_one_client_that_never_pauses_does_not_keep_others_waiting(tmp_path: Path, what: str) -> None:
    with Gateway(tmp_path) as gateway:
        command = [sys.executable, "-c", FLOOD, str(gateway.port)]
        flooding = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            assert flooding.stdin is not None
            assert flooding.stdout is not None
            flooding.stdin.write(FLOODS[what])
            flooding.stdin.close()
            assert flooding.stdout.readline() == b"on\n"
            for _ in range(20):
                async with asyncio.timeout(at_most(5)):
                    assert (await fetch(gateway.port, "GET", "/healthz")).status == 200
            assert flooding.poll() is None, "it was not cut off either"
        finally:
            flooding.kill()
            flooding.wait()
            if flooding.stdout is not None:
                flooding.stdout.close()


# Calls ----------------------------------------------------------------------------------------------------------------


async def test_a_client_that_is_stuck_refuses_nobody_else(tmp_path: Path) -> None:
    server, other = StdioFaults(tmp_path), StdioFaults(tmp_path, "o")
    limits = {"in_flight_per_client": 4, "in_flight_per_source": 1000}
    with Gateway(tmp_path, server.entry(), other.entry(), limits=limits) as gateway:
        async with gateway.modern() as client, contextlib.AsyncExitStack() as stuck:
            await until(lambda: _has_tool(client, "s_hang"), "the server is up")
            for _ in range(12):
                await stuck.enter_async_context(client.start_call("s_hang", {}))
            await server.wait_for("call", 12)
            for name in ("s_echo", "o_echo"):
                assert (await client.call(name, {"a": 1})).structured == {"a": 1}
            body = json.dumps({"tool_id": "o.echo", "arguments": {"a": 2}}).encode()
            await fetch(gateway.port, "GET", "/api/tools/discover?query=echo")
            reply = await fetch(gateway.port, "POST", "/api/proxy/execute", None, body)
            assert reply.status == 200, reply.body


@pytest.mark.parametrize("sent_ahead", [0, 60])
async def test_a_client_whose_calls_hang_on_every_connection_locks_nobody_out(tmp_path: Path, sent_ahead: int) -> None:
    server, path = StdioFaults(tmp_path), tmp_path / "gw.sock"
    with Gateway(tmp_path, server.entry(), limits={"connections": 24}, socket=str(path)) as gateway:
        async with gateway.modern() as client:
            await until(lambda: _has_tool(client, "s_hang"), "the server is up")
            call = client.post_bytes(*_call(client, "s_hang"))
        ask = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
        async with connected(gateway.port, 24, call * (1 + sent_ahead)):
            await server.wait_for("call", 21)

            async def served() -> bool:
                with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                    return (await fetch(gateway.port, "GET", "/healthz")).status == 200
                return False

            async def served_beside() -> bool:
                with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                    async with Wire(*await asyncio.open_unix_connection(path)) as wire:
                        return (await wire.ask(ask)).status == 200
                return False

            for _ in range(10):
                await until(served, "whoever comes by the port is served")
                await until(served_beside, "and by the Unix socket")
            assert len(server.calls()) == 21, "no more than seven of eight connections wait"


@pytest.mark.slow
@pytest.mark.parametrize("way", RETRIERS)
async def test_clients_that_ask_again_at_once_do_not_take_the_time_of_those_who_are_served(
    tmp_path: Path, way: str
) -> None:
    """They are read more and more slowly: each is refused a few times a second, however fast it asks."""
    server = StdioFaults(tmp_path)
    limits = {"in_flight_per_source": 2, "queue_per_source": 1}
    with Gateway(tmp_path, server.entry(), limits=limits) as gateway:
        async with gateway.modern() as client, contextlib.AsyncExitStack() as stuck:
            await until(lambda: _has_tool(client, "s_hang"), "the server is up")
            for _ in range(3):
                await stuck.enter_async_context(client.start_call("s_hang", {}))
            await server.wait_for("call", 2)
            retriers = [RETRIERS[way](gateway.port, "s_echo") for _ in range(20)]
            refused = 0

            async def ask_on(retrier: Retrier) -> None:
                nonlocal refused
                while True:
                    answer = await retrier.ask()
                    assert b'"code":429' in answer, answer
                    refused += 1

            for retrier in retriers:
                await retrier.begin()
                stuck.push_async_callback(retrier.abort)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(3), asyncio.TaskGroup() as group:
                    for retrier in retriers:
                        group.create_task(ask_on(retrier))
            assert 20 * 3 <= refused <= 20 * 12, "each was refused now and then, and none as often as it asked"
