"""Prepares the gateway's own process: the event loop, ignored signals, the allocator, the limit of open files."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_MAX_BUFFER_BYTES: Final = 32 * 1024 * 1024
_KEPT_BYTES: Final = 64 * 1024 * 1024
_ENOUGH_FILES: Final = 65_536
_MAX_RESERVED_FILES: Final = 1024
_NO_LIMIT: Final = 1 << 30
_original_limits: list[tuple[int, int]] = []
"""The limits that this process was started with, if they were raised."""

T = TypeVar("T")


def _fill_standard_descriptors() -> None:
    """Open those of 0, 1 and 2 that are closed: a socket that got number 2 would receive our log."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def run_event_loop(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine on uvloop if it is installed, else on asyncio's loop. Restores the handler of SIGINT, which the
    loop does not."""
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


def unignored_signals(*numbers: signal.Signals) -> tuple[signal.Signals, ...]:
    """Those signals that this process was not started to ignore, as it is by `nohup` or as a script's background job.

    Call this before any handler is set.
    """
    return tuple(number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN)


def keep_large_buffers() -> bool:
    """Have glibc keep and reuse large buffers. Returns False without glibc, where large results cost more.

    A result of 1 MB passes through three buffers of that size. By default glibc returns such memory at once and the
    kernel clears fresh pages for the next one, which more than doubles the CPU time of the call.
    """
    import ctypes

    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _MAX_BUFFER_BYTES) and mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES))


def raise_open_file_limit() -> None:
    """Raise the limit of open files as far as allowed and useful. For our own programs, not for libraries."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH_FILES if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH_FILES)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    with contextlib.suppress(ValueError, OSError):  # some systems promise more than they give
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        _original_limits.append((soft, hard))


def restore_open_file_limit(pid: int) -> None:
    """Give a new child the limit that we were started with: programs built on `select` break with a larger one."""
    if _original_limits and hasattr(resource, "prlimit"):
        with contextlib.suppress(OSError):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, _original_limits[0])


def connection_limit() -> int:
    """How many descriptors connections may use: without any left, no server could start and no file be opened."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _NO_LIMIT
    return max(1, soft - min(max(soft // 4, 64), _MAX_RESERVED_FILES))
