"""What a workflow may get tools of: the sources of the configuration, the plugins and servers of AWF's own file, and
the plugins that AWF has installed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from trunkline.agents.workflow.proxy import source_name
from trunkline.config.awf_plugins import read_awf_plugins
from trunkline.config.found import ConfigFile, plugins_file
from trunkline.config.gateway import GatewaySettings, SearchSettings
from trunkline.config.installed_plugins import installed_plugins
from trunkline.config.reader import Referred
from trunkline.config.report import FileProblem
from trunkline.config.settings import Settings
from trunkline.config.sources import SourceSection, ToolSelection, Unready
from trunkline.config.trust.verdict import Verdict
from trunkline.core.events import Events
from trunkline.core.source import Health
from trunkline.gateway.composition import GatewayRuntime
from trunkline.runtime.deadlines import Within
from trunkline.runtime.temporary_folders import PrivateFolder
from trunkline.sources import section_kinds

PLUGIN: Final = "plugin"
_EXPOSED: Final = (PLUGIN, "mcp_stdio", "mcp_http")
"""The kinds whose operations can be exposed one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugins:
    """`sections` are the plugins and MCP servers by name, also those that are disabled or lack something; `other_kinds`
    are the sources that are neither, with their kinds, and `sources` all that there are. `renamed` are plugins of AWF's
    file whose names there cannot be names of sources, with those that they have. `texts` are the files that `problems`
    are about; `referred` are the variables that AWF's file refers to, with their values. `verdict` is that on AWF's
    file, whose sources are `of_file`."""

    sections: Mapping[str, SourceSection] = field(default_factory=dict[str, SourceSection])
    other_kinds: Mapping[str, str] = field(default_factory=dict[str, str])
    sources: Mapping[str, SourceSection] = field(default_factory=dict[str, SourceSection])
    renamed: Mapping[str, str] = field(default_factory=dict[str, str])
    problems: tuple[FileProblem, ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict[str, str])
    referred: frozenset[Referred] = field(default=frozenset(), repr=False)
    verdict: Verdict | None = None
    of_file: frozenset[str] = frozenset()

    def find(self, written: str) -> SourceSection | None:
        """The plugin that a workflow calls so. None also where its name was given to another one."""
        name = source_name(written)
        return self.sections.get(name) if self.renamed.get(written, name) == name else None

    def added_to(self, settings: Settings) -> Settings:
        """Settings that know of the secrets of these plugins, too."""
        sources = {**settings.sources, **self.sections}
        return replace(settings, sources=sources, referred=settings.referred | self.referred)

    @property
    def failed(self) -> bool:
        return any(problem.severity == "error" for problem in self.problems)


def plugin_sections(
    settings: Settings | None, file: ConfigFile | None, *, environ: Mapping[str, str], only_look: bool = False
) -> Plugins:
    """The sources of our file, then those of AWF's (`file`), then its installed plugins; a name belongs to the first
    that has it. Where ours was found by looking, in another folder than AWF's, AWF's comes first: it is nearer to the
    workflow, and a repository must not take the names that were given there."""
    sources: Mapping[str, SourceSection] = {} if settings is None else settings.sources
    installed = installed_plugins(environ, section_kinds())
    if file is None:
        return _joined(sources, {}, installed)
    # beside our file it has been read already, and its plugins are not there twice
    read_before = settings is not None and file.path.resolve() == plugins_file(settings.path).resolve()
    is_nearer = settings is not None and settings.origin == "found" and not read_before
    taken = () if read_before or is_nearer else sources
    found = read_awf_plugins(file, environ=environ, kinds=section_kinds(), taken=taken, only_look=only_look)
    if is_nearer:
        sources = {name: section for name, section in sources.items() if name not in found.found}
    return replace(
        _joined(sources, found.found, installed),
        renamed=found.renamed,
        problems=found.problems,
        texts={str(file.path): found.text},
        referred=found.referred,
        verdict=found.verdict,
        of_file=frozenset(found.found),
    )


def _joined(
    sources: Mapping[str, SourceSection],
    of_file: Mapping[str, SourceSection],
    installed: Mapping[str, SourceSection],
) -> Plugins:
    """A name belongs to the first that has it."""
    kinds = {name: _kind_of(section) for name, section in sources.items()}
    others = {name: kind for name, kind in kinds.items() if kind not in _EXPOSED}
    exposed = {name: section for name, section in sources.items() if name not in others}
    sections = _without(others, {**installed, **of_file, **exposed})
    return Plugins(sections=sections, other_kinds=others, sources={**sources, **sections})


def _without(others: Mapping[str, str], sections: Mapping[str, SourceSection]) -> dict[str, SourceSection]:
    return {name: section for name, section in sections.items() if name not in others}


def _kind_of(section: SourceSection) -> str:
    return section.of_kind if isinstance(section, Unready) else section.kind


# Plugins started for a moment, all at once, to learn which operations they have.

START_S: Final = 20.0
_PREFIX: Final = "trunkline-v-"
_SPARE_S: Final = 2.0
"""Over what a plugin may take by its own settings, so that it says itself what is wrong."""
_UP: Final = ("ready", "degraded")


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginProbe:
    """`operations` can become tools, `warnings` are about those that cannot. With `trouble` it could not be asked."""

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
) -> dict[str, PluginProbe]:
    """What each of them offers. `path` is the file it is for. On return none of them is left running."""
    scratch = PrivateFolder(_PREFIX)
    try:
        # nothing of an earlier start is believed, and nothing of this one is kept
        gateway_settings = GatewaySettings(
            state_dir=scratch.path, meta_tools=False, search=SearchSettings(semantic=False)
        )
        started = {name: _for_a_moment(section, start_s) for name, section in sections.items()}
        events = Events()
        gateway = GatewayRuntime(Settings(path, gateway_settings, started), events, environ=environ, redact=redact)
        try:
            heard = await _heard(gateway, events, started, start_s + _SPARE_S)
            return {name: _probed(name, heard.get(name), gateway) for name in started}
        finally:
            await gateway.close()
    finally:
        scratch.remove()


def _for_a_moment(section: SourceSection, start_s: float) -> SourceSection:
    return section.replace(tools=ToolSelection(), start_timeout=min(section.start_timeout, start_s))


async def _heard(
    gateway: GatewayRuntime, events: Events, names: Mapping[str, SourceSection], limit_s: float
) -> dict[str, Health]:
    """How the first start of each ended, as far as it did in time."""
    heard: dict[str, Health] = {}
    all_heard = asyncio.Event()

    def changed(name: str, health: Health) -> None:
        if health.state != "starting":
            heard.setdefault(name, health)
        if heard.keys() >= names.keys():
            all_heard.set()

    events.health.append(changed)
    gateway.start()
    with suppress(TimeoutError):
        async with Within(limit_s):
            await all_heard.wait()
    return heard


def _probed(name: str, health: Health | None, gateway: GatewayRuntime) -> PluginProbe:
    if health is None:
        return PluginProbe(trouble="it did not answer in time")
    snapshot = gateway.router.catalog.snapshot(name)
    if health.state not in _UP or snapshot is None:
        return PluginProbe(trouble=health.reason or health.last_error or f"it is {health.state}", hint=_hint(health))
    return PluginProbe(operations=tuple(tool.name for tool in snapshot.tools), warnings=snapshot.warnings)


def _hint(health: Health) -> str:
    """What to do, or else what it said before it ended, which may tell."""
    words = health.stderr_tail.strip().rpartition("\n")[2]
    return health.hint or (f"it wrote: {words}" if words else "")
