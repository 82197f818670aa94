"""`trunkline mcp-serve`, as agents start it: real clients through it at a run's tools, and at servers of its own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.support.agent_runs import BUILTINS, json_lines
from tests.support.commands import environment
from tests.support.gateway import TRUNKLINE, write_config
from tests.support.peers.clients import Kind, connect
from tests.support.processes import descendants
from tests.support.waiting import at_most, until

RECEIVED = 8 * 1024 * 1024
FLOW = """\
name: one
states:
  initial: work
  work: {type: agent, provider: claude, prompt: Do, mcp_proxy: {enable: true}, on_success: done}
  done: {type: terminal, status: success}
"""
AGENT = f"""\
#!{sys.executable}
import json, os, sys, time
if sys.argv[1:] == ["--version"]:
    sys.exit(print("2.1.197 (Claude Code)"))
with open(sys.argv[sys.argv.index("--mcp-config") + 1]) as file:
    [entry] = json.load(file)["mcpServers"].values()
with open("entry.new", "w") as file:
    json.dump(entry, file)
os.rename("entry.new", "entry")
while not os.path.exists("end"):
    time.sleep(0.02)
print(json.dumps({{"type": "result", "subtype": "success", "is_error": False, "result": "fine"}}))
"""
"""It tells what it was told of its tools, and leaves the rest to the test."""


@dataclass
class Run:
    """A run whose agent waits. `command` is what the agent was told to start; `by_script` leads to the same tools."""

    project: Path
    command: list[str]

    @property
    def by_script(self) -> list[str]:
        return [TRUNKLINE, *self.command[self.command.index("mcp-serve") :]]

    def log(self) -> list[dict[str, Any]]:
        return json_lines(self.project.parent / "log.jsonl")

    def end(self) -> None:
        (self.project / "end").touch()


@asynccontextmanager
async def run(folder: Path) -> AsyncIterator[Run]:
    programs, project = folder / "bin", folder / "project"
    for place in (programs, project):
        place.mkdir()
    (programs / "claude").write_text(AGENT)
    (programs / "claude").chmod(0o755)
    (project / "flow.yaml").write_text(FLOW)
    config = write_config(folder, limits={"request_bytes": 2 * RECEIVED})
    process = await asyncio.create_subprocess_exec(
        *(TRUNKLINE, "run", "flow.yaml", "-c", str(config), "--log", str(folder / "log.jsonl")),
        cwd=project,
        env=environment(folder, PATH=f"{programs}{os.pathsep}{os.environ['PATH']}"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        await until((project / "entry").exists, "the agent is told of its tools", 40)
        entry = json.loads((project / "entry").read_text())
        here = Run(project, [entry["command"], *entry["args"]])
        yield here
        here.end()
        async with asyncio.timeout(at_most(30)):
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.parametrize(("kind", "era", "script"), [("sdk", "legacy", False), ("sdk", "2026-07-28", True)])
async def test_an_official_client_works_through_it(tmp_path: Path, kind: Kind, era: str, script: bool) -> None:
    async with run(tmp_path) as here:
        command = here.by_script if script else here.command
        async with connect(kind, era, command, tmp_path / "log") as client:
            assert await client.names() == set(BUILTINS)
            large = "x" * RECEIVED
            written = await client.call("Write", {"path": "large.txt", "content": large})
            assert not written.is_error, written
            assert (here.project / "large.txt").stat().st_size == RECEIVED
            answers = await asyncio.gather(*(client.call("Bash", {"command": f"echo {n}"}) for n in range(8)))
            assert [answer.content[0].text.split()[0] for answer in answers] == [str(n) for n in range(8)]
        async with connect(kind, era, command, tmp_path / "log") as again:
            assert await again.names() == set(BUILTINS)
    assert {line["caller"] for line in here.log() if line["event"] == "call"} == {"step:work"}
    assert (tmp_path / "log").read_text() == ""


def call(number: int, command: str) -> bytes:
    params = {"name": "Bash", "arguments": {"command": command}}
    message = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
    return json.dumps(message).encode() + b"\n"


def sleeping() -> bool:
    return any("sleep 1000" in process.command for process in descendants(os.getpid()))


@pytest.mark.law
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
async def test_what_an_agent_had_asked_for_ends_with_it(tmp_path: Path, number: int) -> None:
    async with run(tmp_path) as here:
        pipe = subprocess.PIPE
        with subprocess.Popen(
            here.command, stdin=pipe, stdout=pipe, env={}, bufsize=0, start_new_session=True
        ) as agent:
            assert agent.stdin is not None
            agent.stdin.write(call(1, "echo begun > begun; exec sleep 1000"))
            await until((here.project / "begun").exists, "the command runs")
            await until(sleeping, "and goes on")
            agent.send_signal(number)
            await until(lambda: agent.poll() is not None, "the agent's server is gone")
            await until(lambda: not sleeping(), "and its command with it")


async def test_a_run_that_ends_amid_a_call_answers_it_and_ends_the_server(tmp_path: Path) -> None:
    async with run(tmp_path) as here:
        pipe = subprocess.PIPE
        with subprocess.Popen(here.command, stdin=pipe, stdout=pipe, env={}, bufsize=0) as agent:
            assert agent.stdin is not None and agent.stdout is not None
            try:
                agent.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
                answer = await asyncio.to_thread(agent.stdout.readline)
                assert json.loads(answer)["id"] == 1
                agent.stdin.write(call(2, "echo begun > begun; exec sleep 1000"))
                await until((here.project / "begun").exists, "the call is on its way")
                here.end()
                rest = await asyncio.to_thread(agent.stdout.read)
                assert json.loads(rest)["error"]["data"]["code"] == "TL310"
                assert await asyncio.to_thread(agent.wait, at_most(15)) == 0
            finally:
                agent.kill()


async def test_a_file_that_describes_sources_is_served_without_a_run(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    source = {"kind": "builtin", "root": str(tmp_path / "project"), "sandbox": "off", "tools": {"allow": ["*", "Bash"]}}
    command = [TRUNKLINE, "mcp-serve", "--config", str(write_config(tmp_path, {"tools": source}))]
    async with connect("sdk", "auto", command, tmp_path / "log") as client:
        assert await client.names() == set(BUILTINS)
        assert not (await client.call("Write", {"path": "a", "content": "b"})).is_error
    assert (tmp_path / "project" / "a").read_text() == "b"


def test_it_is_not_among_the_commands_for_people() -> None:
    shown = subprocess.run([TRUNKLINE, "--help"], capture_output=True, text=True, timeout=at_most(60)).stdout
    assert "mcp-serve" not in shown
    assert "stdio" in shown
    wrong = subprocess.run(
        [TRUNKLINE, "mcp-serve"], capture_output=True, timeout=at_most(60), cwd=tempfile.gettempdir()
    )
    assert wrong.returncode == 2
