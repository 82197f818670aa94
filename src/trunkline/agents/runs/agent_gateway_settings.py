"""The sources that a step's agent gets, as settings of a gateway of its own. Pure: nothing is started here."""

from __future__ import annotations

import glob
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from trunkline.agents.providers.provider import LONGEST_TOOL_NAME
from trunkline.agents.workflow.document import Proxy
from trunkline.agents.workflow.proxy import source_name
from trunkline.config.problems import hint_for, listed, nearest
from trunkline.config.sandbox import ProtectSettings, SandboxSettings, merge_protection, strictest_sandbox
from trunkline.config.settings import Settings
from trunkline.config.sources import SourceSection, ToolSelection, UnreadySource
from trunkline.core.errors import (
    PROXY_NAME_COLLISION,
    PROXY_UNKNOWN_PLUGIN,
    PROXY_UNKNOWN_SOURCE,
    SOURCE_NOT_USABLE,
    GatewayError,
    Problem,
)
from trunkline.router.options import NameRules
from trunkline.sources.builtin import BuiltinSection

BUILTIN: Final = "builtin"
WITHOUT_SOURCE: Final = "change that, or leave the source out of the step"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentGatewaySettings:
    """The settings of one agent's gateway. `operations` are the tools that must exist, by source, and `sources` those
    that must be up: otherwise the agent is not started."""

    settings: Settings
    operations: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    sources: tuple[str, ...] = ()

    @property
    def needed(self) -> tuple[str, ...]:
        """The sources that the agent cannot be started without."""
        return (*self.sources, *self.operations)


def settings_of_step(
    base: Settings, proxy: Proxy, plugins: Mapping[str, SourceSection], folder: Path
) -> AgentGatewaySettings:
    """The settings for an `mcp_proxy` block.

    They have the built-in tools at `folder` unless the agent keeps its own, the sources that the block names, as they
    are configured, and of each plugin exactly the exposed operations. Raises GatewayError with the codes of `validate`.
    """
    operations = _exposed(proxy, plugins)
    known = {**base.sources, **plugins}
    sources: dict[str, SourceSection] = {}
    if proxy.intercept_builtins:
        sources[_free_name(known)] = _builtin(base, folder)
    for name in proxy.sources:
        sources[name] = _usable(name, known)
    for plugin, exposed in operations.items():
        section = plugins[plugin]
        allowed = NameRules(prefix="", allow=section.tools.allow)  # what the operator denied stays denied
        allow = tuple(glob.escape(name) for name in exposed if allowed.shows(name))
        tools = ToolSelection(allow=allow, deny=section.tools.deny, timeouts=section.tools.timeouts)
        sources[plugin] = section.replace(prefix=plugin, tools=tools)
    return AgentGatewaySettings(settings=_for_agent(base, sources), operations=operations, sources=proxy.sources)


def settings_of_session(base: Settings, folder: Path, *, builtin: bool) -> AgentGatewaySettings:
    """The settings for a session: every configured source, and the built-in tools at `folder` if the agent loses its
    own. A source that is down stops nothing here."""
    sources = dict(base.sources)
    if builtin:
        kept = {name: section for name, section in sources.items() if not isinstance(section, BuiltinSection)}
        sources = {_free_name(kept): _builtin(base, folder), **kept}
    return AgentGatewaySettings(settings=_for_agent(base, sources))


def obstacle_of(section: SourceSection) -> str:
    """Why a source cannot be started at all; empty if it can."""
    if not section.enabled:
        return "it is disabled (`enabled: false`)"
    return "; ".join(section.obstacles) if isinstance(section, UnreadySource) else ""


def _usable(name: str, known: Mapping[str, SourceSection]) -> SourceSection:
    if name not in known:
        hint = hint_for(name, known, "sources") or "declare it under `sources:` in the configuration"
        raise GatewayError(Problem(code=PROXY_UNKNOWN_SOURCE, message=f"No source `{name}` is declared", hint=hint))
    obstacle = obstacle_of(known[name])
    if obstacle:
        message = f"The source `{name}` cannot be started: {obstacle}"
        raise GatewayError(Problem(code=SOURCE_NOT_USABLE, message=message, source=name, hint=WITHOUT_SOURCE))
    return known[name]


def enforce_default_protection(base: Settings, workflow: Path) -> Settings:
    """The settings that apply to a workflow. A configuration that was found by searching must not weaken the default
    sandbox and protected paths for a workflow outside of its folder."""
    folder = base.path.parent.resolve()
    if base.origin != "found" or workflow.resolve().is_relative_to(folder):
        return base
    sources = dict(base.sources)
    for name, section in sources.items():
        if isinstance(section, BuiltinSection):
            sandbox = strictest_sandbox((section.sandbox, SandboxSettings()))
            protect = merge_protection((section.protect, ProtectSettings()))
            sources[name] = section.replace(sandbox=sandbox, protect=protect)
    return replace(base, sources=sources)


def _exposed(proxy: Proxy, plugins: Mapping[str, SourceSection]) -> dict[str, tuple[str, ...]]:
    """The exposed operations of each plugin, of all its entries together."""
    exposed: dict[str, tuple[str, ...]] = {}
    for entry in proxy.plugin_tools:
        source = source_name(entry.plugin)
        if source not in plugins:
            known = ", ".join(f"`{name}`" for name in plugins)
            hint = f"plugins here: {known}" if known else "declare it in `.awf/plugins.yaml`, or under `sources:`"
            message = f"No plugin `{entry.plugin}` is declared"
            raise GatewayError(Problem(code=PROXY_UNKNOWN_PLUGIN, message=message, hint=hint))
        exposed[source] = (*exposed.get(source, ()), *entry.expose)
    twice = [
        f"{plugin}_{name}"
        for plugin, names in exposed.items()
        for name in (name for name, times in Counter(names).items() if times > 1)
    ]
    if twice:
        message = f"Exposed more than once: {', '.join(f'`{name}`' for name in twice)}"
        raise GatewayError(Problem(code=PROXY_NAME_COLLISION, message=message, hint="expose each operation once"))
    return exposed


def _builtin(base: Settings, folder: Path) -> BuiltinSection:
    """The built-in tools, under the strictest rules of all configured built-in sources."""
    configured = [section for section in base.sources.values() if isinstance(section, BuiltinSection)]
    sandbox = strictest_sandbox(section.sandbox for section in configured)
    protect = merge_protection(section.protect for section in configured)
    return BuiltinSection(root=folder, sandbox=sandbox, protect=protect).with_commands()


def _free_name(taken: Mapping[str, SourceSection]) -> str:
    name = BUILTIN
    while name in taken:
        name += "_"
    return name


def _for_agent(base: Settings, sources: Mapping[str, SourceSection]) -> Settings:
    """All tools in one list, under names that fit every agent, without our meta tools."""
    gateway = base.gateway.replace(
        meta_tools=False, disclosure="all", naming="prefixed", max_name=LONGEST_TOOL_NAME, require_provisioning=False
    )
    return replace(base, gateway=gateway, sources=sources)


_MOST_LISTED: Final = 20


def known_operations(name: str, operations: tuple[str, ...]) -> str:
    """The hint for an operation that does not exist: the one probably meant, else the first of all."""
    guess = nearest(name, operations)
    if guess is not None:
        return f"did you mean `{guess}`?"
    more = f" and {len(operations) - _MOST_LISTED:,} more" if len(operations) > _MOST_LISTED else ""
    return f"it has: {listed(operations[:_MOST_LISTED])}{more}" if operations else "it has none"
