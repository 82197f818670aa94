"""The sources and plugins that a workflow may get tools of, and starting plugins for a moment to list their
operations."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from trunkline.agents.workflow.proxy import source_name
from trunkline.config.awf_plugins import AwfPlugins, installed_plugins, read_awf_plugins
from trunkline.config.files import ConfigFile, plugins_file
from trunkline.config.settings import GatewaySettings, SearchSettings, Settings
from trunkline.config.sources import SourceSection, ToolSelection, UnreadySource
from trunkline.core.events import Events
from trunkline.core.source import Health
from trunkline.gateway.composition import GatewayRuntime
from trunkline.runtime.deadlines import TimeLimit
from trunkline.runtime.temporary_folders import TemporaryFolder
from trunkline.sources import section_kinds

PLUGIN: Final = "plugin"
_EXPOSED: Final = (PLUGIN, "mcp_stdio", "mcp_http")
"""The kinds whose operations can be exposed one by one."""


_NO_AWF_FILE: Final = AwfPlugins(
    found={}, renamed={}, problems=(), failed=False, text="", referenced_variables=frozenset(), verdict=None
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowPlugins:
    """What a workflow may get tools of: `sections` are the plugins and MCP servers by name, also those that are
    disabled or incomplete, and `sources` these and all others. `awf` is what AWF's file contributes."""

    sections: Mapping[str, SourceSection] = field(default_factory=dict[str, SourceSection])
    sources: Mapping[str, SourceSection] = field(default_factory=dict[str, SourceSection])
    awf: AwfPlugins = field(default=_NO_AWF_FILE, repr=False)

    def find(self, written: str) -> SourceSection | None:
        """The plugin of this name in a workflow; None if there is none, or another one has taken its name."""
        name = source_name(written)
        return self.sections.get(name) if self.awf.renamed.get(written, name) == name else None

    def added_to(self, settings: Settings) -> Settings:
        """The settings with the secrets of these plugins added."""
        variables = settings.referenced_variables | self.awf.referenced_variables
        return replace(settings, sources={**settings.sources, **self.sections}, referenced_variables=variables)


def plugin_sections(
    settings: Settings | None, file: ConfigFile | None, *, environ: Mapping[str, str], inspect_only: bool = False
) -> WorkflowPlugins:
    """Join the sources of our file, those of AWF's (`file`) and its installed plugins; the first to use a name has it.

    Where ours was found by searching, in another folder than AWF's, AWF's comes first: it is nearer to the workflow,
    and a repository must not take names that were given there.
    """
    sources: Mapping[str, SourceSection] = {} if settings is None else settings.sources
    installed = installed_plugins(environ, section_kinds())
    if file is None:
        return _joined(sources, _NO_AWF_FILE, installed)
    # beside our file it was read already; its plugins must not appear twice
    read_before = settings is not None and file.path.resolve() == plugins_file(settings.path).resolve()
    is_nearer = settings is not None and settings.origin == "found" and not read_before
    taken = () if read_before or is_nearer else sources
    awf = read_awf_plugins(file, environ=environ, kinds=section_kinds(), taken=taken, inspect_only=inspect_only)
    if is_nearer:
        sources = {name: section for name, section in sources.items() if name not in awf.found}
    return _joined(sources, awf, installed)


def _joined(
    sources: Mapping[str, SourceSection], awf: AwfPlugins, installed: Mapping[str, SourceSection]
) -> WorkflowPlugins:
    """The first to use a name has it."""
    others = {name for name, section in sources.items() if source_kind(section) not in _EXPOSED}
    sections = {name: section for name, section in {**installed, **awf.found, **sources}.items() if name not in others}
    return WorkflowPlugins(sections=sections, sources={**sources, **sections}, awf=awf)


def source_kind(section: SourceSection) -> str:
    return section.of_kind if isinstance(section, UnreadySource) else section.kind


START_S: Final = 20.0
_PREFIX: Final = "trunkline-v-"
_SPARE_S: Final = 2.0
"""Added to a plugin's own start timeout, so that it reports itself what is wrong."""
_UP: Final = ("ready", "degraded")


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginProbeResult:
    """The operations of a started plugin, and warnings about those that cannot be tools. `trouble`: it did not
    start."""

    operations: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    trouble: str = ""
    hint: str = ""


async def probe_plugins(
    sections: Mapping[str, SourceSection],
    path: Path,
    *,
    environ: Mapping[str, str],
    redact: Callable[[str], str] = str,
    start_s: float = START_S,
) -> dict[str, PluginProbeResult]:
    """Start plugins, all at once, and list their operations. On return none is running. `path` is the workflow file."""
    scratch = TemporaryFolder(_PREFIX)
    try:
        # use nothing of an earlier start, and keep nothing of this one
        gateway_settings = GatewaySettings(
            state_dir=scratch.path, meta_tools=False, search=SearchSettings(semantic=False)
        )
        started = {
            name: section.replace(tools=ToolSelection(), start_timeout=min(section.start_timeout, start_s))
            for name, section in sections.items()
        }
        events = Events()
        gateway = GatewayRuntime(Settings(path, gateway_settings, started), events, environ=environ, redact=redact)
        try:
            health = await _first_health(gateway, events, started, start_s + _SPARE_S)
            return {name: _probed(name, health.get(name), gateway) for name in started}
        finally:
            await gateway.close()
    finally:
        scratch.remove()


async def _first_health(
    gateway: GatewayRuntime, events: Events, names: Mapping[str, SourceSection], limit_s: float
) -> dict[str, Health]:
    """The health of each after its first start, if that ended in time."""
    found: dict[str, Health] = {}
    all_started = asyncio.Event()

    def changed(name: str, health: Health) -> None:
        if health.state != "starting":
            found.setdefault(name, health)
        if found.keys() >= names.keys():
            all_started.set()

    events.health.append(changed)
    gateway.start()
    with suppress(TimeoutError):
        async with TimeLimit(limit_s):
            await all_started.wait()
    return found


def _probed(name: str, health: Health | None, gateway: GatewayRuntime) -> PluginProbeResult:
    if health is None:
        return PluginProbeResult(trouble="it did not answer in time")
    snapshot = gateway.router.catalog.snapshot(name)
    if health.state not in _UP or snapshot is None:
        last_words = health.stderr_tail.strip().rpartition("\n")[2]
        hint = health.hint or (f"it wrote: {last_words}" if last_words else "")
        return PluginProbeResult(trouble=health.reason or health.last_error or f"it is {health.state}", hint=hint)
    return PluginProbeResult(operations=tuple(tool.name for tool in snapshot.tools), warnings=snapshot.warnings)
