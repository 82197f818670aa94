"""Loading the configuration file: its text in, settings or every problem at once out.

A file that was found by looking gives settings only where its user trusts this very text of it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from trunkline.config.clients import read_mcp_servers
from trunkline.config.config_file import PLUGINS, ConfigFile, home_folder
from trunkline.config.dialects import dialect_of
from trunkline.config.files import parse_text, read_text, writable_by_others
from trunkline.config.problems import FileProblem, Invalid, Report, hint_for
from trunkline.config.reader import ConfigReader
from trunkline.config.secrets import hide_secrets, warn_if_secret
from trunkline.config.section import read_section
from trunkline.config.settings import STATE_DIR, GatewaySettings, Settings
from trunkline.config.sources import SourceKinds, SourceList, SourceSection, read_sources
from trunkline.config.tree import Node, Scalar, Table
from trunkline.config.trust import trust_verdict
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
class LoadedConfig:
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
        return tuple(verdict for verdict in self.verdicts if not verdict.is_trusted)

    def verdict_on(self, source: str) -> Verdict | None:
        """That on the file which has this source; None where that needs none."""
        of_plugins = source in self.plugins
        return next((one for one in self.verdicts if (one.path.name == PLUGINS.name) is of_plugins), None)


def load_config(file: ConfigFile, *, environ: Mapping[str, str], kinds: SourceKinds) -> LoadedConfig:
    """Load a file, and the plugins that stand beside it. Whatever it holds, this returns; every problem is in the
    result, in file order."""
    return _load(file, environ, kinds, inspect_only=False)


def inspect_config(file: ConfigFile, *, environ: Mapping[str, str], kinds: SourceKinds) -> LoadedConfig:
    """The same for whoever starts nothing of it: what is not trusted is read nevertheless, with a warning."""
    return _load(file, environ, kinds, inspect_only=True)


def _load(file: ConfigFile, environ: Mapping[str, str], kinds: SourceKinds, *, inspect_only: bool) -> LoadedConfig:
    path = file.path
    report = Report(str(path))
    try:
        text = read_text(path, report)
    except Invalid:
        return LoadedConfig(None, report.in_file_order(), "")
    loaded = _load_text(text, file, environ, kinds, inspect_only=inspect_only)
    if loaded.settings is not None:
        _look_at_state(loaded.settings.gateway.state_dir, path, report)
    loaded = replace(loaded, problems=(*report.in_file_order(), *loaded.problems))
    if loaded.untrusted and not inspect_only:
        return loaded
    return _with_plugins(loaded, file, environ, kinds, inspect_only=inspect_only)


def _look_at_state(state_dir: Path, path: Path, report: Report) -> None:
    """What lies there is listed to clients before a server is up, and says where tokens are sent."""
    looked_at = path.absolute().parent
    for found in writable_by_others(state_dir, beyond=looked_at):
        report.warn(OTHERS_CAN_WRITE, None, found.message, found.hint)
    for kept in _STATE:
        for found in writable_by_others(state_dir / kept, beyond=state_dir):
            report.warn(OTHERS_CAN_WRITE, None, found.message, found.hint)


def _with_plugins(
    loaded: LoadedConfig, file: ConfigFile, environ: Mapping[str, str], kinds: SourceKinds, *, inspect_only: bool
) -> LoadedConfig:
    beside = file.plugins(home_folder(environ))
    if not os.path.lexists(beside.path) or not loaded.ours:
        return loaded
    from trunkline.config.awf_plugins import read_awf_plugins

    sources: Mapping[str, SourceSection] = {} if loaded.settings is None else loaded.settings.sources
    plugins = read_awf_plugins(beside, environ=environ, kinds=kinds, taken=sources.keys(), inspect_only=inspect_only)
    settings = None
    if loaded.settings is not None and not plugins.failed:
        settings = replace(
            loaded.settings,
            sources=MappingProxyType({**sources, **plugins.found}),
            referenced_variables=loaded.settings.referenced_variables | plugins.referenced_variables,
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


def load_text(text: str, path: Path, *, environ: Mapping[str, str], kinds: SourceKinds) -> LoadedConfig:
    """Load text as if it stood in a file at `path` that its user has named."""
    return _load_text(text, ConfigFile.named(path), environ, kinds, inspect_only=False)


def _load_text(
    text: str, file: ConfigFile, environ: Mapping[str, str], kinds: SourceKinds, *, inspect_only: bool
) -> LoadedConfig:
    path = file.path
    report = Report(str(path))
    root, settings, verdict = None, None, None
    ours = True
    try:
        root = parse_text(text, path, report)
        verdict = trust_verdict(file, root, environ)
        ours = not isinstance(root, Table) or dialect_of(path, root) is None
        if verdict is None or verdict.is_trusted or inspect_only:
            settings = _read_settings(root, file, ConfigReader(report, environ, path.absolute().parent), kinds)
    except Invalid:
        pass
    problems = report.in_file_order()
    verdicts = () if verdict is None else (verdict,)
    problems += tuple(one.problem("warning" if inspect_only else "error") for one in verdicts if not one.is_trusted)
    shown = hide_secrets(text, root) if problems else text
    return LoadedConfig(None if report.failed else settings, problems, shown, verdicts=verdicts, ours=ours)


def _read_settings(root: Node, file: ConfigFile, reader: ConfigReader, kinds: SourceKinds) -> Settings:
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
    return Settings(
        path.absolute(), gateway, found, frozenset(reader.referenced_variables), frozenset(reader.files), file.origin
    )


def _read_client_file(dialect: str, root: Table, path: Path, reader: ConfigReader, kinds: SourceKinds) -> Settings:
    from trunkline.config.dialects.formats import read_client_file

    gateway = _read_gateway(None, reader)
    sources = SourceList(reader, kinds)
    read_client_file(dialect, root, path, reader, sources, gateway.listen)
    found = MappingProxyType(sources.found)
    return Settings(path.absolute(), gateway, found, frozenset(reader.referenced_variables), frozenset(reader.files))


def _read_gateway(node: Node | None, reader: ConfigReader) -> GatewaySettings:
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


def _read_all_sources(root: Table, reader: ConfigReader, kinds: SourceKinds, gateway: GatewaySettings) -> SourceList:
    sources = SourceList(reader, kinds)
    groups = [(name.text, node) for name, node in root.entries if name.text in (CLIENTS, SOURCES)]
    for _, node in groups:
        sources.reserve(node.entries if isinstance(node, Table) else ())
    for group, node in groups:
        if group == CLIENTS:
            read_mcp_servers(node, reader, sources, gateway.listen)
        else:
            read_sources(node, reader, sources)
    return sources
