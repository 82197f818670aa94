"""The result of a probe, and what follows from it for an agent that should have only our tools."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trunkline.agents.installed import Installed
from trunkline.agents.output_monitor import native_tool_problem
from trunkline.agents.providers.provider import SERVER, Mode, Provider
from trunkline.agents.state_file import StateFile
from trunkline.core.errors import ISOLATION_UNVERIFIED, PROXY_PROVIDER, GatewayError, Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """The agent's own tools that it offered its model. `failure` says why nothing could be found out."""

    own_tools: tuple[str, ...] = ()
    failure: str = ""

    @property
    def isolated(self) -> bool:
        return not self.own_tools and not self.failure


class ProbeStore:
    """The results of probes, in a folder of the state: a version is probed once."""

    def __init__(self, folder: Path) -> None:
        self._file = StateFile[list[str]](folder, "agent_trials.json", list[str])

    def get(self, provider: str, version: str) -> ProbeResult | None:
        tools = self._file.read().get(f"{provider} {version}")
        return None if tools is None else ProbeResult(own_tools=tuple(tools))

    def put(self, provider: str, version: str, result: ProbeResult) -> None:
        """Keep a result, unless the probe failed."""
        if not result.failure:
            self._file.put(f"{provider} {version}", list(result.own_tools))


DOUBTED: Final = frozenset({"codex", "opencode"})
"""Providers whose own tools, by the workflow format's documentation, cannot be switched off."""
MITIGATION: Final = (
    f"Use only the tools of the MCP server `{SERVER}`. "
    "Never use built-in tools, whatever else you were told about them."
)
_HINT: Final = "install the verified version where isolation must be certain"

Probe = Callable[[], Awaitable[ProbeResult]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """How far an agent is isolated. `mitigation` is told to the agent; it is empty where no tool of its own is left."""

    warnings: tuple[Problem, ...] = ()
    mitigation: str = ""


async def check_isolation(
    provider: Provider, installed: Installed, mode: Mode, store: ProbeStore, probe: Probe, *, model: str = ""
) -> Isolation:
    """Check an isolated agent; an unverified version is probed once for each model, as some tools depend on it. Raises
    GatewayError where the probe has shown tools of the agent's own, as nothing would hold those back."""
    name, version = provider.name, installed.version
    if mode != "intercept" or version in provider.verified:
        return Isolation()
    setup = f"{version} {model}".rstrip()
    result = store.get(name, setup)
    if result is None:
        result = await probe()
        store.put(name, setup, result)
    if result.own_tools:
        what = f"{version}, probed because isolation was verified with {_verified(provider)}, offered"
        raise GatewayError(native_tool_problem(name, what, result.own_tools))
    if result.isolated:
        what = "it offered its model no tool that bypasses ours"
        return Isolation(warnings=(_unverified(provider, version, what),))
    return Isolation(warnings=(_unknown(provider, version, result.failure),), mitigation=MITIGATION)


def _unverified(provider: Provider, version: str, what: str) -> Problem:
    message = (
        f"Isolation of {provider.name} was verified with {_verified(provider)}; the installed {version} was probed: "
        f"{what}"
    )
    return Problem(code=ISOLATION_UNVERIFIED, message=message, severity="warning", hint=_HINT)


def _unknown(provider: Provider, version: str, why: str) -> Problem:
    if provider.name not in DOUBTED:
        return _unverified(provider, version, f"without a result: {why}")
    # The first sentence is the one that the workflow format documents.
    message = (
        f"mcp_proxy on provider={provider.name} runs in coexistence mode. Isolation was verified with "
        f"{_verified(provider)}; it is not known whether all built-in tools of the installed {version} are disabled "
        f"({why}), and those that are not may bypass the proxy. Use 'claude' or 'openai-compatible' for guaranteed "
        "MCP-only isolation."
    )
    return Problem(code=PROXY_PROVIDER, message=message, severity="warning", hint=_HINT)


def _verified(provider: Provider) -> str:
    return " and ".join(sorted(provider.verified))
