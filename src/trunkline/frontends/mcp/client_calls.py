"""What one client has in flight: bounded, and taken back by the client's own ids."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol

from trunkline.core.call import Call
from trunkline.core.errors import CLIENT_LIMIT, INVALID_REQUEST, Problem
from trunkline.runtime.safe_calls import contained


class InFlight(Protocol):
    """Something under way for a client that it can take back."""

    def cancel(self, why: str, /) -> bool: ...


class ClientCalls:
    """What one client has in flight, by its own request ids. A session has one; all clients without a session, of
    whom nobody can tell one from another, share a wider one. `key` is the limit's in the configuration."""

    def __init__(self, limit: int, key: str = "limits.in_flight_per_client") -> None:
        self.limit = limit
        self._key = key
        self._calls: dict[Hashable, InFlight] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def refusal(self, key: Hashable) -> Problem | None:
        if key in self._calls:
            return Problem(code=INVALID_REQUEST, message="A request with this `id` is still in flight")
        if len(self._calls) >= self.limit:
            message = f"More than {self.limit} calls in flight (`{self._key}`)"
            return Problem(code=CLIENT_LIMIT, message=message, retryable=True, retry_after_ms=1000)
        return None

    def add(self, key: Hashable, call: InFlight) -> None:
        self._calls[key] = call

    def remove(self, key: Hashable) -> None:
        self._calls.pop(key, None)

    def tools(self) -> tuple[str, ...]:
        """The tools that are being called, by their servers' names for them."""
        return tuple(call.tool for call in self._calls.values() if isinstance(call, Call) and call.tool)

    def cancel(self, key: Hashable, why: str) -> bool:
        call = self._calls.get(key)
        return call is not None and call.cancel(why)

    def cancel_all(self, why: str) -> None:
        for call in list(self._calls.values()):
            contained("a call that is taken back", call.cancel, why)
