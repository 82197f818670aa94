"""What of the settings of Codex that are there already counts in a run of ours."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from trunkline.agents.codex.toml import toml_document
from trunkline.agents.json_lines import mapping, text

_MODEL_SETTINGS: Final = (
    *("chatgpt_base_url", "cli_auth_credentials_store", "disable_response_storage", "forced_chatgpt_workspace_id"),
    *("forced_login_method", "hide_agent_reasoning", "model", "model_auto_compact_token_limit", "model_context_window"),
    *("model_max_output_tokens", "model_provider", "model_providers", "model_reasoning_effort"),
    *("model_reasoning_summary", "model_supports_reasoning_summaries", "model_verbosity", "openai_base_url"),
    *("oss_provider", "personality", "preferred_auth_method", "service_tier", "show_raw_agent_reasoning"),
)
"""Those by which it comes to its model and talks to it. The others may bring servers, hooks, plugins and programs."""
_SANDBOX_SETTINGS: Final = ("default_permissions", "permissions", "sandbox_mode", "sandbox_workspace_write")


class Settings:
    """A `config.toml`: the user's, or that of the whole machine. One that is no TOML counts as empty here, and `fault`
    says what is wrong with it; a Codex that reads the file complains by itself."""

    def __init__(self, written: str) -> None:
        self._values: Mapping[str, Any] = {}
        self.fault = ""
        try:
            self._values = tomllib.loads(written)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            self.fault = str(error)

    @property
    def developer_instructions(self) -> str:
        return text(self._values.get("developer_instructions"))

    @property
    def limits_results(self) -> bool:
        return "tool_output_token_limit" in self._values

    @property
    def has_sandbox(self) -> bool:
        return any(name in self._values for name in _SANDBOX_SETTINGS)

    @property
    def servers(self) -> tuple[str, ...]:
        return tuple(mapping(self._values.get("mcp_servers")))

    def for_model(self) -> str:
        """A file of only what concerns the model."""
        return toml_document({name: self._values[name] for name in _MODEL_SETTINGS if name in self._values})

    def undecided(self, project: Path) -> Iterator[Path]:
        """The folder and those above it, as far as the user has not said whether they are trusted."""
        decided = mapping(self._values.get("projects"))
        return (folder for folder in (project, *project.parents) if str(folder) not in decided)
