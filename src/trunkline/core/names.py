"""The only code that makes or takes apart names: sources, addresses, exposed tool names, and their other spellings."""

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
    """A source name made from any text; never empty."""
    return _NOT_EXPOSABLE.sub("_", name).strip("_") or "server"


def slug_pattern(pattern: str) -> str:
    """A pattern for source names made from one that was written for the texts they are made from."""
    return _NOT_IN_PATTERN.sub("_", pattern).strip("_") or pattern


def split_address(address: str) -> tuple[str, str] | None:
    """`source.tool` → its parts. The first dot ends the source, so `a.b.c` is tool `b.c` of source `a`."""
    source, dot, tool = address.partition(".")
    return (source, tool) if dot and source and tool else None


def without_own_prefix(name: str) -> str:
    for prefix in _OWN_PREFIXES:
        if name.startswith(prefix):
            return name[len(prefix) :]
    return name


def exposed_name(prefix: str, tool: str, address: str, max_length: int, *, force_hash: bool = False) -> str:
    """`prefix_tool` in characters every model API takes, cut to `max_length` with a hash of the address when needed.

    `force_hash` is for two names that fall together only because characters were replaced.
    """
    full = f"{prefix}_{tool}" if prefix else tool
    safe = _NOT_EXPOSABLE.sub("_", full)
    if len(safe) <= max_length and not force_hash:
        return safe
    digest = hashlib.sha256(address.encode()).hexdigest()[:_HASH_LENGTH]
    return f"{safe[: max_length - _HASH_LENGTH - 1]}_{digest}"


def was_altered(prefix: str, tool: str) -> bool:
    """Whether the exposed form of this name differs from the plain `prefix_tool`."""
    return _NOT_EXPOSABLE.search(f"{prefix}_{tool}" if prefix else tool) is not None


def spellings(source: str, tool: str) -> tuple[str, ...]:
    """The other ways a caller may write one tool, besides its exposed name and its bare name."""
    return (f"{source}.{tool}", f"{source}_{tool}", f"{source}__{tool}", f"{source}:{tool}")


def names_source(name: str, source: str, prefix: str) -> bool:
    """Whether a tool or prompt of this name would be this source's, however the caller writes it."""
    bare = without_own_prefix(name)
    return bare.startswith((f"{source}.", f"{source}_", f"{source}:", f"{prefix or source}_"))
