"""What a server can do, read from the capabilities that it declared. Whatever cannot be read was not declared."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import msgspec

from trunkline.wire.jsonrpc import BadMessage, Members, members_of

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


def _members(raw: bytes | msgspec.Raw) -> Members:
    try:
        return members_of(raw, "capabilities")
    except BadMessage:
        return _NONE
