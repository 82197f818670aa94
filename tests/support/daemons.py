"""Programs that hide a process from those who ask whose it is, for tests that find it all the same.

daemons.py MARK HOW COUNT MB    prints `ready` once COUNT of them run, with MB of memory each, and then reads its input.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys
import time

PROGRAM = __file__
_SET_DUMPABLE, _FILE_LOCKS = 4, 10
_SEEN_S = 2.0  # so long it stays below its parents: many looks
_DAEMON = """
import os, sys, time
while os.getppid() == int(sys.argv[3]):
    time.sleep(0.01)
kept = os.urandom(1 << 20) * int(sys.argv[2])
os.write(1, b".")
time.sleep(600)
"""


def wiped(mark: str, mb: int) -> None:
    """Forked twice, in a session of its own, without an environment."""
    os.setsid()
    if os.fork() == 0:
        _become(mark, mb)


def unreadable(mark: str, mb: int) -> None:
    """With an environment, which only root can read."""
    os.setsid()
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(_SET_DUMPABLE, 0, 0, 0, 0)
        kept = os.urandom(1 << 20) * mb
        os.write(1, b".")
        time.sleep(600)
        os._exit(len(kept))


def unmarked(mark: str, mb: int) -> None:
    """Without what every process of a child has."""
    resource.setrlimit(_FILE_LOCKS, (0, 0))
    wiped(mark, mb)


def seen(mark: str, mb: int) -> None:
    """Nor with that, but with parents for a while."""
    resource.setrlimit(_FILE_LOCKS, (0, 0))
    parent = os.getpid()
    if os.fork() == 0:
        os.setsid()
        _become(mark, mb, parent)
    time.sleep(_SEEN_S)


def of_seen_session(mark: str, mb: int) -> None:
    """Itself it never had parents for long, but its session had."""
    resource.setrlimit(_FILE_LOCKS, (0, 0))
    os.setsid()
    time.sleep(_SEEN_S)
    if os.fork() == 0:
        _become(mark, mb)


WAYS = {way.__name__: way for way in (wiped, unreadable, unmarked, seen, of_seen_session)}


def _become(mark: str, mb: int, parent: int = 0) -> None:
    os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", _DAEMON, mark, str(mb), str(parent)], {})


def start(how: str, mark: str, count: int, mb: int) -> None:
    """Returns when all of them run and have their memory."""
    ready, tell = os.pipe()
    parents = [_fork_parent(how, mark, mb, tell) for _ in range(count)]
    for parent in parents:
        os.waitpid(parent, 0)
    for _ in range(count):
        os.read(ready, 1)
    os.close(ready)
    os.close(tell)


def _fork_parent(how: str, mark: str, mb: int, tell: int) -> int:
    parent = os.fork()
    if parent == 0:
        os.dup2(tell, 1)
        WAYS[how](mark, mb)
        os._exit(0)
    return parent


def main(mark: str, how: str, count: str, mb: str) -> None:
    start(how, mark, int(count), int(mb))
    print("ready", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
