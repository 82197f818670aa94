"""The prompts of all servers under the names that callers see: the same rules as for tools."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Final

from trunkline.core.errors import Problem
from trunkline.core.tool import Item, Snapshot
from trunkline.protocol.jsonrpc import encode, encode_members, members_of
from trunkline.router.naming import Naming, give_names

_HINT: Final = "get it by its address, or set `prefix` for `{}`"


@dataclass(slots=True)
class PromptEntry:
    """One prompt as callers see it."""

    item: Item
    exposed: str | None = None

    @property
    def source(self) -> str:
        return self.item.source

    @property
    def name(self) -> str:
        return self.item.key

    @property
    def also(self) -> tuple[str, ...]:
        return ()


class Prompts:
    """What one version of the catalog has in prompts."""

    def __init__(self, naming: Naming, snapshots: Mapping[str, Snapshot], hidden: Set[str]) -> None:
        self._entries = [
            PromptEntry(item) for source in naming.rules if source in snapshots for item in snapshots[source].prompts
        ]
        self._names = give_names(naming, self._entries, _own_name, _HINT)
        self.listing = b"[%b]" % b",".join(self._definitions(hidden))
        """`prompts/list`'s array: every exposed definition, in the order of the file and of each server."""

    @property
    def collisions(self) -> tuple[Problem, ...]:
        return self._names.collisions

    def find(self, name: str) -> PromptEntry | None:
        """The prompt that a caller means, however it writes the name. Those of servers that are away are found too."""
        return self._names.find(name)

    def addresses_of(self, bare_name: str) -> list[str]:
        """Where prompts of this name are, for a caller who must choose."""
        return [f"{entry.source}.{entry.name}" for entry in self._entries if entry.name == bare_name]

    def _definitions(self, hidden: Set[str]) -> Iterable[bytes]:
        for entry in self._entries:
            if entry.exposed is not None and entry.source not in hidden:
                yield _renamed(entry.item, entry.exposed)


def _own_name(entry: PromptEntry) -> str:
    return entry.name


def _renamed(item: Item, exposed: str) -> bytes:
    """The server's definition under our name; everything else byte for byte."""
    if item.key == exposed:
        return item.definition
    return encode_members({**members_of(item.definition, "prompt"), "name": encode(exposed)})
