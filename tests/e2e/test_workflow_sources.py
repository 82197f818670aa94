"""Servers of the configuration as tools of a workflow's step, with the real agents."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.agent_runs import BUILTINS, AgentKind, AgentStage
from tests.support.models.anthropic import ANTHROPIC
from tests.support.models.chat import CHAT
from tests.support.models.gemini import GEMINI
from tests.support.models.responses import RESPONSES
from tests.support.models.script import Use, calls
from tests.support.servers import StdioFaults

pytestmark = [pytest.mark.node, pytest.mark.slow, pytest.mark.timeout(120)]

KEY = "not-a-key"


def settle_claude(stage: AgentStage) -> None:
    stage.environ["CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"] = "1"


def settle_codex(stage: AgentStage) -> None:
    provider = 'name = "scripted"\nbase_url = "http://model.example/v1"\nenv_key = "MODEL_KEY"\n'
    chosen = 'model = "gpt-5.5"\nmodel_provider = "scripted"\n'
    stage.home_file(".codex/config.toml", f"{chosen}[model_providers.scripted]\n{provider}")


def settle_gemini(stage: AgentStage) -> None:
    stage.home_file(".gemini/settings.json", {"security": {"auth": {"selectedType": "gemini-api-key"}}})


def settle_opencode(stage: AgentStage) -> None:
    options = {"baseURL": "{env:SCRIPTED_URL}/v1", "apiKey": KEY}
    mine = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {"large": {}}}
    stage.home_file(".config/opencode/opencode.json", {"model": "mine/large", "provider": {"mine": mine}})


Settle = Callable[[AgentStage], None]
AGENTS: list[tuple[AgentKind, Settle, str]] = [
    (
        AgentKind("claude", ANTHROPIC, lambda url: {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": KEY}),
        settle_claude,
        "mcp__trunkline-run__",
    ),
    (AgentKind("codex", RESPONSES, lambda _: {"MODEL_KEY": KEY}), settle_codex, "mcp__trunkline_run/"),
    (
        AgentKind("gemini", GEMINI, lambda url: {"GOOGLE_GEMINI_BASE_URL": url, "GEMINI_API_KEY": KEY}),
        settle_gemini,
        "mcp_trunkline-run_",
    ),
    (AgentKind("opencode", CHAT, lambda url: {"SCRIPTED_URL": url}), settle_opencode, "trunkline-run_"),
]


@pytest.mark.parametrize(("kind", "settle", "prefix"), AGENTS, ids=[kind.provider for kind, _, _ in AGENTS])
async def test_a_step_calls_a_server_of_the_configuration(
    tmp_path: Path, kind: AgentKind, settle: Settle, prefix: str
) -> None:
    stage = AgentStage(tmp_path, kind)
    settle(stage)
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
