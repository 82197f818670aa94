"""What is reported when the stdio bridge of an agent is killed in the middle of a call."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.support.agent_kinds import CLAUDE, CODEX, GEMINI, OPENCODE, settle
from tests.support.agent_sessions import SessionStage
from tests.support.child_trees import survivors
from tests.support.models.script import Turn, Use, calls
from tests.support.pairs import IN_FULL
from tests.support.processes import PROC
from tests.support.waiting import until

from trunkline.core.errors import STEP_INTERRUPTED, TOOLS_LOST

pytestmark = [pytest.mark.node, pytest.mark.slow, pytest.mark.timeout(120)]

PREFIXES = {
    "claude": "mcp__trunkline-run__",
    "codex": "mcp__trunkline_run/",
    "gemini": "mcp_trunkline-run_",
    "opencode": "trunkline-run_",
}
"""What stands before the name of a tool of ours."""
STEP: dict[str, dict[str, Any]] = {"gemini": {"options": {"model": "gemini-2.5-pro"}}}
EVERY = list(PREFIXES) if IN_FULL else ["claude", "opencode"]


def stage_of(folder: Path, agent: str) -> SessionStage:
    [kind] = [kind for kind in (CLAUDE, CODEX, GEMINI, OPENCODE) if kind.provider == agent]
    return settle(SessionStage(folder, kind))


def long_call(agent: str) -> Turn:
    return calls(Use(f"{PREFIXES[agent]}Bash", {"command": "touch begun; sleep 1000; true"}))


def kill_tool_server(stage: SessionStage) -> None:
    """The one that the agent has started; the words are in the agents' own arguments, too."""
    for pid in survivors(stage.mark):
        with suppress(FileNotFoundError):  # others come and go
            words = (PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
            if any(word.endswith(b"/stdio_bridge.py") for word in words):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("agent", EVERY)
async def test_a_step_whose_agent_goes_on_without_its_tools_has_failed(tmp_path: Path, agent: str) -> None:
    stage = stage_of(tmp_path, agent)
    step = {"mcp_proxy": {"enable": True}, **STEP.get(agent, {})}
    async with stage.going(long_call(agent), **step) as (_, finished):
        await until((stage.project / "begun").exists, "the command runs", 40)
        kill_tool_server(stage)
    [run] = finished
    run.left_nothing()
    assert (run.status, run.code) == (1, TOOLS_LOST.id), run.events
    assert "`Bash`" in run.end["problem"]["message"]


async def test_an_interrupt_in_the_middle_of_a_call_is_just_that(tmp_path: Path) -> None:
    stage = stage_of(tmp_path, "claude")
    async with stage.going(long_call("claude"), mcp_proxy={"enable": True}) as (going, finished):
        await until((stage.project / "begun").exists, "the command runs", 40)
        going.interrupt()
    [run] = finished
    assert (run.code, run.of("warned")) == (STEP_INTERRUPTED.id, [])


async def test_a_session_whose_agent_works_by_itself_without_its_tools_has_failed(tmp_path: Path) -> None:
    stage = stage_of(tmp_path, "claude")
    session = asyncio.ensure_future(stage.session(long_call("claude"), args=["-p", "Do as planned"]))
    await until((stage.project / "begun").exists, "the command runs", 40)
    kill_tool_server(stage)
    ended = await session
    ended.left_nothing()
    assert (ended.status, TOOLS_LOST.id in ended.stderr) == (1, True)
    assert ended.end["code"] == TOOLS_LOST.id
