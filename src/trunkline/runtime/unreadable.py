"""What other processes of the same user cannot read of this one: its environment, its memory, its open files.

On Linux any of them could otherwise look at all that in /proc, and every server that we start is one of them. Elsewhere
nothing changes.
"""

from __future__ import annotations

import contextlib
import os
import sys

from trunkline.runtime.platform import TAG, Prctl, read_proc

_ENV_START = 50 - 3  # fields of /proc/PID/stat, the first of which behind the name is number 3
_ENV_END = 51 - 3


def hide_from_others() -> None:
    """Root may read everything all the same. Programs that we start are not hidden: an exec ends it."""
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError, ValueError, IndexError):  # no /proc, or none that tells
        clear_environment_block()
    Prctl().hide()


def clear_environment_block() -> None:
    """Take the variables out of the memory that /proc/PID/environ shows, but for our own tag.

    They stay set: each is put elsewhere first, so that nothing refers to that memory any more. It is written through a
    file and not by address: where these numbers are wrong, that is an error and not the end of the process.
    """
    fields = read_proc("/proc/self/stat").rpartition(b")")[2].split()
    start, end = int(fields[_ENV_START]), int(fields[_ENV_END])
    block = read_proc("/proc/self/environ")
    memory = os.open("/proc/self/mem", os.O_RDWR | os.O_CLOEXEC)
    try:
        if os.pread(memory, end - start, start) != block:
            return
        for name, value in os.environ.items():
            os.putenv(name, value)
        tag = TAG.encode() + b"="
        kept = (entry if entry.startswith(tag) else bytes(len(entry)) for entry in block.split(b"\0"))
        os.pwrite(memory, b"\0".join(kept), start)
    finally:
        os.close(memory)
