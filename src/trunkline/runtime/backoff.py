"""How long to wait before trying a server again: not at all where it worked, else exponential with full jitter."""

from __future__ import annotations

import random
import time
from typing import Final

FIRST_S: Final = 0.1
BASE_S: Final = 0.5
CAP_S: Final = 30.0
AT_ONCE: Final = 5
AT_ONCE_WITHIN_S: Final = 60.0


class Backoff:
    """One that came up before it was lost is tried again at once, `AT_ONCE` times a minute.

    Its handshake is proof enough that it works: the number keeps one that crashes right behind it from being started
    without a pause.
    """

    def __init__(self) -> None:
        self.failures = 0
        self._worked = False
        self._at_once: list[float] = []

    def up(self) -> None:
        """The server answers."""
        self._worked = True

    def next_delay_s(self) -> float:
        """The wait before the next try. The first is near nothing, so that one failure costs callers almost no time."""
        now = time.monotonic()
        worked, self._worked = self._worked, False
        if worked:
            self._at_once = [at for at in self._at_once if now - at < AT_ONCE_WITHIN_S]
            if len(self._at_once) < AT_ONCE:
                self._at_once.append(now)
                self.failures = 0
                return 0.0
        self.failures += 1
        if self.failures == 1:
            return random.uniform(0, FIRST_S)
        return random.uniform(0, min(CAP_S, BASE_S * 2 ** min(self.failures - 2, 10)))
