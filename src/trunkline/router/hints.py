"""What servers say of tools and results: whether they only read, and whether, how long and for whom they hold.

Whatever cannot be read for sure counts as not said.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from trunkline.core.call import Json
from trunkline.core.tool import Tool
from trunkline.protocol.jsonrpc import BadMessage, encode_members, members_of
from trunkline.router.options import CacheRules

LARGEST_BYTES: Final = 1024 * 1024
_LONGEST_TTL_MS: Final = 2.0**53

Use = Literal["keep", "read", "write"]


class _Annotations(msgspec.Struct, rename="camel"):
    read_only_hint: bool = False


class _Definition(msgspec.Struct):
    annotations: _Annotations | None = None


@lru_cache(maxsize=4096)
def use_of(tool: Tool, rules: CacheRules) -> Use:
    """What a call of the tool means to the cache: its result is kept, it only reads, or it may change something."""
    if rules.vouches_for(tool.name):
        return "keep"
    if not says_read_only(tool.definition):
        return "write"
    return "keep" if rules.names(tool.name) else "read"


def says_read_only(definition: bytes) -> bool:
    try:
        annotations = msgspec.json.decode(definition, type=_Definition).annotations
    except (msgspec.MsgspecError, RecursionError):
        return False
    return annotations is not None and annotations.read_only_hint


class ResultHints(msgspec.Struct, rename="camel"):
    is_error: bool = False
    result_type: str = "complete"
    ttl_ms: float | UnsetType = UNSET
    cache_scope: str = "private"

    @property
    def own_ttl_ms(self) -> float | None:
        return None if self.ttl_ms is UNSET else min(self.ttl_ms, _LONGEST_TTL_MS)

    @property
    def is_public(self) -> bool:
        return self.cache_scope == "public"


def lasting_hints(raw: Json) -> ResultHints | None:
    """What a result says of itself; None for one that may not be given a second time."""
    if len(raw) > LARGEST_BYTES:
        return None
    try:
        hints = msgspec.json.decode(raw, type=ResultHints)
        if hints.ttl_ms is not UNSET:
            members_of(bytes(raw), "result")  # `with_ttl` will have to write it again
    except (msgspec.MsgspecError, BadMessage, RecursionError):
        return None
    passing = hints.ttl_ms is not UNSET and hints.ttl_ms <= 0
    return None if hints.is_error or hints.result_type != "complete" or passing else hints


def with_ttl(raw: bytes, ttl_ms: int) -> bytes:
    """The same result with another `ttlMs`."""
    return encode_members({**members_of(raw, "result"), "ttlMs": b"%d" % ttl_ms})
