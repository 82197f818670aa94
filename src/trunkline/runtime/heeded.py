"""Which signals we listen for: not those that we were started to ignore, as under `nohup`, or as a background job of a
script."""

from __future__ import annotations

import signal


def heeded(*numbers: signal.Signals) -> tuple[signal.Signals, ...]:
    """Those of them that count. Ask before anything listens for them."""
    return tuple(number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN)
