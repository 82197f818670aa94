"""Calls that were not sent yet. One that is given up leaves at once, with its arguments."""

from __future__ import annotations

from collections.abc import Callable

from trunkline.core.call import QUEUED, Call, Request
from trunkline.core.errors import Phase


class Waiting:
    def __init__(self) -> None:
        self._calls: dict[Request, Call] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, call: Call) -> None:
        call.upstream = self
        self._calls[call] = call

    def let_go(self, where: Callable[[Call], None]) -> None:
        calls, self._calls = self._calls, {}
        for call in calls.values():
            if not call.done:
                call.upstream = None
                where(call)

    def abandon(self, request: Request) -> None:
        self._calls.pop(request, None)

    def phase_of(self, request: Request) -> Phase:
        return QUEUED
