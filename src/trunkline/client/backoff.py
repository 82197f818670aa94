"""How long to wait before dialling again: longer and longer, and never in step with other apps."""

from __future__ import annotations

import random
import time
from typing import Final

FIRST_S: Final = 0.1
BASE_S: Final = 0.25
CAP_S: Final = 10.0
REFUSED_S: Final = 15.0
"""A name that is taken or a token that is wrong will not change by itself within the second."""
HEALTHY_AFTER_S: Final = 10.0


class Backoff:
    def __init__(self) -> None:
        self._failures = 0
        self._up_since: float | None = None

    def up(self) -> None:
        """Registered. Only staying so forgets the failures."""
        self._up_since = time.monotonic()

    def next_delay_s(self) -> float:
        if self._up_since is not None and time.monotonic() - self._up_since >= HEALTHY_AFTER_S:
            self._failures = 0
        self._up_since = None
        self._failures += 1
        if self._failures == 1:
            return random.uniform(0, FIRST_S)
        highest_s = min(CAP_S, BASE_S * 2 ** min(self._failures - 1, 10))
        return random.uniform(highest_s / 2, highest_s)

    def after_refusal_s(self) -> float:
        self._up_since = None
        return random.uniform(REFUSED_S, 2 * REFUSED_S)
