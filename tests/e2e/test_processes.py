"""Real servers under `trunkline stdio`: however it ends, no process is left."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.gateway import TRUNKLINE, Gateway, stdio_gateway, write_config
from tests.support.pairs import IN_FULL
from tests.support.peers.clients import connect
from tests.support.peers.programs import StdioPeer, everything, fastmcp, sdk
from tests.support.ports import free_port
from tests.support.processes import alive, descendants
from tests.support.servers import StdioFaults
from tests.support.stdio_client import StdioClient
from tests.support.waiting import START_WAIT_S, at_most, until, wait_until

pytestmark = [pytest.mark.node, pytest.mark.law]


def entries(folder: Path) -> list[dict[str, Any]]:
    """Python, Node behind its launcher, and a shell that leaves something behind."""
    shell = ["sh", "-c", 'sleep 3600 & "$@"', "sh", *StdioFaults(folder, "sh").command]
    servers = [sdk(folder), everything(folder, name="node"), StdioPeer(folder, "sh", shell)]
    if IN_FULL:
        servers.append(fastmcp(folder, name="fast"))
    return [server.entry() for server in servers]


async def everyone(client: StdioClient) -> list[int]:
    """Wait until all servers have answered; every process below the gateway."""
    await client.open()
    tools = {"peer": "whoami", "node": "get-env", "sh": "echo", **({"fast": "whoami"} if IN_FULL else {})}
    for server, tool in tools.items():
        assert not (await client.call(f"{server}_{tool}")).failed
    below = [process.pid for process in descendants(client.process.pid)]
    assert len(below) >= len(tools) + 2, "the launcher's child and the shell's are there too"
    return below


async def gone(below: list[int]) -> None:
    await until(lambda: not any(map(alive, below)), "every process below the gateway is gone")


@pytest.mark.slow
async def test_closing_its_input_ends_the_gateway_and_every_server(tmp_path: Path) -> None:
    async with stdio_gateway(tmp_path, *entries(tmp_path)) as client:
        below = await everyone(client)
        client.end_input()
        assert await client.wait() == 0
        await gone(below)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
async def test_a_signal_to_the_gateway_ends_every_server(number: signal.Signals, tmp_path: Path) -> None:
    async with stdio_gateway(tmp_path, *entries(tmp_path)) as client:
        below = await everyone(client)
        os.kill(client.process.pid, number)
        await client.wait()
        await gone(below)


async def test_sighup_reloads_a_gateway_of_one_client_too(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "late")
    async with stdio_gateway(tmp_path) as client:
        assert await client.tool_names() == set()
        write_config(tmp_path, server.entry())
        os.kill(client.process.pid, signal.SIGHUP)

        async def listed() -> bool:
            return "late_echo" in await client.tool_names()

        await until(listed, "the new server's tools are listed")


def hang_up(command: list[str], log: Path, then: Callable[[int], None] = lambda _: None) -> int:
    """Start a program on a terminal of its own, close that once it listens, and wait for the program's end."""
    child, terminal = pty.fork()
    if not child:
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 2)
        os.execv(command[0], command)
    wait_until(lambda: log.exists() and "listens on" in log.read_text(), "it is up")
    os.close(terminal)
    then(child)
    _, status = wait_until(lambda: ((found := os.waitpid(child, os.WNOHANG))[0] and found) or None, "it has ended", 30)
    return status


def test_closing_the_terminal_ends_the_gateway_that_was_started_there(tmp_path: Path) -> None:
    config = write_config(tmp_path, StdioFaults(tmp_path, "x").entry(), listen=f"127.0.0.1:{free_port()}")
    status = hang_up([TRUNKLINE, "up", "-c", str(config)], tmp_path / "log")
    assert os.waitstatus_to_exitcode(status) == 0
    assert "SIGHUP: finishing calls in flight" in (tmp_path / "log").read_text()


def test_what_was_started_to_outlive_its_terminal_does(tmp_path: Path) -> None:
    config = write_config(tmp_path, StdioFaults(tmp_path, "x").entry(), listen=f"127.0.0.1:{free_port()}")
    log = tmp_path / "log"

    def terminate(child: int) -> None:
        os.kill(child, signal.SIGHUP)
        wait_until(lambda: '"because":"SIGHUP"' in log.read_text(), "it has loaded its file again")
        os.kill(child, signal.SIGTERM)

    status = hang_up(["/usr/bin/env", "--ignore-signal=HUP", TRUNKLINE, "up", "-c", str(config)], log, terminate)
    assert os.waitstatus_to_exitcode(status) == 0
    assert "SIGHUP: finishing calls in flight" not in log.read_text()


@pytest.mark.parametrize("asked", ["stdio", "call", "run"])
async def test_a_command_that_was_started_to_ignore_ctrl_c_goes_on(tmp_path: Path, asked: str) -> None:
    """As a shell starts what is to run in the background. SIGTERM still ends it."""
    server = StdioFaults(tmp_path, "s")
    config = str(write_config(tmp_path, server.entry()))
    states = {"initial": "work", "work": {"type": "step", "command": "touch begun; sleep 1000"}}
    (tmp_path / "flow.yaml").write_text(json.dumps({"name": "long", "states": states}))
    arguments = {"stdio": ["stdio"], "call": ["call", "s_hang"], "run": ["run", "flow.yaml"]}[asked]
    command = ["/usr/bin/env", "--ignore-signal=INT", TRUNKLINE, *arguments, "-c", config]
    begun = {"stdio": lambda: server.events("start"), "call": lambda: server.calls("hang")}
    with subprocess.Popen(
        command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        wait_until(begun.get(asked, (tmp_path / "begun").exists), "it is at work")
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
        process.terminate()
        assert process.wait(at_most(20)) in (0, 130)


@pytest.mark.parametrize("kind", ["sdk", "fastmcp"])
async def test_a_real_client_that_leaves_takes_everything_with_it(kind: str, tmp_path: Path) -> None:
    """The leak fixture looks for what is left."""
    peer = everything(tmp_path)
    command = [TRUNKLINE, "stdio", "-c", str(write_config(tmp_path, peer.entry(), start_wait=START_WAIT_S))]
    async with connect(kind, "auto", command, tmp_path / "client.log") as client:
        assert (await client.call("peer_echo", {"message": "hello"})).content[0].text == "Echo: hello"


def test_a_second_gateway_of_a_file_is_told_about_the_first(tmp_path: Path) -> None:
    with Gateway(tmp_path, StdioFaults(tmp_path, "x").entry()) as gateway:
        again = subprocess.run(
            [TRUNKLINE, "up", "-c", str(gateway.config)],
            capture_output=True,
            text=True,
            timeout=at_most(60),
            check=False,
        )
        assert again.returncode == 2
        assert "TL114" in again.stderr
        assert f"a gateway is already running for this file, at http://127.0.0.1:{gateway.port}/mcp" in again.stderr
