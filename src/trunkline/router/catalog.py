"""The names callers use, and the tools behind them. Sources replace their whole snapshot; the catalog is rebuilt.

Rebuilding a thousand tools takes a few milliseconds, so it waits until somebody looks: fifty servers that come up
together cost one rebuild. Looking up and listing are then a dictionary access and a ready-made piece of bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from trunkline.core.errors import NAME_COLLISION, Problem
from trunkline.core.names import exposed_name, spellings, was_altered, without_own_prefix
from trunkline.core.tool import Snapshot, Tool
from trunkline.router.options import NameRules
from trunkline.wire.jsonrpc import encode, encode_members, members_of

PREFIXED: Final = "prefixed"


@dataclass(slots=True)
class Entry:
    """One tool as callers see it."""

    tool: Tool
    exposed: str | None
    params_head: bytes
    """The start of `tools/call` parameters for the source: its own name for the tool, already encoded."""


class Catalog:
    def __init__(self, naming: str, max_name: int, on_change: Callable[[], None]) -> None:
        self._naming = naming
        self._max_name = max_name
        self._on_change = on_change
        self._rules: dict[str, NameRules] = {}
        self._snapshots: dict[str, Snapshot] = {}
        self._hidden: set[str] = set()
        self._entries: list[Entry] = []
        self._table: dict[str, Entry] = {}
        self._collisions: tuple[Problem, ...] = ()
        self._listing = b"[]"
        self._version = 0
        self._built_version = 0

    # -- what sources say -----------------------------------------------------------------------------------------

    def add_source(self, source: str, rules: NameRules) -> None:
        """A new source, or other rules for one that is there."""
        if self._rules.get(source) != rules:
            self._rules = {**self._rules, source: rules}
            if source in self._snapshots:
                self._changed()

    def remove_source(self, source: str) -> None:
        self._rules = {name: rules for name, rules in self._rules.items() if name != source}
        self._snapshots.pop(source, None)
        self._hidden.discard(source)
        self._changed()

    def reorder(self, order: Iterable[str]) -> None:
        """List the sources in this order; it also decides who keeps a name that two tools want."""
        rules = {name: self._rules[name] for name in order if name in self._rules}
        rules |= {name: self._rules[name] for name in self._rules if name not in rules}
        if list(rules) != list(self._rules):
            self._rules = rules
            self._changed()

    def rename(self, naming: str, max_name: int) -> None:
        """Make names another way from now on."""
        if (naming, max_name) != (self._naming, self._max_name):
            self._naming, self._max_name = naming, max_name
            self._changed()

    def replace(self, source: str, snapshot: Snapshot | None) -> None:
        """What a source offers now; None while that is not known."""
        if self._snapshots.get(source) == snapshot:
            return
        if snapshot is None:
            del self._snapshots[source]
        else:
            self._snapshots[source] = snapshot
        self._changed()

    def hide(self, source: str, hidden: bool) -> None:
        """Leave a source's tools out of the list; a call by name still finds them, to say what is wrong."""
        if (source in self._hidden) != hidden:
            (self._hidden.add if hidden else self._hidden.discard)(source)
            self._changed()

    def _changed(self) -> None:
        self._version += 1
        self._on_change()

    @property
    def version(self) -> int:
        """Goes up with every change."""
        return self._version

    def overlaid(self, snapshots: Mapping[str, Snapshot]) -> Catalog:
        """This catalog as it is now, with some sources offering something else."""
        catalog = Catalog(self._naming, self._max_name, _nobody_cares)
        catalog._rules = self._rules
        catalog._hidden = self._hidden
        catalog._snapshots = {**self._snapshots, **snapshots}
        catalog._version = 1
        return catalog

    def snapshot(self, source: str) -> Snapshot | None:
        return self._snapshots.get(source)

    # -- what callers ask -----------------------------------------------------------------------------------------

    def find(self, name: str) -> Entry | None:
        if self._built_version != self._version:
            self._rebuild()
        entry = self._table.get(name)
        return entry if entry is not None else self._table.get(without_own_prefix(name))

    def addresses_of(self, bare_name: str) -> list[str]:
        """Where tools of this name are, in the order of the list, for a caller who must choose."""
        return [
            tool.address
            for source, rules in self._rules.items()
            if source in self._snapshots and rules.shows(bare_name)
            for tool in self._snapshots[source].tools
            if tool.name == bare_name
        ]

    def sources_that_may_have(self, name: str) -> list[str]:
        """Sources whose naming fits, for a name that is not known (yet)."""
        bare = without_own_prefix(name)
        return [
            source
            for source, rules in self._rules.items()
            if bare.startswith((f"{source}.", f"{source}_", f"{source}:", f"{rules.prefix}_"))
            or self._naming != PREFIXED
            or not rules.prefix
        ]

    def entries(self) -> list[Entry]:
        """Every tool there is, in the order of the list, also those without a name of their own."""
        if self._built_version != self._version:
            self._rebuild()
        return [entry for entry in self._entries if entry.tool.source not in self._hidden]

    @property
    def listing(self) -> bytes:
        """`tools/list`'s array: every exposed definition, in the order of the file and of each server."""
        if self._built_version != self._version:
            self._rebuild()
        return self._listing

    @property
    def collisions(self) -> tuple[Problem, ...]:
        if self._built_version != self._version:
            self._rebuild()
        return self._collisions

    # -- building -------------------------------------------------------------------------------------------------

    def _rebuild(self) -> None:
        entries = [entry for source in self._rules for entry in self._entries_of(source)]
        taken = self._expose(entries)
        self._entries = entries
        self._table = _lookup_table(entries, taken)
        self._listing = b"[%b]" % b",".join(self._definitions(entries))
        self._built_version = self._version

    def _entries_of(self, source: str) -> Iterable[Entry]:
        snapshot, rules = self._snapshots.get(source), self._rules[source]
        for tool in snapshot.tools if snapshot else ():
            if rules.shows(tool.name):
                yield Entry(tool, None, b'{"name":%b' % encode(tool.name))

    def _expose(self, entries: list[Entry]) -> dict[str, Entry]:
        """Give out exposed names, first come first served in the order of the file."""
        wanted = [self._wanted_name(entry, force_hash=False) for entry in entries]
        shared = {name for name, times in Counter(wanted).items() if times > 1}
        taken: dict[str, Entry] = {}
        collisions: list[Problem] = []
        for entry, name in zip(entries, wanted, strict=True):
            exposed = self._wanted_name(entry, force_hash=True) if name in shared and self._altered(entry) else name
            holder = taken.setdefault(exposed, entry)
            if holder is entry:
                entry.exposed = exposed
            else:
                collisions.append(_collision(entry, holder, exposed))
        self._collisions = tuple(collisions)
        return taken

    def _prefix_of(self, entry: Entry) -> str:
        return self._rules[entry.tool.source].prefix if self._naming == PREFIXED else ""

    def _shown_name(self, entry: Entry) -> str:
        return self._rules[entry.tool.source].rename.get(entry.tool.name, entry.tool.name)

    def _wanted_name(self, entry: Entry, *, force_hash: bool) -> str:
        prefix, tool = self._prefix_of(entry), self._shown_name(entry)
        return exposed_name(prefix, tool, entry.tool.address, self._max_name, force_hash=force_hash)

    def _altered(self, entry: Entry) -> bool:
        return was_altered(self._prefix_of(entry), self._shown_name(entry))

    def _definitions(self, entries: list[Entry]) -> Iterable[bytes]:
        for entry in entries:
            if entry.exposed is not None and entry.tool.source not in self._hidden:
                yield _renamed(entry.tool, entry.exposed)


def _nobody_cares() -> None:
    """A view is made anew when what it is made from changes."""


def _renamed(tool: Tool, exposed: str) -> bytes:
    """The server's definition under our name; everything else byte for byte."""
    if tool.name == exposed:
        return tool.definition
    members = members_of(tool.definition, "tool")
    return encode_members({**members, "name": encode(exposed)})


def _lookup_table(entries: list[Entry], taken: dict[str, Entry]) -> dict[str, Entry]:
    """Every accepted spelling. Exposed names win, then addresses, then the other spellings, then unique bare names."""
    table: dict[str, Entry] = {}
    bare: dict[str, Entry | None] = {}
    for entry in entries:
        name = entry.tool.name
        bare[name] = None if name in bare else entry
        for spelling in reversed(spellings(entry.tool.source, name)):
            table.setdefault(spelling, entry)
    for entry in entries:
        table[entry.tool.address] = entry
    table.update(taken)
    for name, entry in bare.items():
        if entry is not None:
            table.setdefault(name, entry)
    return table


def _collision(loser: Entry, holder: Entry, exposed: str) -> Problem:
    return Problem(
        code=NAME_COLLISION,
        severity="warning",
        message=f"`{loser.tool.address}` wants the name `{exposed}`, which `{holder.tool.address}` holds",
        hint=f"call it by its address, or set `prefix` or `tools.rename` for `{loser.tool.source}`",
        source=loser.tool.source,
        tool=loser.tool.name,
    )
