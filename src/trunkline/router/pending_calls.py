"""Calls for something that no source is known to offer, held while a source that may offer it is still starting."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from trunkline.core.call import Call, Failure
from trunkline.protocol.jsonrpc import Members
from trunkline.router.admission import Admission, Deadlines
from trunkline.router.registry import SourceRegistry
from trunkline.runtime.safe_calls import resume_safely

_LEAST_BYTES: Final = 1024
"""What a held call takes besides its parameters."""


class PendingCalls:
    """Holds calls, and routes them again whenever a source has changed."""

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
        route_again: Callable[[], None],
        is_named: Callable[[Admission], bool],
    ) -> bool:
        """Hold the call or let a source refuse it. Returns False if the caller has to fail it as unknown. The call is
        held while one of the candidates is starting and has not published a snapshot. A source that is down refuses it
        with its own reason, but only if the call certainly names that source."""
        admissions = self._registry.admissions
        unpublished = self.unpublished(candidates)
        starting = [source for source in unpublished if admissions[source].health.state == "starting"]
        if starting and not self.draining:
            size_bytes = _LEAST_BYTES + sum(map(len, members.values()))
            problem = self._registry.call_memory.reserve(call, size_bytes)
            if problem is not None:
                call.finish(Failure(problem))
                return True
            if call.timer is None:
                self._deadlines.set(call, max(admissions[source].options.timeout_s for source in starting))
            self.calls[call] = route_again
            return True
        refusing = starting or [
            source for source in unpublished if admissions[source].refuses and is_named(admissions[source])
        ]
        if refusing:
            call.source, call.tool = refusing[0], ""  # telemetry gets no tool name that no server has confirmed
            admissions[refusing[0]].admit(call)
        return bool(refusing)

    def unpublished(self, candidates: Iterable[str]) -> list[str]:
        """The candidates that have not published what they offer."""
        return [source for source in candidates if self._registry.catalog.snapshot(source) is None]

    def retry(self) -> None:
        """Route the held calls again: a source has changed."""
        if self.calls:
            held, self.calls = self.calls, {}
            for call, route_again in held.items():
                if not call.done:
                    resume_safely(call, route_again)
