"""A caller's wish to hear when a resource changes, or how its tasks get on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from trunkline.core.call import Caller, Json, Outcome, Result


class _Closable:
    """Whoever made it closes it, and whoever carries it learns that nobody wants it any more."""

    __slots__ = ("_on_closed", "closed")

    def __init__(self) -> None:
        self.closed = False
        self._on_closed: Callable[[Self], None] | None = None

    def owned_by(self, on_closed: Callable[[Self], None]) -> None:
        self._on_closed = on_closed

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            if self._on_closed is not None:
                self._on_closed(self)


class Watch(_Closable):
    """One subscription to one resource, by the URI its server knows. `on_settled` is called with a `Result` when it
    holds, and with anything else when it does not, or not any more: then it is over. `on_updated` gets the parameters
    of the server's notification. The source stops listening when the last one of a resource is closed.
    """

    __slots__ = ("_settled", "caller", "on_settled", "on_updated", "uri")

    def __init__(
        self,
        caller: Caller,
        uri: str,
        on_updated: Callable[[Json], object],
        on_settled: Callable[[Outcome], object],
    ) -> None:
        super().__init__()
        self.caller = caller
        self.uri = uri
        self.on_updated = on_updated
        self.on_settled = on_settled
        self._settled = False

    def settle(self, outcome: Outcome) -> None:
        """How asking the server went, the first time, and that it is over; a loss that is mended is not told."""
        if not self._settled or not isinstance(outcome, Result):
            self._settled = True
            self.on_settled(outcome)


class TaskWatch(_Closable):
    """One wish to hear of some tasks of one server (2026-07-28), by the ids that it gave them. `on_settled` is called
    once, with those that the server will tell of. `on_told` gets the id and the parameters of each notification.
    """

    __slots__ = ("_settled", "caller", "on_settled", "on_told", "task_ids")

    def __init__(
        self,
        caller: Caller,
        task_ids: frozenset[str],
        on_told: Callable[[str, Json], object],
        on_settled: Callable[[frozenset[str]], object],
    ) -> None:
        super().__init__()
        self.caller = caller
        self.task_ids = task_ids
        self.on_told = on_told
        self.on_settled = on_settled
        self._settled = False

    def settle(self, honoured: frozenset[str]) -> None:
        """What the server said the first time; later losses are mended without a word."""
        if not self._settled:
            self._settled = True
            self.on_settled(honoured)
