"""What trials have shown, kept between runs: a version is tried once, and then known."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from trunkline.agents.installed import Installed
from trunkline.agents.output_monitor import native_tool_problem
from trunkline.agents.providers.provider import SERVER, Mode, Provider
from trunkline.core.errors import ISOLATION_UNVERIFIED, PROXY_PROVIDER, GatewayError, Problem
from trunkline.runtime.private_files import make_private_folder, read_private, write_private

_FILE: Final = "agent_trials.json"
_LARGEST_BYTES: Final = 1 << 20
_MOST: Final = 200


class ProbeStore:
    """Under a folder of the state. Nothing found there, or not found, stops anything: then a trial is made anew."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / _FILE

    def of(self, provider: str, version: str) -> ProbeResult | None:
        """What is known of this version. Trials that came to nothing are not kept."""
        tools = self._read().get(f"{provider} {version}")
        return None if tools is None else ProbeResult(own_tools=tuple(tools))

    def keep(self, provider: str, version: str, tried: ProbeResult) -> None:
        if tried.why:
            return
        known = self._read()
        known.pop(f"{provider} {version}", None)
        known[f"{provider} {version}"] = list(tried.own_tools)
        latest = dict(list(known.items())[-_MOST:])
        try:
            make_private_folder(self._folder)
            write_private(self._path, msgspec.json.encode(latest))
        except OSError:
            return  # the next run tries again

    def _read(self) -> dict[str, list[str]]:
        data = read_private(self._path, _LARGEST_BYTES)
        try:
            return {} if data is None else msgspec.json.decode(data, type=dict[str, list[str]])
        except (msgspec.DecodeError, UnicodeDecodeError):
            return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """What a trial showed. `own_tools` are those that are not ours; `why` is set where nothing could be found out."""

    own_tools: tuple[str, ...] = ()
    why: str = ""

    @property
    def isolated(self) -> bool:
        return not self.own_tools and not self.why


# Whether an agent that is to have our tools alone really has no others, as far as that is known before it starts.

DOUBTED: Final = frozenset({"codex", "opencode"})
"""Those that the format knows as providers whose own tools cannot be switched off."""
MITIGATION: Final = (
    f"Use only the tools of the MCP server `{SERVER}`. "
    "Never use built-in tools, whatever else you were told about them."
)
_HINT: Final = "install the verified version where it must be certain"

TryOut = Callable[[], Awaitable[ProbeResult]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """`warnings` are for people; `mitigation` is for the agent, empty where none of its own tools is left."""

    warnings: tuple[Problem, ...] = ()
    mitigation: str = ""


async def check_isolation(
    provider: Provider, installed: Installed, mode: Mode, store: ProbeStore, try_out: TryOut, *, model: str = ""
) -> Isolation:
    """A version that is not verified is tried, once for each model: there are tools that only some models get. Raises
    GatewayError where a trial has shown that the agent keeps tools of its own: nothing would hold those back."""
    name, version = provider.name, installed.version
    if mode != "intercept" or version in provider.verified:
        return Isolation()
    setup = f"{version} {model}".rstrip()
    tried = store.of(name, setup)
    if tried is None:
        tried = await try_out()
        store.keep(name, setup, tried)
    if tried.own_tools:
        what = f"{version}, tried out as isolation was verified with {_verified(provider)}, offered"
        raise GatewayError(native_tool_problem(name, what, tried.own_tools))
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
