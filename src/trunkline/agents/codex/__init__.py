"""Codex: how it is started so that its tools are ours, or ours beside its own. docs/agents/codex.md says why."""

from trunkline.agents.codex.provider import PROVIDER

__all__ = ["PROVIDER"]
