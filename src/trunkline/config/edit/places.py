"""Where the servers stand in each kind of file, and in which words it describes one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal, NamedTuple

from trunkline.config.edit.new_server import (
    Body,
    NewServer,
    as_client,
    as_client_with_type,
    as_codex,
    as_gemini,
    as_opencode,
    as_source,
    as_vscode,
)
from trunkline.config.edit.outline import Member, Value
from trunkline.core.names import is_source_name, slug

Syntax = Literal["yaml", "json", "toml"]


class Place(NamedTuple):
    """A group of servers: the keys that lead to it, and how an entry of it is written."""

    path: tuple[str, ...]
    body: Callable[[NewServer], Body]

    @property
    def shown(self) -> str:
        return ".".join(self.path)


_OWN: Final = (Place(("mcpServers",), as_client), Place(("sources",), as_source))
_BY_DIALECT: Final = {
    "mcp_servers": (Place(("mcpServers",), as_client_with_type),),
    "gemini": (Place(("mcpServers",), as_gemini),),
    "vscode": (Place(("servers",), as_vscode), Place(("mcp", "servers"), as_vscode)),
    "opencode": (Place(("mcp",), as_opencode), Place(("mcp", "servers"), as_opencode)),
    "codex": (Place(("mcp_servers",), as_codex),),
}
"""By the names of `dialects`; a new server goes to the first place, unless only another one is there."""


class Servers(NamedTuple):
    """What a file has of servers: the places that are there, and where a new one goes."""

    places: tuple[Place, ...]
    for_new: Place


class Found(NamedTuple):
    """A server that is in the file."""

    place: Place
    member: Member


def syntax_of(path: Path) -> Syntax:
    suffix = path.suffix.lower()
    if suffix == ".toml":
        return "toml"
    return "json" if suffix in (".json", ".jsonc") else "yaml"


def places_in(root: Value, dialect: str | None) -> Servers:
    """The places of servers in a file of this client, or of our own."""
    if dialect is None:
        return Servers(_OWN, _OWN[0])
    first, *others = _BY_DIALECT[dialect]
    for deeper in others:
        # one level deeper: settings of VS Code, and the second version of OpenCode's file
        member = follow(root, deeper.path)
        if member is not None and member.value.get("type") is None:
            return Servers((deeper,), deeper)
    return Servers((first,), first)


def follow(root: Value, path: tuple[str, ...]) -> Member | None:
    """The member that this path of keys leads to."""
    member: Member | None = None
    for key in path:
        member = (root if member is None else member.value).get(key)
        if member is None:
            return None
    return member


def servers_in(root: Value, dialect: str | None) -> list[Found]:
    """Every server of the file."""
    holders = ((place, follow(root, place.path)) for place in places_in(root, dialect).places)
    return [Found(place, member) for place, holder in holders if holder is not None for member in holder.value.members]


def find_server(root: Value, dialect: str | None, name: str) -> Found | None:
    """The server of this name: as it is written, else as the name it goes by."""
    servers = servers_in(root, dialect)
    exact = (found for found in servers if found.member.key == name)
    renamed = (found for found in servers if source_name(found.member.key) == name)
    return next(exact, None) or next(renamed, None)


def source_name(key: str) -> str:
    """The name an entry's source goes by."""
    return key if is_source_name(key) else slug(key)
