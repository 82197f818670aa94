"""How a running call tells how far it is, from whatever thread it runs in."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import Any, Final

from .errors import CallCancelled

_current: Final[contextvars.ContextVar[Progress | None]] = contextvars.ContextVar("progress", default=None)


class Progress:
    """What a tool gets for a parameter with this hint. The parameter is not part of the tool's schema."""

    def __init__(self, post: Callable[[dict[str, Any]], None]) -> None:
        self._post = post
        self._cancelled = False

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for the call any more."""
        return self._cancelled

    def report(
        self, progress: float | None = None, *, total: float | None = None, message: str | None = None, data: Any = None
    ) -> None:
        """Tell the agent how far the call is. `data` is a part of the result that is there already.

        Raises CallCancelled once the call was cancelled: a function in a thread ends there.
        """
        if self._cancelled:
            raise CallCancelled("this call was cancelled")
        said = {"progress": progress, "total": total, "message": message, "data": data}
        self._post({name: value for name, value in said.items() if value is not None})

    def cancel(self) -> None:
        self._cancelled = True

    def enter(self) -> None:
        _current.set(self)


def report_progress(
    progress: float | None = None, *, total: float | None = None, message: str | None = None, data: Any = None
) -> None:
    """The same for the call that is running here, without a parameter. Outside of a call it does nothing."""
    current = _current.get()
    if current is not None:
        current.report(progress, total=total, message=message, data=data)
