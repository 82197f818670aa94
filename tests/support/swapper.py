"""A program that keeps two names changing places, as fast as it can, until its standard input ends.

Usage: swapper.py FIRST SECOND …   (pairs of names; each pair is exchanged in turn)
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import sys

RENAME_EXCHANGE = 2
AT_FDCWD = -100


def exchange_at_once(first: str, second: str) -> None:
    """In one step, so that both names are there at every moment."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(AT_FDCWD, first.encode(), AT_FDCWD, second.encode(), RENAME_EXCHANGE):
        raise OSError(ctypes.get_errno(), "renameat2")


def exchange_in_steps(first: str, second: str) -> None:
    """Where the system has no such call: for a moment one of the names is missing."""
    spare = f"{first}.spare"
    os.rename(first, spare)
    put(second, first)
    put(spare, second)


def put(name: str, place: str) -> None:
    """Somebody may have made a folder in the gap: it goes."""
    for _ in range(1000):
        try:
            os.rename(name, place)
        except OSError:
            shutil.rmtree(place, ignore_errors=True)
        else:
            return
    raise OSError(f"{place} is always taken")


def main() -> None:
    names = sys.argv[1:]
    pairs = list(zip(names[::2], names[1::2], strict=True))
    rounds = 0
    print("ready", flush=True)
    while rounds % 100 or not select.select([sys.stdin], [], [], 0)[0]:
        rounds += 1
        for number, pair in enumerate(pairs):
            if (rounds + number) % 7 == 0 or sys.platform != "linux":
                exchange_in_steps(*pair)
            else:
                exchange_at_once(*pair)
    print(rounds, flush=True)


if __name__ == "__main__":
    main()
