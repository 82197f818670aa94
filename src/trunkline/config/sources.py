"""The keys that every source has (a kind adds its own in a subclass of SourceSection), and the sources of a file."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any, ClassVar, Final

from trunkline.config.problems import InvalidValue, hint_for, listed
from trunkline.config.reader import ConfigReader
from trunkline.config.secrets import warn_about_secrets
from trunkline.config.section import NestedSection, Section, SectionNodes, key, read_section
from trunkline.config.tree import Node, Scalar, Table, TableEntry
from trunkline.config.value_types import TEXTS, Boolean, Choice, ListOf, MapOf, Seconds, Text
from trunkline.core.errors import BAD_NAME, BAD_VALUE, DUPLICATE_KEY, MISSING_KEY, Problem
from trunkline.core.names import RESERVED_SOURCE, SOURCE_NAME, is_source_name

NOTHING: Final[Mapping[str, Any]] = {}
ONE_DAY_S: Final = 86_400.0
ROUTING_KEYS: Final = frozenset(("prefix", "timeout", "grace", "tools", "guard", "cache"))
"""Keys of every source that the router alone reads: a change to one of them replaces no server."""
_NEW_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}\Z")


def _check_prefix(prefix: str) -> str | None:
    if not prefix or SOURCE_NAME.match(prefix):
        return None
    return "A prefix consists of letters, digits, `_` and `-`"


def _check_tool_name(name: str) -> str | None:
    return None if name else "A tool's name cannot be empty"


def _check_new_name(name: str) -> str | None:
    return None if _NEW_NAME.match(name) else "A tool's name has 1 to 128 letters, digits, `_`, `-` and `.`"


class ToolSelection(Section):
    """Which tools of a source are shown, under which names and with which deadlines."""

    allow: tuple[str, ...] = key(TEXTS, default=("*",), doc="Patterns of the tools to show; `*` matches any text")
    deny: tuple[str, ...] = key(TEXTS, default=(), doc="Patterns of the tools to hide; they win over `allow`")
    rename: Mapping[str, str] = key(
        MapOf(Text(check=_check_new_name), check_name=_check_tool_name),
        default=NOTHING,
        doc="Renames tools: the server's name, then the new one",
    )
    timeouts: Mapping[str, float] = key(
        MapOf(Seconds(maximum=ONE_DAY_S), check_name=_check_tool_name),
        default=NOTHING,
        doc="Seconds a call of one tool may take, where they differ from the source's `timeout`",
    )

    @classmethod
    def check(cls, values: Mapping[str, Any], nodes: SectionNodes) -> None:
        new_names: dict[str, str] = {}
        for old, new in values.get("rename", NOTHING).items():
            first = new_names.setdefault(new, old)
            if first != old:
                message = f"`{first}` and `{old}` cannot both be renamed to `{new}`"
                nodes.reader.error(BAD_VALUE, nodes.of("rename", old), message)


class GuardSettings(Section):
    """Checks on the arguments of calls."""

    path_traversal: bool = key(
        Boolean(), default=False, doc="Refuse calls whose arguments contain path traversal (`..`)"
    )


class CacheSettings(Section):
    """Which results are cached; none are, unless tools are named here."""

    tools: tuple[str, ...] = key(
        TEXTS,
        default=(),
        doc="Patterns of the tools whose results are cached, if the server marks them as read-only (`readOnlyHint`)",
    )
    ttl: float = key(
        Seconds(maximum=ONE_DAY_S), default=60.0, doc="Seconds a result is cached, unless its own `ttlMs` is shorter"
    )
    assume_read_only: tuple[str, ...] = key(
        TEXTS,
        default=(),
        doc="Patterns of tools to cache although the server does not mark them: you know they are read-only",
        formerly="vouched",
    )


class SourceSection(Section):
    """The keys of all kinds of source. `kind` is the kind's name in the table of kinds and in the file."""

    kind: ClassVar[str] = ""
    default_timeouts: ClassVar[Mapping[str, float]] = NOTHING
    """Timeouts of single tools in seconds, where the file has none."""
    only_by_name: ClassVar[frozenset[str]] = frozenset()
    """Tools that are listed only if `tools.allow` has their exact name: no pattern matches them."""

    enabled: bool = key(Boolean(), default=True, doc="`false` leaves the source out without deleting it")
    prefix: str = key(
        Text(check=_check_prefix), default="", doc="The prefix of its tools' names; its own name if not given"
    )
    timeout: float = key(Seconds(maximum=ONE_DAY_S), default=60.0, doc="Seconds a call may take without progress")
    connect_timeout: float = key(Seconds(maximum=600.0), default=5.0, doc="Seconds one connection attempt may take")
    start_timeout: float = key(
        Seconds(maximum=3600.0), default=60.0, doc="Seconds from starting the server to the end of its handshake"
    )
    grace: float = key(
        Seconds(maximum=ONE_DAY_S, allow_zero=True),
        default=60.0,
        doc="Seconds its tools stay listed after it went down",
    )
    tools: ToolSelection = key(
        NestedSection(ToolSelection), default=ToolSelection(), doc="Which tools are shown, and how"
    )
    sessions: str = key(
        Choice("per_client", "shared"),
        default="per_client",
        doc="One server for each client, or one for all; `shared` suits servers that keep no state",
    )
    guard: GuardSettings = key(
        NestedSection(GuardSettings), default=GuardSettings(), doc="Checks on the arguments of calls"
    )
    cache: CacheSettings = key(
        NestedSection(CacheSettings),
        default=CacheSettings(),
        doc="Which results are cached for each caller, until they expire or a tool that is not read-only is called; "
        "they are returned even while the server is down",
    )

    @classmethod
    def default_prefix(cls, name: str) -> str:
        """The prefix of its tools' names if the file has none."""
        return name

    def connection(self) -> SourceSection:
        """This section without what matters to the router alone."""
        return self.replace(**{name: self.declared[name].default for name in ROUTING_KEYS})

    def lacks(self, environ: Mapping[str, str]) -> Problem | None:
        """What this machine lacks for the source, as far as that can be told without starting anything."""
        return None

    def same_connection(self, other: SourceSection) -> bool:
        """Whether a server started for one section can serve the other."""
        return self.connection() == other.connection()


class UnreadySource(SourceSection):
    """Stands in for a source that lacks something its file refers to, such as a variable, and is down until then."""

    of_kind: str = key(Text(), doc="The kind it would be")
    obstacles: tuple[str, ...] = key(ListOf(Text()), doc="What it lacks")


# -- the sources of a file: their names and kinds, and the list of all sources ---------------------------------------

SourceKinds = Mapping[str, Callable[[], type[SourceSection]]]
"""Each kind's name with a function that imports its section, as only the kinds that a file uses are imported."""

_KIND: Final = "kind"
_GUESSES: Final = {"command": "mcp_stdio", "url": "mcp_http", "listen": "app", "endpoint": "service", "root": "builtin"}
"""Keys that suggest a kind, for hints."""


class SourceList:
    """The sources read so far, in file order. `taken` are names of sources in another file."""

    def __init__(self, reader: ConfigReader, kinds: SourceKinds, taken: Container[str] = ()) -> None:
        self.found: dict[str, SourceSection] = {}
        self.kinds = kinds
        self.reader = reader
        self._taken = taken
        self._owners: dict[str, Scalar] = {}
        self._last_number: dict[str, int] = {}

    def reserve(self, entries: Iterable[TableEntry]) -> None:
        """Reserve the valid names of entries, so that names made up for other entries differ from them."""
        for name, _ in entries:
            if is_source_name(name.text) and name.text != RESERVED_SOURCE:
                self._owners.setdefault(name.text, name)

    def free_name(self, base: str) -> str:
        """`base`, with a number if the name is taken."""
        name = base
        while name in self._owners or name in self._taken or name == RESERVED_SOURCE:
            self._last_number[base] = self._last_number.get(base, 1) + 1
            name = f"{base}_{self._last_number[base]}"
        return name

    def release(self, node: Scalar) -> None:
        """Free the name of an entry that is not used."""
        if self._owners.get(node.text) is node:
            del self._owners[node.text]

    def claim(self, name: str, node: Scalar) -> None:
        """Take a name for an entry. Raises InvalidValue if another entry has it."""
        owner = self._owners.setdefault(name, node)
        if owner is not node:
            message = f"The source `{name}` is given twice; the first is on line {owner.span.line}"
            raise self.reader.error(DUPLICATE_KEY, node, message, "rename one of them")

    def add(self, name: str, kind: str, at: Scalar, table: Table) -> None:
        """Read a source's section and add it. Raises InvalidValue if it cannot be used.

        A source that only lacks something (a variable, a file) is added as an UnreadySource.
        """
        reader = self.reader
        warn_about_secrets(table, reader)
        errors_before = reader.report.errors
        section: SourceSection | None = None
        try:
            declared = self.kinds[kind]()
            presets = {"prefix": declared.default_prefix(name)}
            section = read_section(declared, table, reader, at=at, also_known=(_KIND,), presets=presets)
        except InvalidValue:
            if not reader.obstacles or reader.report.errors > errors_before:
                raise
        if section is None or reader.obstacles:
            obstacles = tuple(dict.fromkeys(reader.obstacles or ()))
            written = table.get("prefix")
            literal = isinstance(written, Scalar) and not reader.is_reference(written)
            prefix = written.text if isinstance(written, Scalar) and literal else name
            enabled = reader.peek(table.get("enabled")).lower() != "false"
            section = UnreadySource(prefix=prefix, enabled=enabled, of_kind=kind, obstacles=obstacles)
        self.found[name] = section


def read_entries(node: Node, reader: ConfigReader, noun: str, read_entry: Callable[[TableEntry, Table], None]) -> None:
    """Read each entry of a group of sources; an invalid one does not keep the others from being read."""
    if isinstance(node, Scalar) and node.kind == "null":
        return
    if not isinstance(node, Table):
        reader.wrong_type(node, "a mapping", f"give each {noun} a name, with its keys below it")
        return
    for entry in node.entries:
        with reader.reading_source():
            if not isinstance(entry.value, Table):
                raise reader.wrong_type(entry.value, "a mapping")
            read_entry(entry, entry.value)


def read_sources(node: Node, sources: SourceList) -> None:
    """Read the `sources` of a file into the list."""
    reader = sources.reader

    def read_source(entry: TableEntry, table: Table) -> None:
        key, invalid = entry.key, None
        if not is_source_name(key.text):
            invalid = reader.error(BAD_NAME, key, f"`{key.text}` is not a name: use letters, digits, `_` and `-`")
        elif key.text == RESERVED_SOURCE:
            invalid = reader.error(BAD_NAME, key, f"The name `{key.text}` is reserved for the gateway's own tools")
        kind = _kind_of(key, table, reader, sources.kinds)
        if invalid is not None:
            raise invalid
        sources.claim(key.text, key)
        sources.add(key.text, kind, key, table)

    read_entries(node, reader, "source", read_source)


def _kind_of(key: Scalar, table: Table, reader: ConfigReader, kinds: SourceKinds) -> str:
    node = table.get(_KIND)
    if node is None:
        likely = (f"add `kind: {kind}`" for name, kind in _GUESSES.items() if table.get(name) is not None)
        raise reader.error(MISSING_KEY, key, f"Missing key `{_KIND}`", next(likely, f"kinds: {listed(kinds)}"))
    if not isinstance(node, Scalar) or node.kind != "text":
        raise reader.wrong_type(node, "the name of a kind", f"kinds: {listed(kinds)}")
    kind = node.text
    if kind not in kinds:
        raise reader.error(BAD_VALUE, node, f"Unknown kind `{kind}`", hint_for(kind, kinds, "kinds"))
    return kind
