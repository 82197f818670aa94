"""The event loop, and what must be in order before it runs."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import resource
import signal
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")


def _fill_standard_descriptors() -> None:
    """Some launchers close them. A socket that then gets number 2 would receive our log."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def run_event_loop(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run to the end on the fastest loop there is. What Ctrl+C does before this it does afterwards, too: a loop forgets
    whose handler it replaced."""
    _fill_standard_descriptors()
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    if os.environ.get("TRUNKLINE_LOOP") != "asyncio":
        with contextlib.suppress(ImportError):
            import uvloop

            factory = uvloop.new_event_loop
    before = signal.getsignal(signal.SIGINT)
    try:
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(main())
    finally:
        signal.signal(signal.SIGINT, before)


# Which signals we listen for: not those that we were started to ignore, as under `nohup`, or as a background job of a
# script.


def heeded(*numbers: signal.Signals) -> tuple[signal.Signals, ...]:
    """Those of them that count. Ask before anything listens for them."""
    return tuple(number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN)


# Large buffers stay with the process: giving each back to the kernel costs more than everything else in a big call.
#
# A result of 1 MB passes through three buffers of that size. By default glibc returns such memory at once and the kernel
# clears fresh pages for the next one, which more than doubles the CPU time of the call.

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_LARGEST_BUFFER_BYTES: Final = 32 * 1024 * 1024
_KEPT_BYTES: Final = 64 * 1024 * 1024


def keep_large_buffers() -> bool:
    """Tell glibc to reuse what it has. False where there is no glibc: everything works, large results cost more."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _LARGEST_BUFFER_BYTES) and mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES))


# How many files this process may have open, and how many of them are kept from the connections of clients.
#
# A gateway that spends its last descriptor on a connection can start no server and open no file any more. Children get
# back the limit that we were started with: programs built on `select` break when they are given more.

_ENOUGH: Final = 65_536
_LARGEST_RESERVE: Final = 1024
_LARGEST_LIMIT: Final = 1 << 30
_lowered: list[tuple[int, int]] = []
"""The limits that we were started with, once they were raised."""


def raise_limit() -> None:
    """As far as the system lets us, or as far as any use of it goes. For a program of our own, not a library."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    with contextlib.suppress(ValueError, OSError):  # some systems promise more than they give
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        _lowered.append((soft, hard))


def put_back_for(pid: int) -> None:
    """Give a process that we have just started the limit that we were started with."""
    if _lowered and hasattr(resource, "prlimit"):
        with contextlib.suppress(OSError):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, _lowered[0])


def most_connections() -> int:
    """How many descriptors connections may take; the rest is for servers, files and whoever comes by another way."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _LARGEST_LIMIT
    return max(1, soft - min(max(soft // 4, 64), _LARGEST_RESERVE))
