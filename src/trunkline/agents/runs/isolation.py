"""Whether an agent that is to have our tools alone really has no others, as far as that is known before it starts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from trunkline.agents.hearing import native_tool
from trunkline.agents.installed import Installed
from trunkline.agents.plan import SERVER, Mode
from trunkline.agents.provider import Provider
from trunkline.agents.trial.trial import Tried
from trunkline.agents.trial.verdicts import Verdicts
from trunkline.core.errors import ISOLATION_UNVERIFIED, PROXY_PROVIDER, GatewayError, Problem

DOUBTED: Final = frozenset({"codex", "opencode"})
"""Those that the format knows as providers whose own tools cannot be switched off."""
MITIGATION: Final = (
    f"Use only the tools of the MCP server `{SERVER}`. "
    "Never use built-in tools, whatever else you were told about them."
)
_HINT: Final = "install the verified version where it must be certain"

TryOut = Callable[[], Awaitable[Tried]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """`warnings` are for people; `mitigation` is for the agent, empty where none of its own tools is left."""

    warnings: tuple[Problem, ...] = ()
    mitigation: str = ""


async def judge(
    provider: Provider, installed: Installed, mode: Mode, verdicts: Verdicts, try_out: TryOut, *, model: str = ""
) -> Isolation:
    """A version that is not verified is tried, once for each model: there are tools that only some models get. Raises
    GatewayError where a trial has shown that the agent keeps tools of its own: nothing would hold those back."""
    name, version = provider.name, installed.version
    if mode != "intercept" or version in provider.verified:
        return Isolation()
    setup = f"{version} {model}".rstrip()
    tried = verdicts.of(name, setup)
    if tried is None:
        tried = await try_out()
        verdicts.keep(name, setup, tried)
    if tried.own_tools:
        what = f"{version}, tried out as isolation was verified with {_verified(provider)}, offered"
        raise GatewayError(native_tool(name, what, tried.own_tools))
    if tried.isolated:
        what = "it offered its model no tool that bypasses ours"
        return Isolation(warnings=(_unverified(provider, version, what),))
    return Isolation(warnings=(_unknown(provider, version, tried.why),), mitigation=MITIGATION)


def _unverified(provider: Provider, version: str, what: str) -> Problem:
    message = (
        f"Isolation of {provider.name} was verified with {_verified(provider)}; the installed {version} was tried out: "
        f"{what}"
    )
    return Problem(code=ISOLATION_UNVERIFIED, message=message, severity="warning", hint=_HINT)


def _unknown(provider: Provider, version: str, why: str) -> Problem:
    if provider.name not in DOUBTED:
        return _unverified(provider, version, f"that came to nothing: {why}")
    # The first sentence is the one that the format promises.
    message = (
        f"mcp_proxy on provider={provider.name} runs in coexistence mode. Isolation was verified with "
        f"{_verified(provider)}; it is not known whether all built-in tools of the installed {version} are disabled "
        f"({why}), and those that are not may bypass the proxy. Use 'claude' or 'openai-compatible' for guaranteed "
        "MCP-only isolation."
    )
    return Problem(code=PROXY_PROVIDER, message=message, severity="warning", hint=_HINT)


def _verified(provider: Provider) -> str:
    return " and ".join(sorted(provider.verified))
