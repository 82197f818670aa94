"""Programs that are stopped by SIGSTOP and continue: what arrived meanwhile is not late."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.answers import TIMED_OUT
from tests.support.commands import environment
from tests.support.gateway import TRUNKLINE, Gateway, write_config
from tests.support.models.chat_server import ChatServer, Reply, streams
from tests.support.models.script import says
from tests.support.processes import descendants
from tests.support.servers import HttpFaults, StdioFaults
from tests.support.waiting import START_WAIT_S, at_most, until

TIMEOUT_S = at_most(1)
ROOMY_S = at_most(2)
"""For what has to begin, too, before it is stopped."""


@asynccontextmanager
async def stopped_beyond(timeout_s: float, *pids: int) -> AsyncIterator[None]:
    """What is done here is done while they sleep, and they go on sleeping until the time is over."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
        await asyncio.sleep(timeout_s + at_most(0.5))
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


async def stopped_beyond_the_timeout(gateway: Gateway, gate: Path) -> None:
    """The server answers while the gateway sleeps longer than the call may take."""
    async with stopped_beyond(TIMEOUT_S, gateway.process.pid):
        gate.touch()


@pytest.mark.parametrize("wire", ["stdio", "http"])
async def test_an_answer_that_came_while_the_gateway_was_stopped_is_given(tmp_path: Path, wire: str) -> None:
    with HttpFaults(tmp_path, "h") as http:
        server = StdioFaults(tmp_path, "s") if wire == "stdio" else http
        with Gateway(tmp_path, server.entry(timeout=TIMEOUT_S)) as gateway:
            async with gateway.client() as client:
                gate = tmp_path / "gate"
                called = asyncio.ensure_future(client.call(f"{server.name}_gate", {"path": str(gate)}))
                await server.wait_for("call", tool="gate")
                await stopped_beyond_the_timeout(gateway, gate)
                assert (await called).text == "let through"


async def test_a_call_that_hangs_is_given_up_all_the_same(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "s")
    with Gateway(tmp_path, server.entry(timeout=TIMEOUT_S)) as gateway:
        async with gateway.client() as client:
            called = asyncio.ensure_future(client.call("s_hang"))
            await server.wait_for("call", tool="hang")
            await stopped_beyond_the_timeout(gateway, tmp_path / "gate")
            assert (await called).situation == TIMED_OUT


# Commands -------------------------------------------------------------------------------------------------------------

SUPERVISED = pytest.mark.skipif(sys.platform != "linux", reason="looks for supervisors in /proc")


def bash(folder: Path) -> dict[str, Any]:
    return {"local": {"kind": "builtin", "root": str(folder), "sandbox": "off", "tools": {"allow": ["Bash"]}}}


def gated(**more: Any) -> dict[str, Any]:
    """A command that says when it has begun, and ends as soon as the test lets it."""
    command = "touch begun; until [ -e gate ]; do sleep 0.05; done; touch ended; echo done"
    return {"command": command, "timeout": int(ROOMY_S * 1000), **more}


def supervisors(pid: int) -> list[int]:
    return [process.pid for process in descendants(pid) if "supervisor.py" in process.command]


async def let_through(folder: Path) -> None:
    (folder / "gate").touch()
    await until((folder / "ended").exists, "the command ends")


@SUPERVISED
@pytest.mark.parametrize("whole", [False, True], ids=["gateway", "gateway and supervisors"])
async def test_a_command_that_ended_while_the_gateway_was_stopped_has_not_timed_out(
    tmp_path: Path, whole: bool
) -> None:
    with Gateway(tmp_path, bash(tmp_path)) as gateway:
        async with gateway.client() as client:
            called = asyncio.ensure_future(client.call("local_Bash", gated()))
            await until((tmp_path / "begun").exists, "the command runs")
            pid = gateway.process.pid
            async with stopped_beyond(ROOMY_S, pid, *(supervisors(pid) if whole else ())):
                await let_through(tmp_path)
            assert (await called).text.strip() == "done"


@SUPERVISED
async def test_a_command_that_goes_on_for_too_long_is_ended_all_the_same(tmp_path: Path) -> None:
    with Gateway(tmp_path, bash(tmp_path)) as gateway:
        async with gateway.client() as client:
            called = asyncio.ensure_future(client.call("local_Bash", gated()))
            await until((tmp_path / "begun").exists, "the command runs")
            async with stopped_beyond(ROOMY_S, gateway.process.pid):
                pass
            assert (await called).result["isError"]
    assert not (tmp_path / "ended").exists()


async def test_trunkline_call_that_was_stopped_prints_what_its_command_said(tmp_path: Path) -> None:
    config = write_config(tmp_path, bash(tmp_path))
    arguments = [f"{name}={value}" for name, value in gated().items()]
    process = await asyncio.create_subprocess_exec(
        *(TRUNKLINE, "call", "-c", str(config), "local_Bash", *arguments),
        cwd=tmp_path,
        env=environment(tmp_path),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    await until((tmp_path / "begun").exists, "the command runs", START_WAIT_S)
    async with stopped_beyond(ROOMY_S, process.pid):
        await let_through(tmp_path)
    printed, _ = await process.communicate()
    assert (process.returncode, printed.strip()) == (0, b"done")


# Steps ----------------------------------------------------------------------------------------------------------------


async def test_a_model_that_answered_while_the_run_was_stopped_was_in_time(tmp_path: Path) -> None:
    asked, gate = asyncio.Event(), asyncio.Event()

    async def answers_when_let(reply: Reply) -> None:
        asked.set()
        await gate.wait()
        await streams(reply)

    async with ChatServer([says("In time.")], manners=[answers_when_let]) as model:
        options = {"base_url": model.url, "model": "scripted", "api_key": "${KEY}"}
        ask = {"type": "agent", "provider": "openai-compatible", "prompt": "Hello", "options": options}
        states: dict[str, Any] = {
            "initial": "ask",
            "ask": {**ask, "timeout": f"{ROOMY_S}s", "on_success": "fine", "on_failure": "bad"},
            "fine": {"type": "terminal", "status": "success"},
            "bad": {"type": "terminal", "status": "failure"},
        }
        flow = tmp_path / "flow.yaml"
        flow.write_text(json.dumps({"name": "one model", "states": states}))
        process = await asyncio.create_subprocess_exec(
            *(TRUNKLINE, "run", str(flow), "--json", "-c", str(write_config(tmp_path))),
            cwd=tmp_path,
            env=environment(tmp_path, KEY="k"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        await asyncio.wait_for(asked.wait(), START_WAIT_S)
        async with stopped_beyond(ROOMY_S, process.pid):
            gate.set()
        printed, _ = await process.communicate()
    ended = [event for event in map(json.loads, printed.splitlines()) if event["event"] == "step_ended"]
    assert (process.returncode, [event["output"] for event in ended]) == (0, ["In time."]), printed


# What is idle ---------------------------------------------------------------------------------------------------------


async def test_a_client_that_asked_while_the_gateway_was_stopped_keeps_its_session_and_its_process(
    tmp_path: Path,
) -> None:
    server = StdioFaults(tmp_path, "s")
    limits = {"session_idle": ROOMY_S, "source_session_idle": ROOMY_S}
    with Gateway(tmp_path, server.entry(), limits=limits) as gateway:
        async with gateway.client() as client:
            assert (await client.call("s_counter", {"add": 1})).result["structuredContent"] == {"count": 1}
            async with stopped_beyond(ROOMY_S, gateway.process.pid):
                called = asyncio.ensure_future(client.call("s_counter"))
                await asyncio.sleep(at_most(0.5))  # until it is sent
            assert (await called).result["structuredContent"] == {"count": 1}
            await until(lambda: len(server.pids()) == 1, "its process ends all the same, once it is idle")
