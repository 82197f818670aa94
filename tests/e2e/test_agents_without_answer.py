"""Agent programs whose model ends without an answer: the step fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.e2e import test_agent_claude, test_agent_codex, test_agent_gemini, test_agent_opencode
from tests.support.agent_runs import AgentStage
from tests.support.models.anthropic import ANTHROPIC, Messages
from tests.support.models.chat import CHAT, Chat
from tests.support.models.script import Reply, Turn, Use, says
from tests.support.pairs import IN_FULL

from trunkline.core.errors import AGENT_FAILED, MODEL_LOOP, NO_ANSWER

pytestmark = [pytest.mark.node, pytest.mark.slow, pytest.mark.timeout(120)]


class AnnouncesMessages(Messages):
    """Each turn ends as if a tool were called."""

    def respond(self, request: Any, turn: Turn) -> Reply:
        said = super().respond(request, turn)
        return replace(said, body=said.body.replace(b'"end_turn"', b'"tool_use"'))


class AnnouncesChat(Chat):
    def respond(self, request: Any, turn: Turn) -> Reply:
        said = super().respond(request, turn)
        return replace(said, body=said.body.replace(b'"finish_reason": "stop"', b'"finish_reason": "tool_calls"'))


def opencode(folder: Path, api: Any = CHAT) -> AgentStage:
    stage = AgentStage(folder, replace(test_agent_opencode.OPENCODE, api=api))
    stage.home_file(".config/opencode/opencode.json", test_agent_opencode.provider())
    stage.home_file(".config/opencode/key.txt", "not-a-key")
    return stage


def claude(folder: Path, api: Any = ANTHROPIC) -> AgentStage:
    return AgentStage(folder, replace(test_agent_claude.CLAUDE, api=api))


PROGRAMS: dict[str, tuple[Callable[[Path], AgentStage], Callable[..., Use], dict[str, Any]]] = {
    "claude": (claude, test_agent_claude.ours, {}),
    "codex": (test_agent_codex.Stage, test_agent_codex.ours, {}),
    "gemini": (
        lambda folder: AgentStage(folder, test_agent_gemini.GEMINI),
        test_agent_gemini.ours,
        {"options": test_agent_gemini.MODEL},
    ),
    "opencode": (opencode, test_agent_opencode.ours, {}),
}


@pytest.mark.parametrize("name", PROGRAMS if IN_FULL else ("claude", "codex"))
async def test_silence_after_a_call_is_no_answer_whatever_was_said_before(tmp_path: Path, name: str) -> None:
    make, ours, step = PROGRAMS[name]
    turns = Turn(uses=(ours("Glob", pattern="*"),), text="I will look."), says("")
    run = await make(tmp_path).run(*turns, mcp_proxy={"enable": True}, **step)
    assert (run.status, run.code) == (1, NO_ANSWER.id)
    assert run.end["tool_calls"] == 1
    run.left_nothing()


async def test_calls_that_are_announced_and_never_made_end_it(tmp_path: Path) -> None:
    """OpenCode asks its model again for ever; Claude Code gives up by itself."""
    told = says("I will look.")
    of_opencode = await opencode(tmp_path / "opencode", AnnouncesChat()).run(told, mcp_proxy={"enable": True})
    assert (of_opencode.status, of_opencode.code) == (1, MODEL_LOOP.id)
    of_opencode.left_nothing()
    of_claude = await claude(tmp_path / "claude", AnnouncesMessages()).run(told, mcp_proxy={"enable": True})
    assert (of_claude.status, of_claude.code) == (1, AGENT_FAILED.id)
