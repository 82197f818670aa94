"""Agents that can be run: one module per program, and a client for models behind a chat completions API."""

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
"""Where each agent is that is a program of its own; loaded only when it is run."""


def instruction_files(name: str) -> tuple[str, ...]:
    """Files of a project that tell an agent how to work there; the first that is there counts. A model without a
    program has the one that all share."""
    return provider_of(name).instructions if name in PROVIDERS else ("AGENTS.md",)


def provider_of(name: str) -> Provider:
    """The provider of this name, which is in the table."""
    module, _, attribute = PROVIDERS[name].partition(":")
    return getattr(import_module(module), attribute)
