"""Programs that the suite starts get the default signal handlers."""

from __future__ import annotations

import signal

_LEFT_ALONE = {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE, signal.SIGXFSZ}
"""What nobody can catch, and what Python itself ignores and gives back to what it starts."""


def give_children_default_signals() -> None:
    """Undo what `nohup` and background jobs of a shell pass on to everything below them: ignored and blocked signals.

    A signal that is caught, unlike one that is ignored, is back at its default in a program that is started. Here it
    still does nothing, for whoever started the suite so wants it to go on; only SIGINT is what Python makes of it.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in signal.valid_signals() - _LEFT_ALONE:
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
