"""Calls for something that nobody offers yet, while a server that may have it is still starting."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from trunkline.core.call import Call, Failure
from trunkline.protocol.jsonrpc import Members
from trunkline.router.admission import Admission, Deadlines
from trunkline.router.registry import SourceRegistry
from trunkline.runtime.contained import handed_on

_LEAST_BYTES: Final = 1024
"""What a call holds besides its parameters."""


class PendingCalls:
    def __init__(self, registry: SourceRegistry, deadlines: Deadlines) -> None:
        self._registry = registry
        self._deadlines = deadlines
        self.calls: dict[Call, Callable[[], None]] = {}
        self.draining = False

    def takes(
        self,
        call: Call,
        members: Members,
        candidates: Iterable[str],
        again: Callable[[], None],
        means: Callable[[Admission], bool],
    ) -> bool:
        """Whether this call is taken care of, though nobody offers what it wants.

        It waits while one of the candidates has not said yet what it offers, and `again` routes it anew when there is
        news. A server that will not come refuses it itself, if the call certainly `means` that one.
        """
        admissions = self._registry.admissions
        silent = self.silent(candidates)
        starting = [source for source in silent if admissions[source].health.state == "starting"]
        if starting and not self.draining:
            size_bytes = _LEAST_BYTES + sum(map(len, members.values()))
            too_much = self._registry.call_memory.reserve(call, size_bytes)
            if too_much is not None:
                call.finish(Failure(too_much))
                return True
            if call.timer is None:
                self._deadlines.set(call, max(admissions[source].options.timeout_s for source in starting))
            self.calls[call] = again
            return True
        refusing = starting or [source for source in silent if admissions[source].refuses and means(admissions[source])]
        if refusing:
            call.source, call.tool = refusing[0], ""  # a name that nobody has confirmed is no label for anything
            admissions[refusing[0]].admit(call)
        return bool(refusing)

    def silent(self, candidates: Iterable[str]) -> list[str]:
        """Those that have not said yet what they offer."""
        return [source for source in candidates if self._registry.catalog.snapshot(source) is None]

    def settle(self) -> None:
        """Something became known: see who waited for it."""
        if self.calls:
            waiting, self.calls = self.calls, {}
            for call, again in waiting.items():
                if not call.done:
                    handed_on(call, again)
