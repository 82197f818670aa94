"""Those who have dialled and not registered: few at a time, not for long, and with little of our memory.

Whoever can reach the port can be here, so nothing here may cost those inside anything.
"""

from __future__ import annotations

import resource
from functools import partial
from typing import Final

from trunkline.core.errors import APP_REFUSED
from trunkline.protocol.app_messages import is_browser
from trunkline.runtime.deadlines import Deadline
from trunkline.runtime.own_process import most_connections
from trunkline.sources.app.complaints import Complaints
from trunkline.sources.app.link import AppLink

_MOST_WAITING: Final = 256
_REGISTER_S: Final = 10.0
_LARGE_BYTES: Final = 1024 * 1024
_MOST_BYTES: Final = 64 * 1024 * 1024


class Doorway:
    """`has_token` where nobody may say anything before the token."""

    def __init__(self, complaints: Complaints, *, has_token: bool) -> None:
        self._complaints = complaints
        self._has_token = has_token
        self._waiting: dict[AppLink, Deadline] = {}
        self._most_waiting = _most_waiting()

    def __len__(self) -> int:
        return len(self._waiting)

    def enter(self, link: AppLink) -> None:
        if len(self._waiting) >= self._most_waiting:
            self._drop(next(iter(self._waiting)), "too many connections have not registered")
        late = partial(self._drop, link, f"a connection did not register within {_REGISTER_S:g} seconds")
        self._waiting[link] = Deadline(_REGISTER_S, late)

    def leave(self, link: AppLink) -> None:
        timer = self._waiting.pop(link, None)
        if timer is not None:
            timer.cancel()

    def check_memory(self, link: AppLink) -> None:
        """All together may hold so much of lines that have not ended; the largest goes first."""
        if link.buffered_bytes < _LARGE_BYTES:
            return
        if sum(waiting.buffered_bytes for waiting in self._waiting) > _MOST_BYTES:
            largest = max(self._waiting, key=lambda waiting: waiting.buffered_bytes)
            self._drop(largest, "connections that have not registered send too much")

    def heard(self, link: AppLink, line: bytes) -> None:
        """Something else than `register`. With a token there is no second try; a browser is never let in."""
        if is_browser(line):
            self._drop(link, "something speaks HTTP to the port for apps")
        elif self._has_token:
            self._drop(link, "a connection said something else than `register` first")
        else:
            self._complaints.add("noise_lines", "a connection sent a line that is no message before it registered")

    def _drop(self, link: AppLink, why: str) -> None:
        self._complaints.add("dials_dropped", f"a connection was closed: {why}")
        link.end(APP_REFUSED, why)


def _most_waiting() -> int:
    """At most a quarter of the files that HTTP connections leave: the rest is for servers and those who are known."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _MOST_WAITING
    return max(1, min(_MOST_WAITING, (soft - most_connections()) // 4))
