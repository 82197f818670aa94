"""The tools provisioned to each session: what its list shows within a budget of tokens, and what it may execute.

Tools that a search found make room for those of the next one; those requested by name stay until they are removed. What
had to leave the list may still be executed: it was found, and the model may remember it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final

from trunkline.config.call_arguments import InvalidArguments
from trunkline.core.call import Caller
from trunkline.runtime.safe_callbacks import call_safely

MAX_HANDLES_PER_PRINCIPAL: Final = 256
MAX_GRANTED: Final = 10_000
MAX_HANDLE: Final = 200
_HolderKey = tuple[str, str, str]
_HANDLE: Final = "handle"
_SESSION: Final = "session"


class ProvisionedTools:
    """The tools of one session by their addresses: those `requested` and those `found`, with their tokens.

    Those `granted` may be executed; `described_servers` are those whose instructions the session was sent. `version`
    goes up with every change of what is listed. `chose_budget` says that the session set the budget itself."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.chose_budget = False
        self.requested: dict[str, int] = {}
        self.found: dict[str, int] = {}
        self.granted: dict[str, None] = {}
        self.described_servers: set[str] = set()
        self.version = 0

    @property
    def tokens(self) -> int:
        return sum(self.requested.values()) + sum(self.found.values())

    @property
    def room(self) -> int:
        """The tokens left for tools, once those that were only found make way."""
        return self.budget - sum(self.requested.values())

    def listed(self) -> Iterable[str]:
        yield from self.requested
        yield from self.found

    def add_requested(self, address: str, tokens: int) -> bool:
        """List a tool until it is removed, if there is room for it. Returns whether there was."""
        if address not in self.requested:
            if tokens > self.room:
                return False
            self.found.pop(address, None)
            self.requested[address] = tokens
            self._make_room()
            self.version += 1
        self._grant(address)
        return True

    def add_found(self, address: str, tokens: int) -> None:
        """Add a tool that was found; the caller has checked that it fits beside the others found with it."""
        if address not in self.requested:
            is_new = self.found.pop(address, None) is None
            self.found[address] = tokens
            self.version += is_new
            self._make_room()
        self._grant(address)

    def demote(self, address: str) -> None:
        """Keep a tool that its server no longer offers as if it was only found: it is listed again once the server
        offers it again, unless its room was needed."""
        tokens = self.requested.pop(address, None)
        if tokens is not None:
            self.found = {address: tokens, **self.found}

    def remove(self, address: str) -> bool:
        held = address in self.granted
        self.granted.pop(address, None)
        if self.requested.pop(address, None) is not None or self.found.pop(address, None) is not None:
            self.version += 1
        return held

    def set_budget(self, budget: int) -> None:
        self.budget = budget
        self._make_room()

    def _make_room(self) -> None:
        """Drop the tools that were found longest ago from the list."""
        while self.found and self.tokens > self.budget:
            del self.found[next(iter(self.found))]
            self.version += 1

    def _grant(self, address: str) -> None:
        self.granted.pop(address, None)
        self.granted[address] = None
        while len(self.granted) > MAX_GRANTED:
            del self.granted[next(iter(self.granted))]


class Provisioning:
    """The provisioned tools of every session. Callers without one are known by their principal, or by a handle."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.on_change: list[Callable[[], None]] = []
        self._held: OrderedDict[_HolderKey, ProvisionedTools] = OrderedDict()

    def existing(self, caller: Caller, handle: str | None = None) -> ProvisionedTools | None:
        """The tools of a session; None if it was never given any."""
        return self._held.get(_key(caller, handle))

    def of(self, caller: Caller, handle: str | None = None) -> ProvisionedTools:
        key = _key(caller, handle)
        held = self._held.get(key)
        if held is None:
            held = self._held[key] = ProvisionedTools(self.budget)
            if key[0] == _HANDLE:  # callers make handles up, and nobody says when one is done with: the oldest goes
                theirs = [other for other in self._held if other[:2] == key[:2]]
                for oldest in theirs[:-MAX_HANDLES_PER_PRINCIPAL]:
                    del self._held[oldest]
        self._held.move_to_end(key)
        return held

    def set_budget(self, budget: int) -> None:
        """Set the budget of every session that has not chosen another."""
        self.budget = budget
        for held in self._held.values():
            if not held.chose_budget:
                held.set_budget(budget)

    def changed(self) -> None:
        for subscriber in self.on_change:
            call_safely("provisioned tools", subscriber)

    def forget(self, session: str) -> None:
        self._held.pop((_SESSION, session, ""), None)


def _key(caller: Caller, handle: str | None) -> _HolderKey:
    if handle:
        if len(handle) > MAX_HANDLE or not handle.isprintable():
            raise InvalidArguments(f"`session` is a name of at most {MAX_HANDLE} printable characters")
        return (_HANDLE, caller.principal, handle)
    if caller.session is not None:
        return (_SESSION, caller.session, "")
    return ("principal", caller.principal, "")
