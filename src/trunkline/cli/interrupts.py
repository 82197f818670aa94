"""Ctrl+C during start-up and shutdown: the program exits at once, without a traceback.

A KeyboardInterrupt in the middle of an import shows a traceback or is lost. Until an event loop handles signals
itself, there is nothing to clean up.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from types import FrameType
else:
    import _signal  # importing `signal` would take a tenth of our start-up time

INTERRUPTED = 130


def exit_on_interrupt() -> None:
    """Exit at once on Ctrl+C from now on, unless this process was started to ignore it."""
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _exit)


def raise_keyboard_interrupt() -> None:
    """Raise KeyboardInterrupt on Ctrl+C again, for commands that clean up."""
    if _signal.getsignal(_signal.SIGINT) is _exit:
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)


def _exit(_number: int, _frame: FrameType | None) -> None:
    try:
        os.write(2, b"\n")
    finally:  # even if stderr is closed
        os._exit(INTERRUPTED)
