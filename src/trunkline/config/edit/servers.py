"""Adds a server to the text of a configuration file, or removes one: every other byte stays as it is.

The change is made at the place where the entry stands or belongs, and then checked by reading the new text. What cannot
be changed with certainty is refused, with what to write by hand.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from trunkline.config.edit.config_text import (
    ConfigText,
    check_no_new_errors,
    check_only_change,
    check_other_servers,
    check_reads_as_meant,
    problems_of_entry,
)
from trunkline.config.edit.new_server import GROUPS_BY_DIALECT, OWN_GROUPS, Body, NewServer, ServerGroup
from trunkline.config.edit.outline import Outline, OutlineKey, Splice, apply_splices
from trunkline.config.edit.toml_edit import TomlText
from trunkline.config.edit.yaml_edit import CannotEdit, YamlText
from trunkline.config.report import FileProblem
from trunkline.config.settings import Settings
from trunkline.config.suggest import hint_for
from trunkline.config.tree import UNUSABLE, place_of
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

Action = Literal["added", "replaced", "removed"]
_JSON: Final = (".json", ".jsonc")


class Edited(NamedTuple):
    """`text` is the new text of the file; `line` is where the entry stands, or stood.

    `problems` are those of the new entry, to be shown with `shown`, the text with its secrets hidden. `settings` is
    what a gateway would take from the file; None where it would refuse it.
    """

    action: Action
    text: str
    place: str
    line: int
    problems: tuple[FileProblem, ...]
    shown: str
    settings: Settings | None


class _Servers:
    """The servers of a file, and where they stand in its text."""

    def __init__(self, file: ConfigText) -> None:
        file.tree()  # an outline is only made of text without syntax errors
        suffix = file.path.suffix.lower()
        self._file = file
        self.editor = TomlText(file.text) if suffix == ".toml" else YamlText(file.text, json=suffix in _JSON)
        self.dialect = file.dialect()
        self.groups = _groups_in(self.editor.root, self.dialect)

    def names(self) -> list[str]:
        """As they are written, those included that stand behind an alias."""
        return [name for group in self.groups for name in self._file.keys(group.path)]

    def find(self, name: str) -> tuple[ServerGroup, OutlineKey] | None:
        """The server of this name: as it is written, else as the name it goes by."""
        parents = ((group, self.editor.root.follow(group.path)) for group in self.groups)
        found = [(group, key) for group, parent in parents if parent is not None for key in parent.value.members]
        exact = (one for one in found if one[1].key == name)
        renamed = (one for one in found if _source_name(one[1].key) == name)
        return next(exact, None) or next(renamed, None)

    def line_of(self, key: OutlineKey) -> int:
        return place_of(self._file.text, key.start).line


def _groups_in(root: Outline, dialect: str | None) -> tuple[ServerGroup, ...]:
    """The groups that may hold servers in a file of this client, or of our own; a new server goes to the first."""
    if dialect is None:
        return OWN_GROUPS
    first, *others = GROUPS_BY_DIALECT[dialect]
    for deeper in others:
        # one level deeper: settings of VS Code, and the second version of OpenCode's file
        key = root.follow(deeper.path)
        if key is not None and key.value.get("type") is None:
            return (deeper,)
    return (first,)


def _source_name(key: str) -> str:
    """The name an entry's source goes by."""
    return key if is_source_name(key) else slug(key)


def server_names(file: ConfigText) -> list[str]:
    """The servers of the file, as they are written there. Raises GatewayError where it cannot be read."""
    return _Servers(file).names()


def add_server(file: ConfigText, server: NewServer, *, force: bool = False) -> Edited:
    """Add a server; with `force`, one of the same name is replaced. Raises GatewayError where that cannot be done."""
    _check_server(server)
    servers = _Servers(file)
    existing = servers.find(server.name)
    if existing is not None and not force:
        message = f"`{existing[1].key}` already exists, on line {servers.line_of(existing[1])}"
        raise _refusal(file, message, "use another name, or replace it with `--force`", code=DUPLICATE_KEY)
    if existing is None and server.name in servers.names():
        raise _out_of_reach(file, server.name)
    group = servers.groups[0] if existing is None else existing[0]
    body: Body = {}
    try:
        body = group.body(server)
        if servers.dialect is not None:
            check_reads_as_meant(file, group.path, body, server)
        if existing is None:
            splices = servers.editor.add(group.path, server.name, body)
            return _checked(file, splices, group, server.name, body, "added")
        splices = servers.editor.replace(group.path, existing[1], body)
        return _checked(file, splices, group, existing[1].key, body, "replaced")
    except CannotEdit as error:
        hint = _by_hand(servers, group, server.name, body) if body else ""
        raise _refusal(file, f"Cannot be changed safely: {error}", hint) from None


def remove_server(file: ConfigText, name: str) -> Edited:
    """Remove a server. Raises GatewayError where there is none of this name, or it cannot be done."""
    servers = _Servers(file)
    found = servers.find(name)
    if found is None:
        names = servers.names()
        if name in names:
            raise _out_of_reach(file, name)
        hint = hint_for(name, names, "servers") if names else "the file has no servers"
        raise _refusal(file, f"Unknown server `{name}`", hint, code=UNKNOWN_TOOL)
    group, member = found
    line = servers.line_of(member)
    try:
        splices = servers.editor.remove(group.path, member)
        return _checked(file, splices, group, member.key, None, "removed")._replace(line=line)
    except CannotEdit as error:
        hint = f"remove `{member.key}`, on line {line}, by hand"
        raise _refusal(file, f"Cannot be changed safely: {error}", hint) from None


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
    file: ConfigText, splices: list[Splice], group: ServerGroup, key: str, body: Body | None, action: Action
) -> Edited:
    """The edited text, once it is certain that it differs by this entry and nothing else."""
    new = file.with_text(apply_splices(file.text, splices))
    try:
        check_only_change(file, new, (*group.path, key), body)
    except GatewayError as error:
        raise CannotEdit(f"the file would no longer load: {error.problem.message}") from None
    before, after = file.load(), new.load()
    own: list[FileProblem] = []
    line = 0
    servers = _Servers(new)
    found = servers.find(key)
    if body is not None and found is not None:
        line = servers.line_of(found[1])
        own = problems_of_entry(after, new.text, found[1].start, found[1].end)
        check_other_servers(before, after, {_source_name(key)})
    check_no_new_errors(before, after, own)
    if any(problem.code is OWN_ENTRY_SKIPPED for problem in own):
        message = "This server is Trunkline itself; a gateway behind itself would call itself without end"
        raise GatewayError(Problem(code=NOT_EDITED, message=message))
    return Edited(action, new.text, group.shown, line, tuple(own), after.text, after.settings)


def _by_hand(servers: _Servers, group: ServerGroup, name: str, body: Body) -> str:
    """What to write, for a person to copy."""
    shown = "\n".join(f"  {line}" for line in servers.editor.entry(group.path, name, body))
    return f"add this by hand under `{group.shown}`:\n{shown}"


def _refusal(file: ConfigText, message: str, hint: str, *, code: Code = NOT_EDITED) -> GatewayError:
    return GatewayError(Problem(code=code, message=message, where=str(file.path), hint=hint))


def _out_of_reach(file: ConfigText, name: str) -> GatewayError:
    """The server exists, but not as an entry of its own: behind an alias, or as an inline table of TOML."""
    message = f"`{name}` exists, but is written in a form that cannot be changed safely"
    return _refusal(file, message, "change it by hand")
