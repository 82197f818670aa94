"""Plugins of AWF: those in `.awf/plugins.yaml` beside a configuration file, and those that AWF has installed.

It is AWF's file, so keys that only AWF knows are warnings. Relative paths start at the folder that contains the file,
programs in the folder that contains `.awf`.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from trunkline.config.clients import entry_as, source_name_for
from trunkline.config.files import ConfigFile, parse_text, read_text
from trunkline.config.problems import FileProblem, InvalidValue, Report, nearest
from trunkline.config.reader import ConfigReader, ReferencedVariable, escape_references
from trunkline.config.secrets import hide_secrets
from trunkline.config.sources import SourceKinds, SourceList, SourceSection, UnreadySource
from trunkline.config.tree import ListNode, Node, Scalar, Table, TableEntry
from trunkline.config.trust import trust_verdict
from trunkline.config.value_types import FilePath, Text
from trunkline.core.errors import BAD_VALUE, CLIENT_ONLY_KEY, CONFLICTING_KEYS, DUPLICATE_KEY, MISSING_KEY, UNKNOWN_KEY
from trunkline.core.names import is_source_name, slug

if TYPE_CHECKING:
    from trunkline.config.trust.verdict import Verdict

_PLUGIN: Final = "plugin"
_PLUGINS: Final = "plugins"
_TYPE: Final = "type"
_MCP: Final = "mcp"
_OURS: Final[Mapping[str, tuple[str, ...]]] = {
    _PLUGIN: ("command", "path", "args", "env", "cwd", "config", "enabled"),
    "mcp_stdio": ("command", "args", "env", "cwd", "enabled"),
    "mcp_http": ("url", "headers", "enabled"),
}
"""The keys of each kind, by the names that its section has for them."""
MANIFEST: Final = "plugin.yaml"
_PREFIX: Final = "awf-plugin-"


@dataclass(frozen=True, slots=True)
class AwfPlugins:
    """What was read from AWF's file.

    `found` are the sources by name. `renamed` has the names of those that the file calls otherwise. `text` is that of
    the file with its secrets hidden.
    """

    found: Mapping[str, SourceSection]
    renamed: Mapping[str, str]
    problems: tuple[FileProblem, ...]
    failed: bool
    text: str
    referenced_variables: frozenset[ReferencedVariable]
    verdict: Verdict | None


def read_awf_plugins(
    file: ConfigFile,
    *,
    environ: Mapping[str, str],
    kinds: SourceKinds,
    taken: Container[str],
    inspect_only: bool = False,
) -> AwfPlugins:
    """Read the plugins of the file; none if it has to be trusted and is not, unless it is only inspected.

    `taken` are names of sources in the configuration file, which take precedence.
    """
    path = file.path
    report = Report(str(path))
    reader = ConfigReader(report, environ, path.parent)
    sources = SourceList(reader, kinds, taken)
    renamed: dict[str, str] = {}
    root, text, verdict = None, "", None
    refused = False
    try:
        text = read_text(path, report, beyond=path.parent.parent)
        root = parse_text(text, path, report)
        verdict = trust_verdict(file, root, environ)
        refused = verdict is not None and not verdict.is_trusted
        if not refused or inspect_only:
            renamed = _read_root(root, sources, taken)
    except InvalidValue:
        pass  # reported already
    problems = report.in_file_order()
    if verdict is not None and refused:
        problems += (verdict.problem("warning" if inspect_only else "error"),)
    return AwfPlugins(
        found=sources.found,
        renamed=renamed,
        problems=problems,
        failed=report.failed or (refused and not inspect_only),
        text=hide_secrets(text, root),
        referenced_variables=frozenset(reader.referenced_variables),
        verdict=verdict,
    )


def _read_root(root: Node, sources: SourceList, taken: Container[str]) -> dict[str, str]:
    """Read the plugins into the list and return the names of those that are called otherwise in the file."""
    reader, renamed = sources.reader, dict[str, str]()
    if isinstance(root, Scalar) and root.kind == "null":
        return renamed
    if not isinstance(root, Table):
        raise reader.wrong_type(root, f"the key `{_PLUGINS}:`")
    _report_unknown(root, (_PLUGINS,), reader)
    plugins = root.get(_PLUGINS)
    if plugins is None:
        reader.warn(MISSING_KEY, root.span, "The file has no plugins", f"they belong under `{_PLUGINS}`")
        return renamed
    entries = _entries(plugins, reader)
    sources.reserve(entry for entry in entries if entry.key.text not in taken)
    for entry in entries:
        with reader.reading_source():
            name = _read_plugin(entry, sources, taken)
            if name != entry.key.text:
                renamed[entry.key.text] = name
    return renamed


def _entries(plugins: Node, reader: ConfigReader) -> list[TableEntry]:
    """The plugins under their names, whether the file has a group or a list of them."""
    if isinstance(plugins, Scalar) and plugins.kind == "null":
        return []
    if isinstance(plugins, Table):
        return plugins.entries
    if not isinstance(plugins, ListNode):
        raise reader.wrong_type(plugins, "a mapping or a list")
    named: list[TableEntry] = []
    for item in plugins.items:
        with reader.reading_source():
            if not isinstance(item, Table):
                raise reader.wrong_type(item, "a mapping")
            name = item.get("name")
            if name is None:
                raise reader.error(MISSING_KEY, item, "Missing key `name`")
            if not isinstance(name, Scalar):
                raise reader.wrong_type(name, "text")
            text = Text(may_be_empty=False).read(name, reader)
            rest = [entry for entry in item.entries if entry.key.text != "name"]
            named.append(TableEntry(Scalar(name.span, "text", text), Table(item.span, rest)))
    return named


def _read_plugin(entry: TableEntry, sources: SourceList, taken: Container[str]) -> str:
    """Read one plugin and return its name as a source."""
    reader = sources.reader
    if not isinstance(entry.value, Table):
        raise reader.wrong_type(entry.value, "a mapping")
    kind = _kind_of(entry, entry.value, reader)
    _report_unknown(entry.value, (*_OURS[kind], _TYPE), reader)
    if entry.key.text in taken:
        message = f"`{entry.key.text}` is also a source in the configuration file, which takes precedence"
        reader.warn(DUPLICATE_KEY, entry.key, message)
        return entry.key.text
    table = Table(entry.value.span, _translated(entry, entry.value, kind, reader))
    name = source_name_for(entry.key, sources)
    sources.claim(name, entry.key)
    sources.add(name, kind, entry.key, table)
    return name


def _kind_of(entry: TableEntry, plugin: Table, reader: ConfigReader) -> str:
    node = plugin.get(_TYPE)
    if node is None:
        return _PLUGIN
    written = Text(may_be_empty=False).read(node, reader)
    if written in (_PLUGIN, "grpc"):
        return _PLUGIN
    if written != _MCP:
        hint = f"write `{_MCP}` for an MCP server, and nothing for a plugin"
        raise reader.error(BAD_VALUE, node, f"Unknown type `{written}`", hint)
    return "mcp_http" if _one_of(entry, plugin, "command", "url", reader) == "url" else "mcp_stdio"


def _one_of(entry: TableEntry, plugin: Table, one: str, other: str, reader: ConfigReader) -> str:
    """Which of two keys it has. Raises InvalidValue if it has none or both."""
    second = plugin.get(other)
    if plugin.get(one) is None and second is None:
        raise reader.error(MISSING_KEY, entry.key, f"Missing key `{one}` or `{other}`")
    if plugin.get(one) is not None and second is not None:
        message = f"`{one}` and `{other}` are mutually exclusive"
        raise reader.error(CONFLICTING_KEYS, second, message, "remove one of them")
    return one if second is None else other


def _translated(entry: TableEntry, plugin: Table, kind: str, reader: ConfigReader) -> list[TableEntry]:
    """The equivalent entries of a section."""
    if kind == _PLUGIN:
        _one_of(entry, plugin, "command", "path", reader)
    translated = [
        entry_as("command", item, _program(item.value, reader)) if item.key.text == "path" else item
        for item in plugin.entries
        if item.key.text in _OURS[kind]
    ]
    if kind != "mcp_http" and plugin.get("cwd") is None:
        # it starts where it was trusted, as its arguments may be scripts; a workflow may run in any folder
        folder = escape_references(str(reader.folder.absolute().parent))
        translated.append(entry_as("cwd", entry, Scalar(entry.key.span, "text", folder)))
    return translated


def _program(node: Node, reader: ConfigReader) -> Scalar:
    """The program at a path: the file itself, or the one in the folder of a plugin."""
    path = FilePath().read(node, reader)
    program = program_in(path) if path.is_dir() else path
    if program is None:
        message = f"The folder is not a plugin: it needs a `{MANIFEST}` and a program `{_expected(path)[0]}`"
        reader.obstacle(BAD_VALUE, node, message)
        return Scalar(node.span, "text", reader.missing_reference())
    return Scalar(node.span, "text", escape_references(str(program)))


def program_in(folder: Path) -> Path | None:
    """The program of a plugin's folder: named after the folder, as AWF requires, or the only one there."""
    if not (folder / MANIFEST).is_file():
        return None
    for name in _expected(folder):
        if _is_program(folder / name):
            return folder / name
    try:
        programs = [file for file in folder.iterdir() if _is_program(file)]
    except OSError:
        return None
    return programs[0] if len(programs) == 1 else None


def _expected(folder: Path) -> tuple[str, ...]:
    name = folder.name
    return (name,) if name.startswith(_PREFIX) else (_PREFIX + name, name)


def _is_program(file: Path) -> bool:
    return file.is_file() and os.access(file, os.X_OK)


def _report_unknown(table: Table, known: tuple[str, ...], reader: ConfigReader) -> None:
    """A likely typo is an error; any other key is AWF's."""
    for key, _ in table.entries:
        if key.text in known:
            continue
        guess = nearest(key.text, known, cutoff=0.8)
        if guess is not None:
            reader.error(UNKNOWN_KEY, key, f"Unknown key `{key.text}`", f"did you mean `{guess}`?")
        else:
            reader.warn(CLIENT_ONLY_KEY, key, f"`{key.text}` is for AWF and is ignored here")


# -- installed plugins: a folder for each, with its manifest and its program -----------------------------------------


def installed_plugins(environ: Mapping[str, str], kinds: SourceKinds) -> dict[str, SourceSection]:
    """The plugins that AWF has installed for this user, by name. One that cannot be used says why."""
    found: dict[str, SourceSection] = {}
    declared: Any = kinds[_PLUGIN]()
    for folder in _plugins(environ):
        written, obstacle = _name_of(folder)
        name = written if is_source_name(written) else slug(written)
        program = program_in(folder)
        if program is None or obstacle:
            why = obstacle or f"{folder} contains no program named after it"
            section: SourceSection = UnreadySource(prefix=name, of_kind=_PLUGIN, obstacles=(why,))
        else:
            section = declared(prefix=name, command=str(program))
        found.setdefault(name, section)
    return found


def plugin_folders(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Where AWF installs plugins. Relative paths are ignored: they would depend on the working folder."""
    named = environ.get("AWF_PLUGINS_PATH", "")
    if named:
        return tuple(path for path in map(Path, named.split(os.pathsep)) if path.is_absolute())
    data, home = Path(environ.get("XDG_DATA_HOME", "")), Path(environ.get("HOME", ""))
    if not data.is_absolute():
        data = home / ".local" / "share"
    return (data / "awf" / "plugins",) if data.is_absolute() else ()


def _plugins(environ: Mapping[str, str]) -> Iterator[Path]:
    for folder in plugin_folders(environ):
        try:
            inside = sorted(folder.iterdir())
        except OSError:
            continue
        yield from (plugin for plugin in inside if (plugin / MANIFEST).is_file())


def _name_of(folder: Path) -> tuple[str, str]:
    """A plugin's name in its manifest; if that has none, the name of its folder and what is wrong."""
    file = folder / MANIFEST
    report = Report(str(file))
    try:
        root = parse_text(read_text(file, report), file, report)
    except InvalidValue:
        return folder.name, "; ".join(problem.message for problem in report.in_file_order())
    name = root.get("name") if isinstance(root, Table) else None
    if isinstance(name, Scalar) and name.kind == "text" and name.text:
        return name.text, ""
    return folder.name, f"{file} has no `name`"
