"""How many files this process may have open, and how many of them are kept from the connections of clients.

A gateway that spends its last descriptor on a connection can start no server and open no file any more. Children get
back the limit that we were started with: programs built on `select` break when they are given more.
"""

from __future__ import annotations

import contextlib
import resource
from typing import Final

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
