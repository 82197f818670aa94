"""The gateway's events on the standard `logging`, logger `trunkline`: the program decides what becomes of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

from trunkline.core.errors import Problem
from trunkline.core.events import Events, Note
from trunkline.core.source import Health

_LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_WELL: Final = frozenset({"starting", "ready", "disabled"})

log: Final = logging.getLogger("trunkline")


class StandardLog:
    """Calls are not logged: whoever makes them gets their results."""

    def __init__(self, events: Events, redact: Callable[[str], str]) -> None:
        self._redact = redact
        events.health.append(self._health_changed)
        events.noted.append(self._noted)

    def warn(self, problems: Iterable[Problem]) -> None:
        for problem in problems:
            log.warning("%s", self._redact(str(problem)))

    def _health_changed(self, source: str, health: Health) -> None:
        level = logging.INFO if health.state in _WELL else logging.WARNING
        reason = f": {health.reason}" if health.reason else ""
        log.log(level, "%s", self._redact(f"{source} is {health.state}{reason}"))

    def _noted(self, note: Note) -> None:
        log.log(_LEVELS[note.level], "%s", self._redact(note.message))
