"""A mark on all that comes from one child, which clearing an environment or leaving a session does not take off.

It is a limit (RLIMIT_LOCKS) that Linux passes on with every fork and exec, shows to everybody, and has not applied to
anything since 2.4. A program may lower its limits, but has no reason to lower this one.

Loaded by the supervisor only, so it stays with light imports.
"""

from __future__ import annotations

import resource

from trunkline.runtime.platform import read_proc

_LIMIT = 10  # RLIMIT_LOCKS, for which Python has no name
_LINE = b"Max file locks"
_HARD = 4  # of the words of such a line
_BITS = 32
_OPEN = (1 << _BITS) - 1  # the lower half, while no gateway has its own children in it
_MOST = (1 << 31) - 1


class OwnerMarks:
    """The upper half of the number is for our children; for those of a gateway behind this one, the lower."""

    def __init__(self) -> None:
        self._own = resource.getrlimit(_LIMIT)[1]

    def of(self, child: int) -> int | None:
        """The mark of a child; None where there is no room for one."""
        if child > _MOST:
            return None
        if self._own == resource.RLIM_INFINITY:
            return child << _BITS | _OPEN
        return self._own - _OPEN + child if self._own & _OPEN == _OPEN else None

    def child_of(self, pid: int) -> int | None:
        """The child of ours whose mark a process has."""
        report = read_proc(f"/proc/{pid}/limits")
        hard = next((line.split()[_HARD] for line in report.splitlines() if line.startswith(_LINE)), b"")
        if not hard.isdigit():
            return None
        upper, lower = divmod(int(hard), _OPEN + 1)
        if self._own == resource.RLIM_INFINITY:
            return upper
        return lower if self._own == upper << _BITS | _OPEN else None


def put_on(mark: int) -> None:
    """Put it on this process and all that comes from it."""
    try:
        resource.setrlimit(_LIMIT, (mark, mark))
    except (OSError, ValueError):
        return  # this system has no such limit: what belongs to whom is told by the rest
