"""The `sources` of a file: each entry's name and kind, and the list all sources end up in, whoever declared them."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from typing import Final

from trunkline.config.reader import Reader
from trunkline.config.report import Invalid
from trunkline.config.secrets import warn_about_secrets
from trunkline.config.section import read_section
from trunkline.config.sources import SourceSection, Unready
from trunkline.config.suggest import hint_for, listed
from trunkline.config.tree import Entry, Node, Scalar, Table
from trunkline.core.errors import BAD_NAME, BAD_VALUE, DUPLICATE_KEY, MISSING_KEY
from trunkline.core.names import RESERVED_SOURCE, is_source_name

Kinds = Mapping[str, Callable[[], type[SourceSection]]]
"""Each kind's name, and what loads its section: a kind is imported only when a file uses it."""

_KIND: Final = "kind"
_TELLING: Final = (
    ("command", "mcp_stdio"),
    ("url", "mcp_http"),
    ("listen", "app"),
    ("endpoint", "service"),
    ("root", "builtin"),
)
"""Keys that give away which kind was meant."""


class SourceList:
    """The sources found so far, in file order, and the names that are taken. `taken` are those of another file."""

    def __init__(self, reader: Reader, kinds: Kinds, taken: Container[str] = ()) -> None:
        self.found: dict[str, SourceSection] = {}
        self.kinds = kinds
        self._reader = reader
        self._taken = taken
        self._owners: dict[str, Scalar] = {}
        self._last_number: dict[str, int] = {}

    def reserve(self, entries: Iterable[Entry]) -> None:
        """Names as they are written go first: a name made up for another entry keeps clear of them."""
        for name, _ in entries:
            if is_source_name(name.text) and name.text != RESERVED_SOURCE:
                self._owners.setdefault(name.text, name)

    def free_name(self, base: str) -> str:
        """`base`, or `base` with the first number that makes it a name no source has."""
        name = base
        while name in self._owners or name in self._taken or name == RESERVED_SOURCE:
            self._last_number[base] = self._last_number.get(base, 1) + 1
            name = f"{base}_{self._last_number[base]}"
        return name

    def release(self, node: Scalar) -> None:
        """The entry at `node` is not used, so its name is free again."""
        if self._owners.get(node.text) is node:
            del self._owners[node.text]

    def claim(self, name: str, node: Scalar) -> None:
        """Take a name for the entry at `node`; raises Invalid where another entry has it."""
        owner = self._owners.setdefault(name, node)
        if owner is not node:
            message = f"The source `{name}` is given twice; the first is on line {owner.span.line}"
            raise self._reader.error(DUPLICATE_KEY, node, message, "rename one of them")

    def add(self, name: str, kind: str, at: Scalar, table: Table, *, enabled: bool) -> None:
        """Read one source's section and keep it. Raises Invalid where it cannot be used.

        One that only lacks something (a variable, a file) is kept as one that is not ready.
        """
        reader = self._reader
        warn_about_secrets(table, reader)
        errors_before = reader.report.errors
        section: SourceSection | None = None
        try:
            declared = self.kinds[kind]()
            presets = {"prefix": declared.default_prefix(name)}
            section = read_section(declared, table, reader, at=at, also_known=(_KIND,), presets=presets)
        except Invalid:
            if not reader.obstacles or reader.report.errors > errors_before:
                raise
        if section is None or reader.obstacles:
            obstacles = tuple(dict.fromkeys(reader.obstacles or ()))
            prefix = self._prefix(name, table)
            section = Unready(prefix=prefix, enabled=enabled, of_kind=kind, obstacles=obstacles)
        self.found[name] = section

    def _prefix(self, name: str, table: Table) -> str:
        """What a call of one of its tools begins with, as far as the file says it outright."""
        written = table.get("prefix")
        return written.text if isinstance(written, Scalar) and not self._reader.is_reference(written) else name


def read_sources(node: Node, reader: Reader, sources: SourceList) -> None:
    """Read the `sources` of a file into the list."""
    if isinstance(node, Scalar) and node.kind == "null":
        return
    if not isinstance(node, Table):
        reader.wrong_type(node, "a group of keys", "give each source a name, and its keys below")
        return
    for entry in node.entries:
        with reader.one_source():
            _read_source(entry, reader, sources)


def _read_source(entry: Entry, reader: Reader, sources: SourceList) -> None:
    if not isinstance(entry.value, Table):
        raise reader.wrong_type(entry.value, "a group of keys")
    named = _is_good_name(entry.key, reader)
    kind = _kind_of(entry.key, entry.value, reader, sources.kinds)
    if not named:
        raise Invalid
    sources.claim(entry.key.text, entry.key)
    enabled = reader.peek(entry.value.get("enabled")).lower() != "false"
    sources.add(entry.key.text, kind, entry.key, entry.value, enabled=enabled)


def _is_good_name(key: Scalar, reader: Reader) -> bool:
    if not is_source_name(key.text):
        reader.error(BAD_NAME, key, f"`{key.text}` is not a name: use letters, digits, `_` and `-`")
        return False
    if key.text == RESERVED_SOURCE:
        reader.error(BAD_NAME, key, f"The name `{RESERVED_SOURCE}` is reserved for the gateway's own tools")
        return False
    return True


def _kind_of(key: Scalar, table: Table, reader: Reader, kinds: Kinds) -> str:
    node = table.get(_KIND)
    if node is None:
        raise reader.error(MISSING_KEY, key, f"Missing key `{_KIND}`", _likely_kind(table, kinds))
    if not isinstance(node, Scalar) or node.kind != "text":
        raise reader.wrong_type(node, "the name of a kind", f"kinds: {listed(kinds)}")
    kind = node.text
    if kind not in kinds:
        raise reader.error(BAD_VALUE, node, f"Unknown kind `{kind}`", hint_for(kind, kinds, "kinds"))
    return kind


def _likely_kind(table: Table, kinds: Kinds) -> str:
    for key, kind in _TELLING:
        if table.get(key) is not None:
            return f"add `kind: {kind}`"
    return f"kinds: {listed(kinds)}"
