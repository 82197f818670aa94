"""Builds and parses names: of sources, tool addresses (`source.tool`), exposed tool names and their other spellings.

No other module does, so that a name means the same everywhere.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

SOURCE_NAME: Final = re.compile(r"[A-Za-z0-9_-]+\Z")
RESERVED_SOURCE: Final = "trunkline"
_NOT_EXPOSABLE: Final = re.compile(r"[^A-Za-z0-9_-]")
_NOT_IN_PATTERN: Final = re.compile(r"[^A-Za-z0-9_*?\[\]!-]")
_HASH_LENGTH: Final = 6
_OWN_PREFIXES: Final = ("trunkline.", "toolhive-gateway.")


def is_source_name(name: str) -> bool:
    return SOURCE_NAME.match(name) is not None


def slug(name: str) -> str:
    """Make a source name from any text; never empty."""
    return _NOT_EXPOSABLE.sub("_", name).strip("_") or "server"


def slug_pattern(pattern: str) -> str:
    """Turn a glob pattern for texts into one for the source names that `slug` makes of them."""
    return _NOT_IN_PATTERN.sub("_", pattern).strip("_") or pattern


def split_address(address: str) -> tuple[str, str] | None:
    """Split `source.tool` at the first dot: `a.b.c` is tool `b.c` of source `a`. None if it is no address."""
    source, dot, tool = address.partition(".")
    return (source, tool) if dot and source and tool else None


def without_own_prefix(name: str) -> str:
    for prefix in _OWN_PREFIXES:
        if name.startswith(prefix):
            return name[len(prefix) :]
    return name


def exposed_name(prefix: str, tool: str, address: str, max_length: int, *, force_hash: bool = False) -> str:
    """`prefix_tool` in characters every model API takes, cut to `max_length` with a hash of the address when needed.

    `force_hash` is for two names that would be equal only because characters were replaced.
    """
    full = f"{prefix}_{tool}" if prefix else tool
    safe = _NOT_EXPOSABLE.sub("_", full)
    if len(safe) <= max_length and not force_hash:
        return safe
    digest = hashlib.sha256(address.encode()).hexdigest()[:_HASH_LENGTH]
    return f"{safe[: max_length - _HASH_LENGTH - 1]}_{digest}"


def was_altered(prefix: str, tool: str) -> bool:
    """Whether the exposed form of this name differs from plain `prefix_tool`."""
    return _NOT_EXPOSABLE.search(f"{prefix}_{tool}" if prefix else tool) is not None


def spellings(source: str, tool: str) -> tuple[str, ...]:
    """The ways a caller may write a tool besides its exposed name and its bare name."""
    return (f"{source}.{tool}", f"{source}_{tool}", f"{source}__{tool}", f"{source}:{tool}")


def names_source(name: str, source: str, prefix: str) -> bool:
    """Whether a tool or prompt of this name would belong to this source, in any accepted spelling."""
    bare = without_own_prefix(name)
    return bare.startswith((f"{source}.", f"{source}_", f"{source}:", f"{prefix or source}_"))
