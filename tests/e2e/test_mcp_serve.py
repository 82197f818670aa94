"""`trunkline mcp-serve`, as agents start it: real clients through it at a run's router, and at servers of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.gateway import TRUNKLINE, write_config
from tests.support.peers.clients import Kind, connect
from tests.support.processes import descendants
from tests.support.waiting import at_most, until

from trunkline.app import Gateway
from trunkline.config.load import load_config
from trunkline.core.call import Caller, Request
from trunkline.core.events import Events
from trunkline.doors.private import PrivateDoor
from trunkline.links.pump import serve_command
from trunkline.links.run_folder import RunFolder
from trunkline.sources import section_kinds

TOOLS = {"Bash", "Edit", "Glob", "Grep", "Read", "Write"}
RECEIVED = 8 * 1024 * 1024


class Run:
    """A gateway with the built-in tools at `project`, and its door."""

    def __init__(self, gateway: Gateway, door: PrivateDoor, config: Path, project: Path) -> None:
        self.gateway = gateway
        self.door = door
        self.project = project
        self.ended: list[Request] = []
        gateway.events.call_done.append(lambda call, _: self.ended.append(call))
        program, arguments = serve_command(config)
        self.command = [program, *arguments]
        self.by_script = [TRUNKLINE, "mcp-serve", "--config", str(config)]


def builtin(project: Path) -> dict[str, Any]:
    return {"tools": {"kind": "builtin", "root": str(project), "sandbox": "off", "tools": {"allow": ["*", "Bash"]}}}


@contextlib.asynccontextmanager
async def run(folder: Path) -> AsyncIterator[Run]:
    project = folder / "project"
    project.mkdir()
    loaded = load_config(write_config(folder, builtin(project)), environ=os.environ, kinds=section_kinds())
    assert loaded.settings is not None, loaded.problems
    gateway = Gateway(loaded.settings, Events())
    gateway.start()
    place = RunFolder(gateway.children, "test")
    config, path = place.path / "serve.json", place.path / "router"
    config.write_text(json.dumps({"socket": str(path)}))
    door = PrivateDoor(
        gateway.router,
        gateway.discovery,
        path=path,
        caller=Caller("step:test"),
        limit_bytes=2 * RECEIVED,
        max_calls=8,
    )
    await door.start()
    try:
        yield Run(gateway, door, config, project)
    finally:
        await door.close()
        place.remove()
        await gateway.close()
    assert not place.path.exists()


@pytest.mark.parametrize(("kind", "era", "script"), [("sdk", "legacy", False), ("sdk", "2026-07-28", True)])
async def test_an_official_client_works_through_it(tmp_path: Path, kind: Kind, era: str, script: bool) -> None:
    async with run(tmp_path) as here:
        command = here.by_script if script else here.command
        assert not here.door.listed
        async with connect(kind, era, command, tmp_path / "log") as client:
            assert await client.names() == TOOLS
            assert here.door.listed
            large = "x" * RECEIVED
            written = await client.call("Write", {"path": "large.txt", "content": large})
            assert not written.is_error, written
            assert (here.project / "large.txt").stat().st_size == RECEIVED
            answers = await asyncio.gather(*(client.call("Bash", {"command": f"echo {n}"}) for n in range(8)))
            assert [json.loads(answer.model_dump_json())["content"][0]["text"].split()[0] for answer in answers] == [
                str(n) for n in range(8)
            ]
        assert {call.caller.principal for call in here.ended} == {"step:test"}
        await until(lambda: len(here.door) == 0, "the client has left")
        async with connect(kind, era, command, tmp_path / "log") as again:
            assert await again.names() == TOOLS
    assert (tmp_path / "log").read_text() == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
async def test_what_an_agent_had_asked_for_ends_with_it(tmp_path: Path, number: int) -> None:
    async with run(tmp_path) as here:
        pipe = subprocess.PIPE
        agent = subprocess.Popen(here.command, stdin=pipe, stdout=pipe, env={}, bufsize=0, start_new_session=True)
        params = {"name": "Bash", "arguments": {"command": "echo begun > begun; exec sleep 1000"}}
        agent.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode())
        agent.stdin.write(b"\n")
        await until((here.project / "begun").exists, "the command runs")
        assert [process for process in descendants(os.getpid()) if "sleep 1000" in process.command]
        agent.send_signal(number)
        await until(lambda: agent.poll() is not None, "the agent's server is gone")
        await until(
            lambda: not [process for process in descendants(os.getpid()) if "sleep 1000" in process.command],
            "and its command with it",
        )
        agent.stdin.close()
        agent.stdout.close()


async def test_a_run_that_ends_amid_a_call_answers_it_and_ends_the_server(tmp_path: Path) -> None:
    async with run(tmp_path) as here:
        pipe = subprocess.PIPE
        agent = subprocess.Popen(here.command, stdin=pipe, stdout=pipe, env={}, bufsize=0)
        try:
            agent.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
            answer = await asyncio.to_thread(agent.stdout.readline)
            assert json.loads(answer)["id"] == 1
            params = {"name": "Bash", "arguments": {"command": "sleep 1000"}}
            call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
            agent.stdin.write(json.dumps(call).encode() + b"\n")
            await until(lambda: here.gateway.router.in_flight, "the call is on its way")
            await here.door.close()
            rest = await asyncio.to_thread(agent.stdout.read)
            assert json.loads(rest)["error"]["data"]["code"] == "TL310"
            assert await asyncio.to_thread(agent.wait, 15) == 0
        finally:
            agent.kill()
            agent.wait()
            agent.stdin.close()
            agent.stdout.close()


async def test_a_file_that_describes_sources_is_served_without_a_run(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    program, arguments = serve_command(write_config(tmp_path, builtin(tmp_path / "project")))
    async with connect("sdk", "auto", [program, *arguments], tmp_path / "log") as client:
        assert await client.names() == TOOLS
        assert not (await client.call("Write", {"path": "a", "content": "b"})).is_error
    assert (tmp_path / "project" / "a").read_text() == "b"


def test_it_is_not_among_the_commands_for_people() -> None:
    shown = subprocess.run([TRUNKLINE, "--help"], capture_output=True, text=True, timeout=at_most(60)).stdout
    assert "mcp-serve" not in shown
    assert "stdio" in shown
    wrong = subprocess.run(
        [sys.executable, "-c", "from trunkline.cli import main; main()", "mcp-serve"],
        capture_output=True,
        timeout=at_most(60),
        cwd=tempfile.gettempdir(),
    )
    assert wrong.returncode == 2
