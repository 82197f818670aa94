"""A seccomp filter that lets programs open no internet sockets, for a sandbox with no network at all.

That no other machine and no other program can be reached is not its doing: a network namespace sees to that, on every
kind of machine. This takes away the namespace's own loopback, where the numbers of the kernel's calls are known.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from typing import Final

_NUMBERS: Final = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198), "riscv64": (0xC00000F3, 198)}
"""For each machine: how the kernel calls it, and the number of `socket` there."""
_LOAD: Final = 0x20
_JUMP_IF_EQUAL: Final = 0x15
_RETURN: Final = 0x06
_CALL, _MACHINE, _FIRST_ARGUMENT = 0, 4, 16  # where they are in what a filter is given
_ALLOW: Final = 0x7FFF0000
_REFUSE: Final = 0x00050000 | errno.EAFNOSUPPORT


def no_internet_sockets(machine: str = os.uname().machine) -> bytes | None:
    """The filter as `bwrap --seccomp` takes it; None for a machine that is not known here."""
    if machine not in _NUMBERS:
        return None
    architecture, number = _NUMBERS[machine]
    # Jumps count the instructions that are left out, if the value is equal and if it is not.
    program = [
        (_LOAD, 0, 0, _MACHINE),
        (_JUMP_IF_EQUAL, 0, 5, architecture),
        (_LOAD, 0, 0, _CALL),
        (_JUMP_IF_EQUAL, 0, 3, number),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_JUMP_IF_EQUAL, 2, 0, socket.AF_INET),
        (_JUMP_IF_EQUAL, 1, 0, socket.AF_INET6),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _REFUSE),
    ]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
