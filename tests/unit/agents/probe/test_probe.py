"""Probes of agents: those that request their tools, those that never do, those that misbehave. Nothing is left."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from tests.support.child_trees import MARK, new_mark, survivors
from tests.support.waiting import at_most, until
from tests.unit.agents.fake_agent import PYTHON, FakeAgent

from trunkline.agents.probe import probe
from trunkline.agents.probe.probe import ProbeResult, probe_agent
from trunkline.agents.providers.provider import LaunchPlan, LaunchRequest, RunSpec
from trunkline.agents.runner import AgentRunner
from trunkline.runtime.children import Children

ASK = """
import json, os, socket, sys, time, urllib.error, urllib.request
def ask(body, path="/v1/messages"):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    try:
        urllib.request.urlopen(urllib.request.Request(os.environ["MODEL"] + path, data))
    except urllib.error.HTTPError as error:
        return error.code
def tool_list(*names):
    return {"tools": [{"name": name} for name in names]}
"""
HANG = "\ntime.sleep(1000)"


class Agent(FakeAgent):
    """Knows where the model of its probe is."""

    def plan(self, asked: LaunchRequest, /) -> LaunchPlan:
        self._plan_keys["env"] = {"MODEL": asked.model_url, "NO_PROXY": "*"}
        return super().plan(asked)


class Stage:
    def __init__(self, folder: Path) -> None:
        for name in ("home", "project", "run"):
            (folder / name).mkdir()
        self.mark = new_mark()
        self.children = Children()
        self._job = RunSpec(
            mode="intercept",
            prompt="the user's own",
            model="",
            project=folder / "project",
            run=folder / "run",
            server=None,
            timeout_s=at_most(30),
        )
        given = {"PATH": os.environ["PATH"], MARK: self.mark}
        self._runner = AgentRunner(self.children, home=folder / "home", environ=given)

    async def tried(self, agent: Agent) -> ProbeResult:
        return await probe_agent(self._runner, agent, PYTHON, self._job)


async def tried(folder: Path, script: str) -> ProbeResult:
    """The result of a probe of this script. Afterwards it is gone."""
    stage, agent = Stage(folder), Agent(ASK + script)
    try:
        result = await stage.tried(agent)
        assert survivors(stage.mark) == []
    finally:
        await stage.children.close()
    assert [request.prompt for request in agent.requests] != ["the user's own"]
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", int(agent.requests[0].model_url.rpartition(":")[2]))
    return result


@pytest.mark.law
@pytest.mark.parametrize(
    ("script", "own_tools"),
    [
        ("ask(tool_list('ours_Read', 'ours_Bash'))" + HANG, ()),
        ("ask(tool_list('ours_Read', 'shell'))" + HANG, ("shell",)),
        ("assert ask(tool_list('ours_Read')) == 400", ()),
        ("ask({'messages': []}); ask(tool_list()); ask(b'no JSON'); ask(tool_list('ours_Read', 'shell'))", ("shell",)),
    ],
    ids=["only ours", "its own too", "it ends by that", "what offers none does not count"],
)
async def test_an_agent_is_judged_by_the_tools_that_it_offers_first(
    tmp_path: Path, script: str, own_tools: tuple[str, ...]
) -> None:
    assert await tried(tmp_path, script) == ProbeResult(own_tools=own_tools)


@pytest.mark.parametrize(
    "script",
    [
        "ask(tool_list('shell'))",
        "print(json.dumps({'answer': 'Done.'}))",
        "sys.exit(3)",
        "ask({'tools': [{'name': 'shell', 'description': 'x' * (17 << 20)}]})",
    ],
    ids=["none of ours", "it never asks", "it fails", "more than any model takes"],
)
async def test_where_nothing_was_found_out_there_is_a_reason(tmp_path: Path, script: str) -> None:
    result = await tried(tmp_path, script)
    assert result.failure
    assert not result.isolated


CONNECTS = """
connection = socket.create_connection(os.environ["MODEL"].rpartition("/")[2].split(":"))
connection.sendall(b"POST / HTTP/1.1\\r\\nhost: x\\r\\ncontent-length: 9\\r\\n\\r\\n{")
"""


@pytest.mark.slow
@pytest.mark.parametrize("script", ["", CONNECTS], ids=["silent", "in the middle of a request"])
async def test_an_agent_that_hangs_is_ended_when_its_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    monkeypatch.setattr(probe, "_PROBE_S", 1.5)
    result = await tried(tmp_path, script + HANG)
    assert result.failure
    assert not result.isolated


@pytest.mark.law
async def test_cancelling_a_probe_ends_the_agent(tmp_path: Path) -> None:
    stage, agent = Stage(tmp_path), Agent(ASK + CONNECTS + HANG)
    running = asyncio.ensure_future(stage.tried(agent))
    try:
        await until(lambda: survivors(stage.mark) != [], "the agent is up")
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await until(lambda: survivors(stage.mark) == [], "the agent is gone")
    finally:
        await stage.children.close()
