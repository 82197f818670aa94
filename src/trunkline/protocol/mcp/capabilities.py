"""Capabilities of clients and servers. Those of clients are normalised, so that equal ones can share a server."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from trunkline.protocol.jsonrpc import BadMessage, Members, encode_members, members_of
from trunkline.protocol.mcp.versions import LEGACY

NO_CAPABILITIES: Final = b"{}"
TASKS: Final = "io.modelcontextprotocol/tasks"
_MAX_BYTES: Final = 16 * 1024
_DECLARED: Final = ("elicitation", "experimental", "extensions", "roots", "sampling")
_ASKABLE: Final = frozenset({"elicitation", "roots", "sampling"})
_BEFORE_ELICITATION: Final = LEGACY[:2]


def declared(capabilities: bytes) -> bytes:
    """The capabilities of a client that are passed on to servers, in a fixed order. Raises BadMessage."""
    return _known(capabilities) if len(capabilities) <= _MAX_BYTES else NO_CAPABILITIES


@lru_cache(maxsize=512)  # stateless clients send them with every request
def _known(capabilities: bytes) -> bytes:
    members = members_of(capabilities, "`capabilities`")
    known = {name: msgspec.json.format(bytes(members[name]), indent=-1) for name in _DECLARED if name in members}
    return encode_members({name: value for name, value in known.items() if value.startswith(b"{")})


def declared_by_legacy(capabilities: bytes, version: str) -> bytes:
    """The same for a client from before 2026-07-28, which cannot support tasks of that version. Raises BadMessage."""
    members = members_of(declared(capabilities), "`capabilities`")
    if version in _BEFORE_ELICITATION:
        members.pop("elicitation", None)
    if TASKS not in extensions(encode_members(members)):
        return encode_members(members)
    others = members_of(members["extensions"], "`extensions`")
    del others[TASKS]
    return encode_members({**members, "extensions": encode_members(others)})


@lru_cache(maxsize=512)
def askable(capabilities: bytes) -> bytes:
    """The capabilities that allow servers to send requests to the client."""
    members = members_of(capabilities, "`capabilities`")
    return encode_members({name: value for name, value in members.items() if name in _ASKABLE})


@lru_cache(maxsize=512)
def extensions(capabilities: bytes) -> frozenset[str]:
    """The extensions that a client or a server declares."""
    try:
        return frozenset(members_of(members_of(capabilities, "`capabilities`")["extensions"], "`extensions`"))
    except (BadMessage, KeyError):
        return frozenset()


# -- capabilities of servers: whatever cannot be read counts as not declared ------------------------------------------

_NONE: Final[Members] = {}


@lru_cache(maxsize=1024)
def server_capabilities(capabilities: bytes) -> Mapping[str, msgspec.Raw]:
    """The members of a server's `capabilities`, each value raw."""
    return _members(capabilities)


@lru_cache(maxsize=1024)
def announces_changes(capabilities: bytes, ability: str) -> bool:
    """Whether the server sends a notification when this list of its own changes."""
    return bytes(_members(server_capabilities(capabilities).get(ability, b"{}")).get("listChanged", b"")) == b"true"


@lru_cache(maxsize=1024)
def server_extensions(capabilities: bytes) -> Mapping[str, msgspec.Raw]:
    return _members(server_capabilities(capabilities).get("extensions", b"{}"))


class LegacyTasks(NamedTuple):
    """The `tasks` capability of MCP 2025-11-25: whether tools can run as tasks, and whether tasks can be cancelled."""

    run_tools: bool
    cancel: bool


@lru_cache(maxsize=1024)
def legacy_tasks(capabilities: bytes) -> LegacyTasks:
    tasks = _members(server_capabilities(capabilities).get("tasks", b"{}"))
    tools = _members(_members(tasks.get("requests", b"{}")).get("tools", b"{}"))
    return LegacyTasks(run_tools="call" in tools, cancel="cancel" in tasks)


def _members(raw: bytes | msgspec.Raw) -> Members:
    try:
        return members_of(raw, "capabilities")
    except BadMessage:
        return _NONE
