"""The keys every source has, whatever its kind. A kind adds its own by inheriting from SourceSection."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from trunkline.config.section import Inner, Places, Section, key
from trunkline.config.shapes import Boolean, Choice, ListOf, MapOf, Seconds, Text
from trunkline.core.errors import BAD_VALUE, Problem
from trunkline.core.names import SOURCE_NAME

NOTHING: Final[Mapping[str, Any]] = {}
ONE_DAY_S: Final = 86_400.0
_ROUTERS_OWN: Final = ("prefix", "timeout", "grace", "tools", "guard", "cache")
_NEW_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}\Z")


def _wrong_with_prefix(prefix: str) -> str | None:
    if not prefix or SOURCE_NAME.match(prefix):
        return None
    return "A prefix is made of letters, digits, `_` and `-`"


def _wrong_with_tool_name(name: str) -> str | None:
    return None if name else "A tool's name cannot be empty"


def _wrong_with_new_name(name: str) -> str | None:
    return None if _NEW_NAME.match(name) else "A tool's name has 1 to 128 letters, digits, `_`, `-` and `.`"


class ToolSelection(Section):
    """Which tools of a source are shown, under which names and with which deadlines."""

    allow: tuple[str, ...] = key(
        ListOf(Text(may_be_empty=False)), default=("*",), doc="Patterns of the tools to show; `*` matches any text"
    )
    deny: tuple[str, ...] = key(
        ListOf(Text(may_be_empty=False)), default=(), doc="Patterns of the tools to hide; they win over `allow`"
    )
    rename: Mapping[str, str] = key(
        MapOf(Text(check=_wrong_with_new_name), check_name=_wrong_with_tool_name),
        default=NOTHING,
        doc="Other names for tools: the server's name, then ours",
    )
    timeouts: Mapping[str, float] = key(
        MapOf(Seconds(maximum=ONE_DAY_S), check_name=_wrong_with_tool_name),
        default=NOTHING,
        doc="Seconds a call of one tool may take, where they differ from the source's `timeout`",
    )

    @classmethod
    def check(cls, values: Mapping[str, Any], places: Places) -> None:
        new_names: dict[str, str] = {}
        for old, new in values.get("rename", NOTHING).items():
            first = new_names.setdefault(new, old)
            if first != old:
                message = f"`{first}` and `{old}` cannot both be renamed to `{new}`"
                places.reader.error(BAD_VALUE, places.of("rename", old), message)


class Guard(Section):
    """Checks on the arguments of calls."""

    path_traversal: bool = key(
        Boolean(), default=False, doc="Refuse path traversal: arguments that lead out of a folder with `..`"
    )


class Cache(Section):
    """Which results may be given again without asking the server. None are, unless tools are named here."""

    tools: tuple[str, ...] = key(
        ListOf(Text(may_be_empty=False)),
        default=(),
        doc="Patterns of the tools whose results are kept, if the server says that they only read (`readOnlyHint`)",
    )
    ttl: float = key(
        Seconds(maximum=ONE_DAY_S), default=60.0, doc="Seconds a result is kept, unless its own `ttlMs` is shorter"
    )
    assume_read_only: tuple[str, ...] = key(
        ListOf(Text(may_be_empty=False)),
        default=(),
        doc="Patterns of tools whose results are kept although the server does not say so: you know they only read",
        formerly="vouched",
    )


class SourceSection(Section):
    """What all kinds of source have in common. `kind` is the kind's name in the table and in the file."""

    kind: ClassVar[str] = ""
    default_timeouts: ClassVar[Mapping[str, float]] = NOTHING
    """Seconds that calls of single tools may take, where the file does not say."""
    only_by_name: ClassVar[frozenset[str]] = frozenset()
    """Tools that are offered only where `tools.allow` has their very name: no pattern stands for them."""

    enabled: bool = key(Boolean(), default=True, doc="`false` leaves the source out without deleting it")
    prefix: str = key(
        Text(check=_wrong_with_prefix),
        default="",
        doc="What stands before the names of its tools; its name if not given",
    )
    timeout: float = key(Seconds(maximum=ONE_DAY_S), default=60.0, doc="Seconds a call may take without progress")
    connect_timeout: float = key(Seconds(maximum=600.0), default=5.0, doc="Seconds one connection attempt may take")
    start_timeout: float = key(
        Seconds(maximum=3600.0), default=60.0, doc="Seconds from starting the server to the end of its handshake"
    )
    grace: float = key(
        Seconds(maximum=ONE_DAY_S, zero=True), default=60.0, doc="Seconds its tools stay listed after it went down"
    )
    tools: ToolSelection = key(Inner(ToolSelection), default=ToolSelection(), doc="Which tools are shown, and how")
    sessions: str = key(
        Choice("per_client", "shared"),
        default="per_client",
        doc="Whether each client has a server of its own; `shared` suits servers that keep no state",
    )
    guard: Guard = key(Inner(Guard), default=Guard(), doc="Checks on the arguments of calls")
    cache: Cache = key(
        Inner(Cache),
        default=Cache(),
        doc="Which results the same caller may be given again, also while the server is down, until they are too old "
        "or a call of a tool that does not only read has been made",
    )

    @classmethod
    def default_prefix(cls, name: str) -> str:
        """What stands before its tools' names where the file does not say."""
        return name

    def connection(self) -> SourceSection:
        """This section with everything left out that matters to the router alone."""
        return self.replace(**{name: self.declared[name].default for name in _ROUTERS_OWN})

    def lacks(self, environ: Mapping[str, str]) -> Problem | None:
        """What this machine lacks for it, as far as can be told without starting anything."""
        return None

    def same_connection(self, other: SourceSection) -> bool:
        """Whether a server that runs for the one is as good for the other."""
        return self.connection() == other.connection()


class Unready(SourceSection):
    """In place of a source that lacks something its file refers to. It is down, and says why, until that is there."""

    of_kind: str = key(Text(), doc="The kind it would be")
    obstacles: tuple[str, ...] = key(ListOf(Text()), doc="What it lacks")
