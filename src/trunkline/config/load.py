"""Loading the configuration file: its text in, settings or every problem at once out.

A file that was found by looking gives settings only where its user trusts this very text of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from trunkline.config.clients import read_clients
from trunkline.config.dialects import dialect_of
from trunkline.config.file_text import parse_text, read_text
from trunkline.config.found import PLUGINS, ConfigFile, home_of, is_there
from trunkline.config.gateway import STATE_DIR, GatewaySettings
from trunkline.config.reader import Reader
from trunkline.config.report import FileProblem, Invalid, Report
from trunkline.config.secrets import hide_secrets, warn_if_secret
from trunkline.config.section import read_section
from trunkline.config.settings import Settings
from trunkline.config.source_list import Kinds, SourceList, read_sources
from trunkline.config.sources import SourceSection
from trunkline.config.suggest import hint_for
from trunkline.config.tree import Node, Scalar, Table
from trunkline.config.trust import judged
from trunkline.config.writable import writable_by_others
from trunkline.core.errors import OTHERS_CAN_WRITE, UNKNOWN_KEY
from trunkline.runtime.state_files import GATEWAYS

if TYPE_CHECKING:
    from trunkline.config.trust.verdict import Verdict

_STATE: Final = ("definitions", GATEWAYS)
GATEWAY: Final = "gateway"
CLIENTS: Final = "mcpServers"
SOURCES: Final = "sources"
SCHEMA: Final = "$schema"
ROOT_KEYS: Final = (GATEWAY, CLIENTS, SOURCES)


@dataclass(frozen=True, slots=True)
class Loaded:
    """`settings` is None when any problem is an error. `text` is for showing the places, its secrets hidden; `others`
    is the same for files that were read beside it, by path, and `plugins` are the names of the sources from there.
    `verdicts` are those on files that were found by looking: where one does not count there are no settings, unless
    the file was only looked at. `ours` is False for a client's file."""

    settings: Settings | None
    problems: tuple[FileProblem, ...]
    text: str
    others: Mapping[str, str] = field(default_factory=dict[str, str])
    plugins: tuple[str, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    ours: bool = True

    @property
    def untrusted(self) -> tuple[Verdict, ...]:
        return tuple(verdict for verdict in self.verdicts if not verdict.counts)

    def verdict_on(self, source: str) -> Verdict | None:
        """That on the file which has this source; None where that needs none."""
        of_plugins = source in self.plugins
        return next((one for one in self.verdicts if (one.path.name == PLUGINS.name) is of_plugins), None)


def load_config(file: ConfigFile, *, environ: Mapping[str, str], kinds: Kinds) -> Loaded:
    """Load a file, and the plugins that stand beside it. Whatever it holds, this returns; every problem is in the
    result, in file order."""
    return _load(file, environ, kinds, only_look=False)


def look_at_config(file: ConfigFile, *, environ: Mapping[str, str], kinds: Kinds) -> Loaded:
    """The same for whoever starts nothing of it: what is not trusted is read nevertheless, with a warning."""
    return _load(file, environ, kinds, only_look=True)


def _load(file: ConfigFile, environ: Mapping[str, str], kinds: Kinds, *, only_look: bool) -> Loaded:
    path = file.path
    report = Report(str(path))
    try:
        text = read_text(path, report)
    except Invalid:
        return Loaded(None, report.in_file_order(), "")
    loaded = _load_text(text, file, environ, kinds, only_look=only_look)
    if loaded.settings is not None:
        _look_at_state(loaded.settings.gateway.state_dir, path, report)
    loaded = replace(loaded, problems=(*report.in_file_order(), *loaded.problems))
    if loaded.untrusted and not only_look:
        return loaded
    return _with_plugins(loaded, file, environ, kinds, only_look=only_look)


def _look_at_state(state_dir: Path, path: Path, report: Report) -> None:
    """What lies there is listed to clients before a server is up, and says where tokens are sent."""
    looked_at = path.absolute().parent
    for found in writable_by_others(state_dir, beyond=looked_at):
        report.warn(OTHERS_CAN_WRITE, None, found.message, found.hint)
    for kept in _STATE:
        for found in writable_by_others(state_dir / kept, beyond=state_dir):
            report.warn(OTHERS_CAN_WRITE, None, found.message, found.hint)


def _with_plugins(
    loaded: Loaded, file: ConfigFile, environ: Mapping[str, str], kinds: Kinds, *, only_look: bool
) -> Loaded:
    beside = file.plugins(home_of(environ))
    if not is_there(beside.path) or not loaded.ours:
        return loaded
    from trunkline.config.awf_plugins import read_awf_plugins

    sources: Mapping[str, SourceSection] = {} if loaded.settings is None else loaded.settings.sources
    plugins = read_awf_plugins(beside, environ=environ, kinds=kinds, taken=sources.keys(), only_look=only_look)
    settings = None
    if loaded.settings is not None and not plugins.failed:
        settings = replace(
            loaded.settings,
            sources=MappingProxyType({**sources, **plugins.found}),
            referred=loaded.settings.referred | plugins.referred,
        )
    problems = (*loaded.problems, *plugins.problems)
    verdicts = (*loaded.verdicts, *(() if plugins.verdict is None else (plugins.verdict,)))
    return replace(
        loaded,
        settings=settings,
        problems=problems,
        others={str(beside.path): plugins.text},
        plugins=tuple(plugins.found),
        verdicts=verdicts,
    )


def load_text(text: str, path: Path, *, environ: Mapping[str, str], kinds: Kinds) -> Loaded:
    """Load text as if it stood in a file at `path` that its user has named."""
    return _load_text(text, ConfigFile.named(path), environ, kinds, only_look=False)


def _load_text(text: str, file: ConfigFile, environ: Mapping[str, str], kinds: Kinds, *, only_look: bool) -> Loaded:
    path = file.path
    report = Report(str(path))
    root, settings, verdict = None, None, None
    ours = True
    try:
        root = parse_text(text, path, report)
        verdict = judged(file, root, environ)
        ours = not isinstance(root, Table) or dialect_of(path, root) is None
        if verdict is None or verdict.counts or only_look:
            settings = _read_settings(root, file, Reader(report, environ, path.absolute().parent), kinds)
    except Invalid:
        pass
    problems = report.in_file_order()
    verdicts = () if verdict is None else (verdict,)
    problems += tuple(one.problem("warning" if only_look else "error") for one in verdicts if not one.counts)
    shown = hide_secrets(text, root) if problems else text
    return Loaded(None if report.failed else settings, problems, shown, verdicts=verdicts, ours=ours)


def _read_settings(root: Node, file: ConfigFile, reader: Reader, kinds: Kinds) -> Settings:
    path = file.path
    if isinstance(root, Scalar) and root.kind == "null":
        root = Table(root.span)
    if not isinstance(root, Table):
        raise reader.wrong_type(root, "keys like `mcpServers:`")
    dialect = dialect_of(path, root)
    if dialect is not None:
        return _read_client_file(dialect, root, path, reader, kinds)
    for name, _ in root.entries:
        if name.text not in (*ROOT_KEYS, SCHEMA):
            hint = hint_for(name.text, ROOT_KEYS, "keys here")
            reader.error(UNKNOWN_KEY, name, f"Unknown key `{name.text}`", hint)
    gateway = _read_gateway(root.get(GATEWAY), reader)
    sources = _read_all_sources(root, reader, kinds, gateway)
    found = MappingProxyType(sources.found)
    return Settings(path.absolute(), gateway, found, frozenset(reader.referred), frozenset(reader.files), file.origin)


def _read_client_file(dialect: str, root: Table, path: Path, reader: Reader, kinds: Kinds) -> Settings:
    from trunkline.config.client_files import read_client_file

    gateway = _read_gateway(None, reader)
    sources = SourceList(reader, kinds)
    read_client_file(dialect, root, path, reader, sources, gateway.listen)
    found = MappingProxyType(sources.found)
    return Settings(path.absolute(), gateway, found, frozenset(reader.referred), frozenset(reader.files))


def _read_gateway(node: Node | None, reader: Reader) -> GatewaySettings:
    state_dir = reader.path(STATE_DIR)
    if node is None:
        return GatewaySettings(state_dir=state_dir)
    for key, value in node.entries if isinstance(node, Table) else ():
        if key.text in ("token", "operator_token"):
            warn_if_secret(key, value, reader)
    try:
        return read_section(GatewaySettings, node, reader, presets={"state_dir": state_dir})
    except Invalid:
        # the sources are read nevertheless, so that their problems are reported in the same go
        return GatewaySettings(state_dir=state_dir)


def _read_all_sources(root: Table, reader: Reader, kinds: Kinds, gateway: GatewaySettings) -> SourceList:
    sources = SourceList(reader, kinds)
    groups = [(name.text, node) for name, node in root.entries if name.text in (CLIENTS, SOURCES)]
    for _, node in groups:
        sources.reserve(node.entries if isinstance(node, Table) else ())
    for group, node in groups:
        if group == CLIENTS:
            read_clients(node, reader, sources, gateway.listen)
        else:
            read_sources(node, reader, sources)
    return sources
