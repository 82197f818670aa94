"""Gives tools and prompts the names that callers see, and builds the table of every spelling they are found by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Final, Generic, Protocol, TypeVar

from trunkline.core.errors import NAME_COLLISION, Problem
from trunkline.core.names import exposed_name, spellings, was_altered, without_own_prefix
from trunkline.router.options import NameRules

PREFIXED: Final = "prefixed"


class Named(Protocol):
    """A tool or prompt with its source's own name for it. `exposed` stays None if another has its name."""

    exposed: str | None

    @property
    def source(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def aliases(self) -> tuple[str, ...]: ...


N = TypeVar("N", bound=Named)


@dataclass(frozen=True, slots=True)
class Naming:
    """How exposed names are formed: the style, the maximum length, and the rules of each source."""

    style: str
    max_name: int
    rules: Mapping[str, NameRules]

    def wanted(self, entry: Named, shown: str, *, force_hash: bool = False) -> str:
        address = f"{entry.source}.{entry.name}"
        return exposed_name(self._prefix_of(entry), shown, address, self.max_name, force_hash=force_hash)

    def alters(self, entry: Named, shown: str) -> bool:
        return was_altered(self._prefix_of(entry), shown)

    def arrival(self, entry: Named) -> int:
        return self.rules[entry.source].arrival

    def _prefix_of(self, entry: Named) -> str:
        return self.rules[entry.source].prefix if self.style == PREFIXED else ""


@dataclass(frozen=True, slots=True)
class Names(Generic[N]):
    """Entries by every accepted spelling, and the name collisions."""

    table: dict[str, N]
    collisions: tuple[Problem, ...]

    def find(self, name: str) -> N | None:
        entry = self.table.get(name)
        return entry if entry is not None else self.table.get(without_own_prefix(name))


def give_names(naming: Naming, entries: list[N], shown: Callable[[N], str], hint: str) -> Names[N]:
    """Set the exposed name of each entry: first of configured sources, in order, then of apps as they arrived. `shown`
    gives the name of an entry without the prefix. `hint` is for collisions; `{}` stands for the source."""
    taken: dict[str, N] = {}
    collisions: list[Problem] = []
    in_turn = sorted(entries, key=naming.arrival)
    for _, group in groupby(in_turn, naming.arrival):
        together = list(group)
        wanted = [naming.wanted(entry, shown(entry)) for entry in together]
        # entries of earlier groups keep their names
        shared = {name for name, times in Counter(wanted).items() if times > 1 or name in taken}
        for entry, name in zip(together, wanted, strict=True):
            hashed = name in shared and naming.alters(entry, shown(entry))
            exposed = naming.wanted(entry, shown(entry), force_hash=True) if hashed else name
            holder = taken.setdefault(exposed, entry)
            if holder is entry:
                entry.exposed = exposed
            else:
                losing, holding = (f"{each.source}.{each.name}" for each in (entry, holder))
                problem = Problem(
                    code=NAME_COLLISION,
                    severity="warning",
                    message=f"`{losing}` is not exposed as `{exposed}`: the name belongs to `{holding}`",
                    hint=hint.format(entry.source),
                    source=entry.source,
                    tool=entry.name,
                )
                collisions.append(problem)
    return Names(_lookup_table(in_turn, taken), tuple(collisions))


def _lookup_table(entries: list[N], taken: dict[str, N]) -> dict[str, N]:
    """Exposed names win over addresses, those over the other spellings, and those over unambiguous bare names."""
    table: dict[str, N] = {}
    bare: dict[str, N | None] = {}
    for entry in entries:
        name = entry.name
        bare[name] = None if name in bare else entry
        for spelling in (*reversed(spellings(entry.source, name)), *entry.aliases):
            table.setdefault(spelling, entry)
    for entry in entries:
        table[f"{entry.source}.{entry.name}"] = entry
    table.update(taken)
    for name, entry in bare.items():
        if entry is not None:
            table.setdefault(name, entry)
    return table
