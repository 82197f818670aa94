"""What a workflow may get tools of: the sources of the configuration, the plugins and servers of AWF's own file, and
the plugins that AWF has installed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from trunkline.agents.workflow.proxy import source_name
from trunkline.config.awf_plugins import read_awf_plugins
from trunkline.config.found import ConfigFile, plugins_file
from trunkline.config.installed_plugins import installed_plugins
from trunkline.config.reader import Referred
from trunkline.config.report import FileProblem
from trunkline.config.settings import Settings
from trunkline.config.sources import SourceSection, Unready
from trunkline.config.trust.verdict import Verdict
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
