"""Which tools a session has been given: what its list shows within a budget of tokens, and what it may execute.

Tools that a search found make room for those of the next one; those that were asked for by name stay until they are
taken back. What left the list for want of room may still be executed: it was found, and its model may remember it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final

from trunkline.config.call_arguments import BadArgument
from trunkline.core.call import Caller
from trunkline.runtime.safe_calls import call_safely

MAX_HANDLES_PER_PRINCIPAL: Final = 256
MAX_GRANTED: Final = 10_000
MAX_HANDLE: Final = 200
Key = tuple[str, str, str]
_HANDLE: Final = "handle"
_SESSION: Final = "session"


class ProvisionedTools:
    """What one session holds, by the address of each tool: those `asked` for and those `found`, with their tokens.

    `granted` may be executed; `told_of` are the servers whose instructions it has seen. `version` goes up with every
    change of what is listed. `chose_budget` is whether the budget is its own choice."""

    __slots__ = ("__weakref__", "asked", "budget", "chose_budget", "found", "granted", "told_of", "version")

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.chose_budget = False
        self.asked: dict[str, int] = {}
        self.found: dict[str, int] = {}
        self.granted: dict[str, None] = {}
        self.told_of: set[str] = set()
        self.version = 0

    @property
    def tokens(self) -> int:
        return sum(self.asked.values()) + sum(self.found.values())

    @property
    def room(self) -> int:
        """What is left for tools, once those that were only found make way."""
        return self.budget - sum(self.asked.values())

    def listed(self) -> Iterable[str]:
        yield from self.asked
        yield from self.found

    def ask_for(self, address: str, tokens: int) -> bool:
        """Whether it fits. It stays until it is taken back."""
        if address not in self.asked:
            if tokens > self.room:
                return False
            self.found.pop(address, None)
            self.asked[address] = tokens
            self._make_room()
            self.version += 1
        self._grant(address)
        return True

    def find(self, address: str, tokens: int) -> None:
        """It was found; whoever calls this has seen to it that it fits beside what was found with it."""
        if address not in self.asked:
            is_new = self.found.pop(address, None) is None
            self.found[address] = tokens
            self.version += is_new
            self._make_room()
        self._grant(address)

    def is_gone(self, address: str) -> None:
        """Its server offers it no more. It comes back to the list with its server, unless its room is needed."""
        tokens = self.asked.pop(address, None)
        if tokens is not None:
            self.found = {address: tokens, **self.found}

    def take_back(self, address: str) -> bool:
        held = address in self.granted
        self.granted.pop(address, None)
        if self.asked.pop(address, None) is not None or self.found.pop(address, None) is not None:
            self.version += 1
        return held

    def set_budget(self, budget: int) -> None:
        self.budget = budget
        self._make_room()

    def _make_room(self) -> None:
        """Those found longest ago leave the list first."""
        while self.found and self.tokens > self.budget:
            del self.found[next(iter(self.found))]
            self.version += 1

    def _grant(self, address: str) -> None:
        self.granted.pop(address, None)
        self.granted[address] = None
        while len(self.granted) > MAX_GRANTED:
            del self.granted[next(iter(self.granted))]


class Provisioning:
    """What every session holds. Callers without a session are known by their principal, or by a handle of theirs."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.on_change: list[Callable[[], None]] = []
        self._held: OrderedDict[Key, ProvisionedTools] = OrderedDict()

    def seen_by(self, caller: Caller, handle: str | None = None) -> ProvisionedTools | None:
        """None where nothing was ever given."""
        return self._held.get(_key(caller, handle))

    def of(self, caller: Caller, handle: str | None = None) -> ProvisionedTools:
        key = _key(caller, handle)
        held = self._held.get(key)
        if held is None:
            held = self._held[key] = ProvisionedTools(self.budget)
            self._make_room(key)
        self._held.move_to_end(key)
        return held

    def set_budget(self, budget: int) -> None:
        """For everybody who has not chosen another."""
        self.budget = budget
        for held in self._held.values():
            if not held.chose_budget:
                held.set_budget(budget)

    def changed(self) -> None:
        for subscriber in self.on_change:
            call_safely("what a client was given", subscriber)

    def forget(self, session: str) -> None:
        self._held.pop((_SESSION, session, ""), None)

    def _make_room(self, new: Key) -> None:
        """Handles are names that callers make up, and nobody says when one is done with: the oldest goes."""
        if new[0] == _HANDLE:
            theirs = [key for key in self._held if key[:2] == new[:2]]
            for key in theirs[:-MAX_HANDLES_PER_PRINCIPAL]:
                del self._held[key]


def _key(caller: Caller, handle: str | None) -> Key:
    if handle:
        if len(handle) > MAX_HANDLE or not handle.isprintable():
            raise BadArgument(f"`session` is a name of at most {MAX_HANDLE} printable characters")
        return (_HANDLE, caller.principal, handle)
    if caller.session is not None:
        return (_SESSION, caller.session, "")
    return ("principal", caller.principal, "")
