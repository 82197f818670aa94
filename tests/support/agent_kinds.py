"""Every kind of agent, with a user who has set it up so far that it starts without a question."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from tests.support.agent_runs import AgentKind, AgentStage
from tests.support.agent_sessions import SessionStage
from tests.support.models.anthropic import ANTHROPIC
from tests.support.models.chat import CHAT
from tests.support.models.gemini import GEMINI as GEMINI_API
from tests.support.models.responses import RESPONSES

Stage = TypeVar("Stage", bound=AgentStage)

KEY = "not-a-key"
CLAUDE = AgentKind(
    "claude",
    ANTHROPIC,
    lambda url: {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": KEY, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"},
)
CODEX = AgentKind("codex", RESPONSES, lambda _: {"MODEL_KEY": KEY})
GEMINI = AgentKind("gemini", GEMINI_API, lambda url: {"GOOGLE_GEMINI_BASE_URL": url, "GEMINI_API_KEY": KEY})
OPENCODE = AgentKind("opencode", CHAT, lambda url: {"SCRIPTED_URL": url})
MODEL = AgentKind(
    "openai_compatible",
    CHAT,
    lambda url: {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": KEY, "OPENAI_MODEL": "large"},
)
"""A model without a program; for workflows only."""


def claude(folder: Path, **keys: Any) -> SessionStage:
    return settle(SessionStage(folder, CLAUDE, **keys))


def settle(stage: Stage) -> Stage:
    """A user who has been through the agent's first questions."""
    _SETTLE[stage.kind.provider](stage)
    return stage


def _settle_claude(stage: AgentStage) -> None:
    projects = {str(stage.project): {"hasTrustDialogAccepted": True}}
    state = {"hasCompletedOnboarding": True, "customApiKeyResponses": {"approved": [KEY]}, "projects": projects}
    stage.home_file(".claude.json", state)


def _settle_codex(stage: AgentStage) -> None:
    provider = 'name = "scripted"\nbase_url = "http://model.example/v1"\nenv_key = "MODEL_KEY"\n'
    chosen = 'model = "gpt-5.5"\nmodel_provider = "scripted"\n'
    stage.home_file(".codex/config.toml", f"{chosen}[model_providers.scripted]\n{provider}")


def _settle_gemini(stage: AgentStage) -> None:
    stage.home_file(".gemini/settings.json", {"security": {"auth": {"selectedType": "gemini-api-key"}}})


def _settle_opencode(stage: AgentStage) -> None:
    options = {"baseURL": "{env:SCRIPTED_URL}/v1", "apiKey": KEY}
    mine = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {"large": {}}}
    stage.home_file(".config/opencode/opencode.json", {"model": "mine/large", "provider": {"mine": mine}})


_SETTLE = {
    "claude": _settle_claude,
    "codex": _settle_codex,
    "gemini": _settle_gemini,
    "opencode": _settle_opencode,
    "openai_compatible": lambda _: None,
}
