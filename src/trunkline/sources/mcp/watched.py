"""One watched resource at its server: who watches it, on which lane, and what an update says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterator
from typing import Final

import msgspec

from trunkline.core.call import Call, Caller, Outcome
from trunkline.core.errors import Problem
from trunkline.core.source import ResourceWatch
from trunkline.protocol.jsonrpc import BadMessage, encode_members, members_of
from trunkline.protocol.mcp.modern import SUBSCRIPTION_ID
from trunkline.runtime.deadlines import Deadline
from trunkline.runtime.server_lifecycle import Backoff
from trunkline.sources.mcp.lane import Lane

_MOST_PARENTS: Final = 64
_NOTHING: Final = b"{}"

Home = Hashable
"""Which lane a caller's calls use: the same for callers that share one. None is the one that is always there."""


class Subscription:
    """One resource on one lane. `lane` is set while the server tells of it."""

    __slots__ = ("asking", "backoff", "caller", "home", "lane", "on_lost", "timer", "uri", "was_held", "watches")

    def __init__(self, home: Home, caller: Caller, uri: str) -> None:
        self.home = home
        self.caller = caller
        self.uri = uri
        self.watches: list[ResourceWatch] = []
        self.lane: Lane | None = None
        self.asking: Call | None = None
        self.was_held = False
        self.timer: Deadline | asyncio.TimerHandle | None = None
        self.on_lost: Callable[[asyncio.Future[Problem]], None] | None = None
        self.backoff = Backoff()

    @property
    def wanted(self) -> bool:
        return bool(self.watches)

    @property
    def waits_for_scout(self) -> bool:
        """Whether nobody else will see to it that it is asked for."""
        if self.asking is not None:
            return False
        return self.home is None if self.lane is None else not self.lane.usable

    def settle(self, outcome: Outcome) -> None:
        for watch in list(self.watches):
            watch.settle(outcome)

    def is_on(self, lane: Lane) -> bool:
        return self.lane is lane or (self.asking is not None and self.asking.upstream is lane)

    def quiet(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class Updated(msgspec.Struct):
    uri: str


def and_parents(uri: str) -> Iterator[str]:
    """A resource, and those that it may be a part of."""
    yield uri
    ends = [index for index, letter in enumerate(uri) if letter in "/?#"][-_MOST_PARENTS:]
    for end in ends:
        yield uri[:end]
        if end + 1 < len(uri):
            yield uri[: end + 1]


def without_subscription_id(params: bytes) -> bytes:
    """Which subscription it came by is between that server and us."""
    if SUBSCRIPTION_ID.encode() not in params:
        return params
    try:
        members = members_of(params, "`params`")
        meta = members_of(members.get("_meta", msgspec.Raw(_NOTHING)), "`_meta`")
        meta.pop(SUBSCRIPTION_ID, None)
        members.pop("_meta", None)
        if meta:
            members["_meta"] = msgspec.Raw(encode_members(meta))
        return encode_members(members)
    except BadMessage:
        return params
