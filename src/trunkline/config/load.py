"""Loads a configuration file: returns its settings, or all problems at once.

A file that was found rather than named gives settings only if the user trusts its present content.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from trunkline.config.clients import read_mcp_servers
from trunkline.config.dialects import dialect_of
from trunkline.config.files import (
    PLUGINS,
    ConfigFile,
    home_folder,
    parse_text,
    plugins_at,
    read_text,
    writable_by_others,
)
from trunkline.config.problems import FileProblem, InvalidValue, Report, hint_for
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
    """A loaded configuration file.

    `settings` is None if any problem is an error. `text` is the file's text with its secrets hidden, for showing
    problems; `others` has that of AWF's file, by path, and `plugins` are the names of the sources in it. `verdicts` are
    about files that have to be trusted. `ours` is False for a client's file.
    """

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
        """The verdict on the file that this source comes from; None if the file needs no trust."""
        of_plugins = source in self.plugins
        return next((one for one in self.verdicts if (one.path.name == PLUGINS.name) is of_plugins), None)


def load_config(
    file: ConfigFile, *, environ: Mapping[str, str], kinds: SourceKinds, inspect_only: bool = False
) -> LoadedConfig:
    """Load a file, and the plugins beside it. All problems are in the result, in file order.

    `inspect_only` is for callers that start nothing: an untrusted file is read with a warning.
    """
    path = file.path
    report = Report(str(path))
    try:
        text = read_text(path, report)
    except InvalidValue:
        return LoadedConfig(None, report.in_file_order(), "")
    loaded = _load_text(text, file, environ, kinds, inspect_only=inspect_only)
    if loaded.settings is not None:
        # definitions kept there are listed before a server is up, and the rest says where tokens are sent
        state_dir = loaded.settings.gateway.state_dir
        checked = [(state_dir, path.absolute().parent), *((state_dir / name, state_dir) for name in _STATE)]
        for found in (found for kept, beyond in checked for found in writable_by_others(kept, beyond=beyond)):
            report.warn(OTHERS_CAN_WRITE, None, found.message, found.hint)
    loaded = replace(loaded, problems=(*report.in_file_order(), *loaded.problems))
    if loaded.untrusted and not inspect_only:
        return loaded
    return _with_plugins(loaded, file, environ, kinds, inspect_only=inspect_only)


def _with_plugins(
    loaded: LoadedConfig, file: ConfigFile, environ: Mapping[str, str], kinds: SourceKinds, *, inspect_only: bool
) -> LoadedConfig:
    beside = plugins_at(file.path.absolute().parent, home_folder(environ))
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
    return replace(
        loaded,
        settings=settings,
        problems=(*loaded.problems, *plugins.problems),
        others={str(beside.path): plugins.text},
        plugins=tuple(plugins.found),
        verdicts=(*loaded.verdicts, *(() if plugins.verdict is None else (plugins.verdict,))),
    )


def load_text(text: str, path: Path, *, environ: Mapping[str, str], kinds: SourceKinds) -> LoadedConfig:
    """Load text as that of a file at `path` which the user has named."""
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
    except InvalidValue:
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
    sources = SourceList(reader, kinds)
    if dialect is not None:
        from trunkline.config.dialects.formats import read_client_file

        gateway = _read_gateway(None, reader)
        read_client_file(dialect, root, path, sources, gateway.listen)
    else:
        for name, _ in root.entries:
            if name.text not in (*ROOT_KEYS, SCHEMA):
                hint = hint_for(name.text, ROOT_KEYS, "keys here")
                reader.error(UNKNOWN_KEY, name, f"Unknown key `{name.text}`", hint)
        gateway = _read_gateway(root.get(GATEWAY), reader)
        groups = [(name.text, node) for name, node in root.entries if name.text in (CLIENTS, SOURCES)]
        for _, node in groups:
            sources.reserve(node.entries if isinstance(node, Table) else ())
        for group, node in groups:
            if group == CLIENTS:
                read_mcp_servers(node, sources, gateway.listen)
            else:
                read_sources(node, sources)
    found, variables = MappingProxyType(sources.found), frozenset(reader.referenced_variables)
    return Settings(path.absolute(), gateway, found, variables, frozenset(reader.files), file.origin)


def _read_gateway(node: Node | None, reader: ConfigReader) -> GatewaySettings:
    state_dir = reader.path(STATE_DIR)
    if node is None:
        return GatewaySettings(state_dir=state_dir)
    for key, value in node.entries if isinstance(node, Table) else ():
        if key.text in ("token", "operator_token"):
            warn_if_secret(key, value, reader)
    try:
        return read_section(GatewaySettings, node, reader, presets={"state_dir": state_dir})
    except InvalidValue:
        # the sources are read all the same, to report their problems too
        return GatewaySettings(state_dir=state_dir)
