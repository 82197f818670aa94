"""Adds a server to the text of a configuration file, or removes one; every other byte stays as it is.

Each change is checked by reading the new text. One that might do anything else is refused, with what to write by hand.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from json import dumps
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from trunkline.config.dialects import dialect_of
from trunkline.config.edit.new_server import (
    GROUPS_BY_DIALECT,
    OF_EDITORS,
    OWN_GROUPS,
    EntryBody,
    NewServer,
    ServerGroup,
    as_client,
)
from trunkline.config.edit.outline import OutlineKey, TextEdit, apply_edits
from trunkline.config.edit.toml_edit import TomlText, table_lines
from trunkline.config.edit.yaml_edit import CannotEdit, EntryValue, YamlText
from trunkline.config.files import parse_text
from trunkline.config.load import LoadedConfig, load_text
from trunkline.config.problems import FileProblem, InvalidValue, Report, TextPositions, TextSpan, hint_for, span_at
from trunkline.config.settings import Settings
from trunkline.config.sources import SourceKinds, UnreadySource
from trunkline.config.tree import UNUSABLE, ListNode, Node, Table
from trunkline.core.errors import (
    BAD_NAME,
    BAD_VALUE,
    DUPLICATE_KEY,
    NOT_EDITED,
    OWN_ENTRY_SKIPPED,
    UNKNOWN_TOOL,
    Code,
    GatewayError,
    Problem,
)
from trunkline.core.names import RESERVED_SOURCE, is_source_name, slug

# -- checks that an edit did what was asked and nothing else ---------------------------------------------------------

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TEXTS: Final = ("command", "args", "env", "url", "headers")


@dataclass(frozen=True, slots=True)
class ConfigText:
    """The text of a configuration file, with what it is read with."""

    path: Path
    text: str
    environ: Mapping[str, str]
    kinds: SourceKinds

    def tree(self) -> Node:
        """The tree of the text. Raises GatewayError if it is not valid YAML, JSON or TOML."""
        report = Report(str(self.path))
        try:
            return parse_text(self.text, self.path, report)
        except InvalidValue:
            raise GatewayError(report.in_file_order()[0]) from None

    def load(self) -> LoadedConfig:
        return load_text(self.text, self.path, environ=self.environ, kinds=self.kinds)


def _check_only_change(
    before: ConfigText, after: ConfigText, entry: tuple[str, ...], body: Mapping[str, EntryValue] | None
) -> None:
    """Raise CannotEdit if anything but this entry differs, or the entry is not `body`."""
    new = after.tree()
    if _meaning(before.tree(), entry) != _meaning(new, entry):
        raise CannotEdit("the change would touch more than this entry")
    node = _node_at(new, entry)
    if (None if node is None else _plain(node)) != body:
        raise CannotEdit("the change would not have the intended effect")


def _node_at(node: Node, path: tuple[str, ...]) -> Node | None:
    found: Node | None = node
    for key in path:
        found = found.get(key) if isinstance(found, Table) else None
    return found


def _meaning(node: Node, without: tuple[str, ...]) -> Any:
    """A tree without one entry, in a form that can be compared.

    On the path to that entry an empty group, an empty value and a missing key are the same: None.
    """
    if isinstance(node, Table):
        members: list[tuple[str, Any]] = []
        for key, value in node.entries:
            rest = without[1:] if without[:1] == (key.text,) else ()
            meaning = None if without == (key.text,) else _meaning(value, rest)
            if meaning is not None:
                members.append((key.text, meaning))
        return ("group", members) if members or not without else None
    if isinstance(node, ListNode):
        return ("list", [_meaning(item, ()) for item in node.items])
    if node.kind == "null" and without:
        return None
    return (node.kind, node.text, getattr(node, "value", None))


def _plain(node: Node) -> Any:
    if isinstance(node, Table):
        return {key.text: _plain(value) for key, value in node.entries}
    if isinstance(node, ListNode):
        return [_plain(item) for item in node.items]
    return node.text == "true" if node.kind == "boolean" else node.text if node.kind == "text" else node


def _check_client_reads_it(file: ConfigText, path: tuple[str, ...], body: EntryBody, server: NewServer) -> None:
    """Raise CannotEdit if the client would read the entry differently: clients differ in their references.

    Every variable that may be meant has a value here, as it may be set where the entry is used.
    """
    names = {name for text in server.texts() for name in _NAME.findall(text)} - OF_EDITORS
    environ = {name: f"value-of-{name}" for name in names} | dict(file.environ)
    ours = file.path.with_name("trunkline.json")
    own_text = _only_entry(ours, ("mcpServers",), server.name, as_client(server))
    meant = _texts_of(ConfigText(ours, own_text, environ, file.kinds))
    read = _texts_of(ConfigText(file.path, _only_entry(file.path, path, server.name, body), environ, file.kinds))
    if meant is not None and read is not None and meant != read:
        raise CannotEdit("the client whose file this is reads `$` or braces in it differently")


def _only_entry(path: Path, group: tuple[str, ...], name: str, body: EntryBody) -> str:
    """The text of a file with only this entry."""
    if path.suffix.lower() == ".toml":
        return "\n".join(table_lines(group[0], name, body))
    value: EntryBody = {name: body}
    for key in reversed(group):
        value = {key: value}
    return dumps(value)


def _texts_of(file: ConfigText) -> dict[str, Any] | None:
    """What the one server of a file is given; None if it cannot be read."""
    settings = file.load().settings
    section = None if settings is None else next(iter(settings.sources.values()), None)
    if section is None or isinstance(section, UnreadySource):
        return None
    texts = {name: getattr(section, name, None) for name in _TEXTS}
    passed_on: tuple[str, ...] = getattr(section, "inherit_env", ())
    return texts | {"env": {name: file.environ.get(name) for name in passed_on} | dict(texts["env"] or {})}


def _check_no_new_errors(before: LoadedConfig, after: LoadedConfig, own: Collection[FileProblem]) -> None:
    """Raise GatewayError or CannotEdit if the file has errors that it did not have before. `own` are the entry's."""
    for problem in own:
        if problem.severity == "error":
            raise GatewayError(Problem(code=problem.code, message=problem.message, hint=problem.hint))
    elsewhere = [problem for problem in after.problems if problem not in own]
    errors, known = (
        Counter(problem.code.id for problem in problems if problem.severity == "error")
        for problems in (elsewhere, before.problems)
    )
    more = errors - known
    for problem in elsewhere:
        if problem.severity == "error" and problem.code.id in more:
            raise CannotEdit(f"the file would no longer load: {problem.message}")


def _check_other_servers(before: LoadedConfig, after: LoadedConfig, changed: str) -> None:
    """Raise CannotEdit if a server other than the one to be changed comes, goes or changes."""
    if before.settings is None or after.settings is None:
        return
    old, new = before.settings.sources, after.settings.sources
    for name in (old.keys() | new.keys()) - {changed}:
        if old.get(name) != new.get(name):
            raise CannotEdit(f"the server `{name}` would change too")


# -- adding and removing ---------------------------------------------------------------------------------------------

Action = Literal["added", "replaced", "removed"]


class EditResult(NamedTuple):
    """The new text of the file, the mapping with the entry (`place`), and the line that it is or was on.

    `problems` are those of the new entry, to be shown with `shown`, the text with its secrets hidden. `settings` are
    those of the new text; None if it has errors.
    """

    action: Action
    text: str
    place: str
    line: int
    problems: tuple[FileProblem, ...]
    shown: str
    settings: Settings | None
    created: bool = False


class _Servers:
    """The servers of a file, with an editor for its text."""

    def __init__(self, file: ConfigText) -> None:
        self._root = file.tree()  # an outline is only made of text without syntax errors
        suffix = file.path.suffix.lower()
        is_json = suffix in (".json", ".jsonc")
        self.editor = TomlText(file.text) if suffix == ".toml" else YamlText(file.text, json=is_json)
        root = self._root if isinstance(self._root, Table) else Table(self._root.span)
        self.dialect = dialect_of(file.path, root)  # None for Trunkline's own files
        self.groups = self._groups()

    def names(self) -> list[str]:
        """The servers' names as they are written, including those behind an alias."""
        groups = (_node_at(self._root, group.path) for group in self.groups)
        return [key.text for group in groups if isinstance(group, Table) for key, _ in group.entries]

    def find(self, name: str) -> tuple[ServerGroup, OutlineKey] | None:
        """The server with this name, either as it is written or as the name of its source."""
        parents = ((group, self.editor.root.follow(group.path)) for group in self.groups)
        found = [(group, key) for group, parent in parents if parent is not None for key in parent.value.members]
        exact = (one for one in found if one[1].key == name)
        renamed = (one for one in found if _source_name(one[1].key) == name)
        return next(exact, None) or next(renamed, None)

    def _groups(self) -> tuple[ServerGroup, ...]:
        """The groups that may contain servers; a new server goes to the first."""
        if self.dialect is None:
            return OWN_GROUPS
        first, *others = GROUPS_BY_DIALECT[self.dialect]
        for deeper in others:
            # one level deeper: settings of VS Code, and version 2 of OpenCode's file
            key = self.editor.root.follow(deeper.path)
            if key is not None and key.value.get("type") is None:
                return (deeper,)
        return (first,)


def _source_name(key: str) -> str:
    return key if is_source_name(key) else slug(key)


def server_names(file: ConfigText) -> list[str]:
    """The names of the file's servers as they are written. Raises GatewayError if it cannot be read."""
    return _Servers(file).names()


def add_server(file: ConfigText, server: NewServer, *, force: bool = False) -> EditResult:
    """Add a server; with `force`, replace one of the same name. Raises GatewayError if that cannot be done."""
    _check_server(server)
    servers = _Servers(file)
    existing = servers.find(server.name)
    if existing is not None and not force:
        message = f"`{existing[1].key}` already exists, on line {span_at(file.text, existing[1].start).line}"
        raise _refusal(file, message, "use another name, or replace it with `--force`", code=DUPLICATE_KEY)
    if existing is None and server.name in servers.names():
        raise _not_editable(file, server.name)
    group = servers.groups[0] if existing is None else existing[0]
    body: EntryBody = {}
    try:
        body = group.body(server)
        if servers.dialect is not None:
            _check_client_reads_it(file, group.path, body, server)
        if existing is None:
            edits = servers.editor.add(group.path, server.name, body)
            return _checked(file, edits, group, server.name, body, "added")
        edits = servers.editor.replace(group.path, existing[1], body)
        return _checked(file, edits, group, existing[1].key, body, "replaced")
    except CannotEdit as error:
        lines = servers.editor.entry(group.path, server.name, body) if body else []
        shown = "".join(f"\n  {line}" for line in lines)
        hint = f"add this by hand under `{group.shown}`:{shown}" if body else ""
        raise _refusal(file, f"The file cannot be edited safely: {error}", hint) from None


def remove_server(file: ConfigText, name: str) -> EditResult:
    """Remove a server. Raises GatewayError if there is none of this name, or that cannot be done."""
    servers = _Servers(file)
    found = servers.find(name)
    if found is None:
        names = servers.names()
        if name in names:
            raise _not_editable(file, name)
        hint = hint_for(name, names, "servers") if names else "the file has no servers"
        raise _refusal(file, f"Unknown server `{name}`", hint, code=UNKNOWN_TOOL)
    group, member = found
    line = span_at(file.text, member.start).line
    try:
        edits = servers.editor.remove(group.path, member)
        return _checked(file, edits, group, member.key, None, "removed")._replace(line=line)
    except CannotEdit as error:
        hint = f"remove `{member.key}`, on line {line}, by hand"
        raise _refusal(file, f"The file cannot be edited safely: {error}", hint) from None


def _check_server(server: NewServer) -> None:
    if not is_source_name(server.name):
        message = f"`{server.name}` is not a name: use letters, digits, `_` and `-`"
        raise GatewayError(Problem(code=BAD_NAME, message=message))
    if server.name == RESERVED_SOURCE:
        message = f"The name `{RESERVED_SOURCE}` is reserved for the gateway's own tools"
        raise GatewayError(Problem(code=BAD_NAME, message=message, hint="use another name"))
    if any(UNUSABLE.search(text) is not None for text in server.texts()):
        raise GatewayError(Problem(code=BAD_VALUE, message="The server's description is not valid Unicode"))


def _checked(
    file: ConfigText, edits: list[TextEdit], group: ServerGroup, key: str, body: EntryBody | None, action: Action
) -> EditResult:
    """The result of an edit, after checking that only this entry differs."""
    new = replace(file, text=apply_edits(file.text, edits))
    try:
        _check_only_change(file, new, (*group.path, key), body)
    except GatewayError as error:
        raise CannotEdit(f"the file would no longer load: {error.problem.message}") from None
    before, after = file.load(), new.load()
    own: list[FileProblem] = []
    span = TextSpan(0, 0, 0, 0)
    found = _Servers(new).find(key)
    if body is not None and found is not None:
        span = TextPositions(new.text).span(found[1].start, found[1].end)
        own = [problem for problem in after.problems if problem.span and span[:2] <= problem.span[:2] <= span[2:]]
        _check_other_servers(before, after, _source_name(key))
    _check_no_new_errors(before, after, own)
    if any(problem.code is OWN_ENTRY_SKIPPED for problem in own):
        message = "This server is Trunkline itself; a gateway behind itself would call itself forever"
        raise GatewayError(Problem(code=NOT_EDITED, message=message))
    return EditResult(action, new.text, group.shown, span.line, tuple(own), after.text, after.settings)


def _refusal(file: ConfigText, message: str, hint: str, *, code: Code = NOT_EDITED) -> GatewayError:
    return GatewayError(Problem(code=code, message=message, where=str(file.path), hint=hint))


def _not_editable(file: ConfigText, name: str) -> GatewayError:
    """The error for a server that has no entry of its own: behind an alias, or an inline table of TOML."""
    message = f"`{name}` exists, but in a form that cannot be edited safely"
    return _refusal(file, message, "edit it by hand")
