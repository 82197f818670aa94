"""A caller's wish to hear when a resource changes, or how its tasks get on."""

from __future__ import annotations

from collections.abc import Callable

from trunkline.core.call import Caller, Json, Outcome, Result


class Watch:
    """One subscription to one resource, by the URI its server knows. `on_settled` is called with a `Result` when it
    holds, and with anything else when it does not, or not any more: then it is over. `on_updated` gets the parameters
    of the server's notification.

    Whoever made it closes it; the source then stops listening for the last one of a resource.
    """

    __slots__ = ("_on_closed", "_settled", "caller", "closed", "on_settled", "on_updated", "uri")

    def __init__(
        self,
        caller: Caller,
        uri: str,
        on_updated: Callable[[Json], None],
        on_settled: Callable[[Outcome], None],
    ) -> None:
        self.caller = caller
        self.uri = uri
        self.on_updated = on_updated
        self.on_settled = on_settled
        self.closed = False
        self._settled = False
        self._on_closed: Callable[[Watch], None] | None = None

    def settle(self, outcome: Outcome) -> None:
        """How asking the server went, the first time, and that it is over; a loss that is mended is not told."""
        if not self._settled or not isinstance(outcome, Result):
            self._settled = True
            self.on_settled(outcome)

    def owned_by(self, on_closed: Callable[[Watch], None]) -> None:
        """Whoever carries it learns when nobody wants it any more."""
        self._on_closed = on_closed

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            if self._on_closed is not None:
                self._on_closed(self)


class TaskWatch:
    """One wish to hear of some tasks of one server (2026-07-28), by the ids that it gave them. `on_settled` is called
    once, with those that the server will tell of. `on_told` gets the id and the parameters of each notification.

    Whoever made it closes it.
    """

    __slots__ = ("_on_closed", "_settled", "caller", "closed", "on_settled", "on_told", "task_ids")

    def __init__(
        self,
        caller: Caller,
        task_ids: frozenset[str],
        on_told: Callable[[str, Json], None],
        on_settled: Callable[[frozenset[str]], None],
    ) -> None:
        self.caller = caller
        self.task_ids = task_ids
        self.on_told = on_told
        self.on_settled = on_settled
        self.closed = False
        self._settled = False
        self._on_closed: Callable[[TaskWatch], None] | None = None

    def settle(self, honoured: frozenset[str]) -> None:
        """What the server said the first time; later losses are mended without a word."""
        if not self._settled:
            self._settled = True
            self.on_settled(honoured)

    def owned_by(self, on_closed: Callable[[TaskWatch], None]) -> None:
        self._on_closed = on_closed

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            if self._on_closed is not None:
                self._on_closed(self)
