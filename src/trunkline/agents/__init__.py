"""Running an agent with our tools in place of its own: one module per provider says what to do, the runner does it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from trunkline.agents.provider import Provider

PROVIDERS: Final[dict[str, str]] = {
    "claude": "trunkline.agents.claude:PROVIDER",
    "codex": "trunkline.agents.codex:PROVIDER",
    "gemini": "trunkline.agents.gemini:PROVIDER",
    "opencode": "trunkline.agents.opencode:PROVIDER",
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
