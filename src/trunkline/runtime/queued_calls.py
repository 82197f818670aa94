"""Calls that cannot be sent yet, because their server is starting or busy with others."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from trunkline.core.call import QUEUED, Call, Request
from trunkline.core.errors import Phase
from trunkline.runtime.safe_callbacks import resume_safely


class QueuedCalls:
    """First come, first served. Abandoned calls are dropped at once: a server may take a minute to start, and a call
    may hold megabytes."""

    __slots__ = ("_calls",)

    def __init__(self) -> None:
        self._calls: dict[Request, Call] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def __iter__(self) -> Iterator[Call]:
        return iter(self._calls.values())

    def add(self, call: Call) -> None:
        call.upstream = self
        self._calls[call] = call

    def pop_first(self) -> Call:
        return self._calls.pop(next(iter(self._calls)))

    def release(self, submit: Callable[[Call], None]) -> None:
        """Hand over all calls; a call that this raises for is finished, and the others are handed over all the same."""
        calls, self._calls = self._calls, {}
        for call in calls.values():
            if not call.done:
                call.upstream = None
                resume_safely(call, submit, call)

    def abandon(self, request: Request) -> None:
        self._calls.pop(request, None)

    def phase_of(self, request: Request) -> Phase:
        return QUEUED
