"""Ctrl+C while a program starts, and while it ends: it is over at once, without a word.

An exception in the middle of an import leaves a traceback wherever it comes out, and may be lost altogether. Until a
loop listens for signals itself there is nothing that would have to be ended in order.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from types import FrameType
else:
    import _signal  # what `signal` is made of: that one takes a tenth of the time that we need to start

INTERRUPTED = 130


def end_at_once() -> None:
    """From now on, unless we were started to ignore it."""
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _leave)


def raise_again() -> None:
    """For what has something to take back: a file that is half written."""
    if _signal.getsignal(_signal.SIGINT) is _leave:
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)


def _leave(_number: int, _frame: FrameType | None) -> None:
    try:
        os.write(2, b"\n")
    finally:  # also where nobody reads that
        os._exit(INTERRUPTED)
