"""The agents that can be run: one module for each program, and a client for models behind a chat completions API."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from trunkline.agents.providers.provider import Provider


PROVIDERS: Final[dict[str, str]] = {
    "claude": "trunkline.agents.providers.claude:PROVIDER",
    "codex": "trunkline.agents.providers.codex:PROVIDER",
    "gemini": "trunkline.agents.providers.gemini:PROVIDER",
    "opencode": "trunkline.agents.providers.opencode:PROVIDER",
}
"""The provider of each agent that is a program, as `module:attribute`; imported only when it is run."""
OWN_TOOLS_IN_DOUBT: Final = frozenset({"codex", "opencode"})
"""Providers whose own tools, by the workflow format's documentation, cannot be switched off."""


def instruction_files(name: str) -> tuple[str, ...]:
    """The files in a project that tell this agent how to work there; the first that exists counts."""
    return provider_of(name).instructions if name in PROVIDERS else ("AGENTS.md",)


def provider_of(name: str) -> Provider:
    """Import the provider of this name, which is in the table."""
    module, _, attribute = PROVIDERS[name].partition(":")
    return getattr(import_module(module), attribute)
