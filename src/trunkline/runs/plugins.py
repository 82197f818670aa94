"""What a workflow may get tools of: the sources of the configuration, the plugins and servers of AWF's own file, and
the plugins that AWF has installed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from trunkline.config.awf_plugins import read_awf_plugins
from trunkline.config.installed_plugins import installed_plugins
from trunkline.config.load import plugins_file
from trunkline.config.reader import Referred
from trunkline.config.report import FileProblem
from trunkline.config.settings import Settings
from trunkline.config.sources import SourceSection, Unready
from trunkline.sources import section_kinds
from trunkline.workflow.proxy import source_name

PLUGIN: Final = "plugin"
_EXPOSED: Final = (PLUGIN, "mcp_stdio", "mcp_http")
"""The kinds whose operations can be exposed one by one."""
_FILE: Final = Path(".awf", "plugins.yaml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugins:
    """`sections` are the plugins and MCP servers by name, also those that are disabled or lack something; `other_kinds`
    are the sources that are neither, with their kinds, and `sources` all that there are. `renamed` are plugins of AWF's
    file whose names there cannot be names of sources, with those that they have. `texts` are the files that `problems`
    are about; `referred` are the variables that AWF's file refers to, with their values."""

    sections: Mapping[str, SourceSection] = field(default_factory=dict[str, SourceSection])
    other_kinds: Mapping[str, str] = field(default_factory=dict[str, str])
    sources: Mapping[str, SourceSection] = field(default_factory=dict[str, SourceSection])
    renamed: Mapping[str, str] = field(default_factory=dict[str, str])
    problems: tuple[FileProblem, ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict[str, str])
    referred: frozenset[Referred] = field(default=frozenset(), repr=False)

    def find(self, written: str) -> SourceSection | None:
        """The plugin that a workflow calls so. None also where its name was given to another one."""
        name = source_name(written)
        return self.sections.get(name) if self.renamed.get(written, name) == name else None

    def added_to(self, settings: Settings) -> Settings:
        """Settings that know of the secrets of these plugins, too."""
        sources = {**self.sections, **settings.sources}
        return replace(settings, sources=sources, referred=settings.referred | self.referred)

    @property
    def failed(self) -> bool:
        return any(problem.severity == "error" for problem in self.problems)


def plugin_sections(
    settings: Settings | None, workflow_path: Path, cwd: Path, *, environ: Mapping[str, str]
) -> Plugins:
    """The sources of our file, then those of AWF's, then its installed plugins; a name belongs to the first that has
    it."""
    sources: Mapping[str, SourceSection] = {} if settings is None else settings.sources
    kinds = {name: _kind_of(section) for name, section in sources.items()}
    sections = {name: section for name, section in sources.items() if kinds[name] in _EXPOSED}
    others = {name: kind for name, kind in kinds.items() if kind not in _EXPOSED}
    installed = installed_plugins(environ, section_kinds())
    file = find_plugins_file(workflow_path, cwd)
    if file is None:
        sections = _without(others, {**installed, **sections})
        return Plugins(sections=sections, other_kinds=others, sources={**sources, **sections})
    # beside our file it has been read already, and its plugins are not there twice
    read_before = settings is not None and file.resolve() == plugins_file(settings.path).resolve()
    found = read_awf_plugins(file, environ=environ, kinds=section_kinds(), taken=() if read_before else sources)
    sections = _without(others, {**installed, **found.found, **sections})
    return Plugins(
        sections=sections,
        other_kinds=others,
        sources={**sources, **sections},
        renamed=found.renamed,
        problems=found.problems,
        texts={str(file): found.text},
        referred=found.referred,
    )


def _without(others: Mapping[str, str], sections: Mapping[str, SourceSection]) -> dict[str, SourceSection]:
    return {name: section for name, section in sections.items() if name not in others}


def find_plugins_file(workflow_path: Path, cwd: Path) -> Path | None:
    """AWF's file: that of the working folder, else that of the nearest folder above the workflow."""
    return next((file for file in _candidates(workflow_path, cwd) if _is_there(file)), None)


def _candidates(workflow_path: Path, cwd: Path) -> Iterator[Path]:
    yield cwd.absolute() / _FILE
    for folder in workflow_path.absolute().parents:
        yield folder / _FILE


def _is_there(file: Path) -> bool:
    """Also where it cannot be read: that has to be said, not passed over."""
    try:
        file.lstat()
    except OSError:
        return False
    return True


def _kind_of(section: SourceSection) -> str:
    return section.of_kind if isinstance(section, Unready) else section.kind
