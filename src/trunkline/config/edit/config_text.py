"""The text of a configuration file, and the checks that an edit of it did what was asked and nothing else."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from json import dumps
from pathlib import Path
from typing import Any, Final

from trunkline.config.dialects import dialect_of
from trunkline.config.edit.new_server import OF_EDITORS, Body, NewServer, as_client
from trunkline.config.edit.toml_edit import table_lines
from trunkline.config.edit.yaml_edit import CannotEdit, Plain
from trunkline.config.file_text import parse_text
from trunkline.config.load import Loaded, load_text
from trunkline.config.report import FileProblem, Invalid, Report
from trunkline.config.source_list import Kinds
from trunkline.config.sources import Unready
from trunkline.config.tree import Items, Node, Table, place_of
from trunkline.core.errors import GatewayError, Problem

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TEXTS: Final = ("command", "args", "env", "url", "headers")


@dataclass(frozen=True, slots=True)
class ConfigText:
    """The text of a configuration file, and what it is read with."""

    path: Path
    text: str
    environ: Mapping[str, str]
    kinds: Kinds

    def tree(self) -> Node:
        """Raises GatewayError where the text is not even valid YAML, JSON or TOML."""
        report = Report(str(self.path))
        try:
            return parse_text(self.text, self.path, report)
        except Invalid:
            raise GatewayError(report.in_file_order()[0]) from None

    def dialect(self) -> str | None:
        """Whose file this is; None for one of our own."""
        root = self.tree()
        return dialect_of(self.path, root if isinstance(root, Table) else Table(root.span))

    def keys(self, path: tuple[str, ...]) -> list[str]:
        """The keys of the group that a path leads to."""
        group = _node_at(self.tree(), path)
        return [key.text for key, _ in group.entries] if isinstance(group, Table) else []

    def load(self) -> Loaded:
        return load_text(self.text, self.path, environ=self.environ, kinds=self.kinds)

    def with_text(self, text: str) -> ConfigText:
        return ConfigText(self.path, text, self.environ, self.kinds)


def check_only_change(
    before: ConfigText, after: ConfigText, entry: tuple[str, ...], body: Mapping[str, Plain] | None
) -> None:
    """Raises CannotEdit where anything but this entry differs, or the entry does not say what `body` says."""
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
    """What a tree says, less one entry, in a form that compares.

    On the way to that entry an empty group, an empty value and no key at all are the same: None.
    """
    if isinstance(node, Table):
        said = [
            (key.text, _meaning(value, _rest(without, key.text)))
            for key, value in node.entries
            if without != (key.text,)
        ]
        members = [(key, meaning) for key, meaning in said if meaning is not None]
        return ("group", members) if members or not without else None
    if isinstance(node, Items):
        return ("list", [_meaning(item, ()) for item in node.items])
    if node.kind == "null" and without:
        return None
    return (node.kind, node.text, getattr(node, "value", None))


def _rest(way: tuple[str, ...], key: str) -> tuple[str, ...]:
    return way[1:] if way and way[0] == key else ()


def _plain(node: Node) -> Any:
    if isinstance(node, Table):
        return {key.text: _plain(value) for key, value in node.entries}
    if isinstance(node, Items):
        return [_plain(item) for item in node.items]
    return node.text == "true" if node.kind == "boolean" else node.text if node.kind == "text" else node


def check_reads_as_meant(file: ConfigText, path: tuple[str, ...], body: Body, server: NewServer) -> None:
    """Raises CannotEdit where the program whose file this is would take something else from the entry than we would
    from the same words: programs differ in what they take for a reference, and some have no defaults.

    Every variable that may be meant has a value here, as it may be set where the entry is used.
    """
    names = {name for text in server.texts() for name in _NAME.findall(text)} - OF_EDITORS
    environ = {name: f"value-of-{name}" for name in names} | dict(file.environ)
    ours = file.path.with_name("trunkline.json")
    meant = _texts_of(
        ConfigText(ours, _alone(ours, ("mcpServers",), server.name, as_client(server)), environ, file.kinds)
    )
    read = _texts_of(ConfigText(file.path, _alone(file.path, path, server.name, body), environ, file.kinds))
    if meant is not None and read is not None and meant != read:
        raise CannotEdit("the program whose file this is reads `$` or braces in it differently")


def _alone(path: Path, way: tuple[str, ...], name: str, body: Body) -> str:
    """A file with this entry and nothing else."""
    if path.suffix.lower() == ".toml":
        return "\n".join(table_lines(way[0], name, body))
    value: Body = {name: body}
    for key in reversed(way):
        value = {key: value}
    return dumps(value)


def _texts_of(file: ConfigText) -> dict[str, Any] | None:
    """What is given to the one server of a file; None where it cannot be read."""
    settings = file.load().settings
    section = None if settings is None else next(iter(settings.sources.values()), None)
    if section is None or isinstance(section, Unready):
        return None
    texts = {name: getattr(section, name, None) for name in _TEXTS}
    passed_on: tuple[str, ...] = getattr(section, "inherit_env", ())
    return texts | {"env": {name: file.environ.get(name) for name in passed_on} | dict(texts["env"] or {})}


def problems_of_entry(loaded: Loaded, text: str, start: int, end: int) -> list[FileProblem]:
    """The problems whose place is between two places of the text."""
    first, last = place_of(text, start)[:2], place_of(text, end)[:2]
    return [problem for problem in loaded.problems if problem.span is not None and first <= problem.span[:2] <= last]


def check_no_new_errors(before: Loaded, after: Loaded, of_entry: Iterable[FileProblem]) -> None:
    """Raises GatewayError where the file has errors now that it did not have."""
    own = list(of_entry)
    for problem in own:
        if problem.severity == "error":
            raise GatewayError(Problem(code=problem.code, message=problem.message, hint=problem.hint))
    elsewhere = [problem for problem in after.problems if problem not in own]
    more = _errors(elsewhere) - _errors(before.problems)
    for problem in elsewhere:
        if problem.severity == "error" and problem.code.id in more:
            raise CannotEdit(f"the file would no longer load: {problem.message}")


def _errors(problems: Iterable[FileProblem]) -> Counter[str]:
    return Counter(problem.code.id for problem in problems if problem.severity == "error")


def check_other_servers(before: Loaded, after: Loaded, changed: set[str]) -> None:
    """Raises CannotEdit where a server that was not to be touched comes, goes or changes."""
    if before.settings is None or after.settings is None:
        return
    old, new = before.settings.sources, after.settings.sources
    for name in (old.keys() | new.keys()) - changed:
        if old.get(name) != new.get(name):
            raise CannotEdit(f"the server `{name}` would change too")
