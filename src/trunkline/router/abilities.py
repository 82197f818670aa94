"""What a server can do, read from the capabilities that it declared. Whatever cannot be read was not declared."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from trunkline.protocol.jsonrpc import BadMessage, Members, members_of

_NONE: Final[Members] = {}


@lru_cache(maxsize=1024)
def abilities(capabilities: bytes) -> Mapping[str, msgspec.Raw]:
    """The members of a server's `capabilities`, each value raw."""
    return _members(capabilities)


@lru_cache(maxsize=1024)
def announces_changes(capabilities: bytes, ability: str) -> bool:
    """Whether the server says by itself when its list of this changes."""
    return bytes(_members(abilities(capabilities).get(ability, b"{}")).get("listChanged", b"")) == b"true"


@lru_cache(maxsize=1024)
def extensions_of(capabilities: bytes) -> Mapping[str, msgspec.Raw]:
    return _members(abilities(capabilities).get("extensions", b"{}"))


class LegacyTasks(NamedTuple):
    """What a server of 2025-11-25 says of tasks: whether tools can be run as such, and whether those can be stopped."""

    run_tools: bool
    cancel: bool


@lru_cache(maxsize=1024)
def tasks_of(capabilities: bytes) -> LegacyTasks:
    tasks = _members(abilities(capabilities).get("tasks", b"{}"))
    tools = _members(_members(tasks.get("requests", b"{}")).get("tools", b"{}"))
    return LegacyTasks(run_tools="call" in tools, cancel="cancel" in tasks)


def _members(raw: bytes | msgspec.Raw) -> Members:
    try:
        return members_of(raw, "capabilities")
    except BadMessage:
        return _NONE
