"""Gives tools and prompts the names that callers see, and builds the table of every spelling they are found by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final, Generic, TypeVar

from trunkline.core.errors import NAME_COLLISION, Problem
from trunkline.core.names import exposed_name, spellings, was_altered, without_own_prefix
from trunkline.router.options import NameRules

PREFIXED: Final = "prefixed"


@dataclass(slots=True)
class CatalogEntry:
    """A tool or prompt with its source's own name for it, and other names that callers may use. `exposed` is the name
    that callers see; it stays None if another entry has it."""

    source: str
    name: str
    aliases: tuple[str, ...]
    exposed: str | None = field(default=None, init=False)

    @property
    def address(self) -> str:
        return f"{self.source}.{self.name}"


E = TypeVar("E", bound=CatalogEntry)


@dataclass(frozen=True, slots=True)
class NamingScheme:
    """How exposed names are formed: the style, the maximum length, and the rules of each source."""

    style: str
    max_name: int
    rules: Mapping[str, NameRules]

    def wanted(self, entry: CatalogEntry, shown: str, *, force_hash: bool = False) -> str:
        return exposed_name(self._prefix_of(entry), shown, entry.address, self.max_name, force_hash=force_hash)

    def alters(self, entry: CatalogEntry, shown: str) -> bool:
        return was_altered(self._prefix_of(entry), shown)

    def arrival(self, entry: CatalogEntry) -> int:
        return self.rules[entry.source].arrival

    def _prefix_of(self, entry: CatalogEntry) -> str:
        return self.rules[entry.source].prefix if self.style == PREFIXED else ""


@dataclass(frozen=True, slots=True)
class NameTable(Generic[E]):
    """Entries by every accepted spelling, and the name collisions."""

    table: dict[str, E]
    collisions: tuple[Problem, ...]

    def find(self, name: str) -> E | None:
        entry = self.table.get(name)
        return entry if entry is not None else self.table.get(without_own_prefix(name))


def assign_names(scheme: NamingScheme, entries: list[E], shown: Callable[[E], str], hint: str) -> NameTable[E]:
    """Set the exposed name of each entry: first of configured sources, in order, then of apps as they arrived. `shown`
    gives the name of an entry without the prefix. `hint` is for collisions; `{}` stands for the source."""
    taken: dict[str, E] = {}
    collisions: list[Problem] = []
    in_turn = sorted(entries, key=scheme.arrival)
    for _, group in groupby(in_turn, scheme.arrival):
        together = list(group)
        wanted = [scheme.wanted(entry, shown(entry)) for entry in together]
        # entries of earlier groups keep their names
        shared = {name for name, times in Counter(wanted).items() if times > 1 or name in taken}
        for entry, name in zip(together, wanted, strict=True):
            hashed = name in shared and scheme.alters(entry, shown(entry))
            exposed = scheme.wanted(entry, shown(entry), force_hash=True) if hashed else name
            holder = taken.setdefault(exposed, entry)
            if holder is entry:
                entry.exposed = exposed
            else:
                message = f"`{entry.address}` is not exposed as `{exposed}`: the name belongs to `{holder.address}`"
                problem = Problem(
                    code=NAME_COLLISION,
                    severity="warning",
                    message=message,
                    hint=hint.format(entry.source),
                    source=entry.source,
                    tool=entry.name,
                )
                collisions.append(problem)
    return NameTable(_lookup_table(in_turn, taken), tuple(collisions))


def _lookup_table(entries: list[E], taken: dict[str, E]) -> dict[str, E]:
    """Exposed names win over addresses, those over the other spellings, and those over unambiguous bare names."""
    table: dict[str, E] = {}
    bare: dict[str, E | None] = {}
    for entry in entries:
        name = entry.name
        bare[name] = None if name in bare else entry
        for spelling in (*reversed(spellings(entry.source, name)), *entry.aliases):
            table.setdefault(spelling, entry)
    for entry in entries:
        table[entry.address] = entry
    table.update(taken)
    for name, entry in bare.items():
        if entry is not None:
            table.setdefault(name, entry)
    return table
