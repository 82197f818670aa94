"""How long to wait before trying a server again: exponential with full jitter, forgotten after a healthy while."""

from __future__ import annotations

import random
import time
from typing import Final

FIRST_S: Final = 0.1
BASE_S: Final = 0.5
CAP_S: Final = 30.0
HEALTHY_AFTER_S: Final = 60.0


class Backoff:
    def __init__(self) -> None:
        self.failures = 0
        self._up_since: float | None = None

    def up(self) -> None:
        """The server answers again. Only staying up forgets the failures: a crash loop keeps backing off."""
        self._up_since = time.monotonic()

    def next_delay_s(self) -> float:
        """The wait before the next try. The first is near nothing, so that one crash costs callers almost no time."""
        if self._up_since is not None and time.monotonic() - self._up_since >= HEALTHY_AFTER_S:
            self.failures = 0
        self._up_since = None
        self.failures += 1
        if self.failures == 1:
            return random.uniform(0, FIRST_S)
        return random.uniform(0, min(CAP_S, BASE_S * 2 ** min(self.failures - 2, 10)))
