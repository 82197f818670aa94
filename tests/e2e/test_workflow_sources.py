"""Servers of the configuration as tools of a workflow's step, with the real agents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.agent_kinds import CLAUDE, CODEX, GEMINI, OPENCODE, settle
from tests.support.agent_runs import BUILTINS, AgentKind, AgentStage
from tests.support.models.script import Use, calls
from tests.support.servers import StdioFaults

pytestmark = [pytest.mark.node, pytest.mark.slow, pytest.mark.timeout(120)]

AGENTS = [
    (CLAUDE, "mcp__trunkline-run__"),
    (CODEX, "mcp__trunkline_run/"),
    (GEMINI, "mcp_trunkline-run_"),
    (OPENCODE, "trunkline-run_"),
]


@pytest.mark.parametrize(("kind", "prefix"), AGENTS, ids=[kind.provider for kind, _ in AGENTS])
async def test_a_step_calls_a_server_of_the_configuration(tmp_path: Path, kind: AgentKind, prefix: str) -> None:
    stage = settle(AgentStage(tmp_path, kind))
    server = StdioFaults(tmp_path, "books")
    stage.sources = server.entry(tools={"allow": ["echo"]})
    step: dict[str, Any] = {"mcp_proxy": {"enable": True, "sources": ["books"]}}
    if kind.provider == "gemini":
        step["options"] = {"model": "gemini-2.5-pro"}
    run = await stage.run(calls(Use(f"{prefix}books_echo", {"text": "milk"})), **step)
    run.succeeded()
    [ready] = [event for event in run.events if event["event"] == "agent_ready"]
    assert set(ready["tools"]) == {*BUILTINS, "books_echo"}
    assert "milk" in run.model.result(0, 0).text
    assert run.calls() == ["echo"]
    assert not server.pids()
