"""A seccomp filter for programs in a sandbox: of which families they may open sockets.

That no other machine and no other program can be reached by the internet's protocols is not its doing: a network
namespace sees to that, on every kind of machine. But some families know no namespaces (by VSOCK a virtual machine
reaches its host), and the namespace has a loopback of its own. Only families that are known to be confined are let
through, where the numbers of the kernel's calls are known.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

_AF_NETLINK: Final = 16
_CONFINED: Final = (socket.AF_UNIX, _AF_NETLINK)
"""Netlink is how programs ask for addresses and interfaces: those of their own namespace."""
_INTERNET: Final = (socket.AF_INET, socket.AF_INET6)

_LOAD: Final = 0x20
_JUMP_IF_EQUAL: Final = 0x15
_JUMP_IF_AT_LEAST: Final = 0x35
_RETURN: Final = 0x06
_CALL, _MACHINE, _FIRST_ARGUMENT = 0, 4, 16  # where they are in what a filter is given
_ALLOW: Final = 0x7FFF0000
_FAIL: Final = 0x00050000
_NO_SUCH_FAMILY: Final = _FAIL | errno.EAFNOSUPPORT
_NO_SUCH_CALL: Final = _FAIL | errno.ENOSYS
_IO_URING_SETUP: Final = 425
"""The same everywhere. What is asked of a ring passes no filter, sockets included."""
_X32: Final = 0x40000000
"""From here on, x86-64 has a second number for every call. No other kind of machine has calls up there."""

_Instruction = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class _Calls:
    """One set of numbers that programs may use: how the kernel calls it, and `socket` in it. `socketcall` is an old way
    to the same, whose arguments a filter cannot see."""

    architecture: int
    socket: int
    socketcall: int | None = None


_MACHINES: Final = {
    "x86_64": (_Calls(0xC000003E, 41), _Calls(0x40000003, 359, socketcall=102)),
    "aarch64": (_Calls(0xC00000B7, 198), _Calls(0x40000028, 281)),
    "riscv64": (_Calls(0xC00000F3, 198), _Calls(0x400000F3, 198)),
}
"""For each machine its own calls, and those of programs for its 32-bit ancestor."""


def socket_filter(*, internet: bool, machine: str = os.uname().machine) -> bytes | None:
    """The filter as `bwrap --seccomp` takes it, with internet sockets or without; None for a machine that is not known
    here."""
    if machine not in _MACHINES:
        return None
    families = (*_CONFINED, *_INTERNET) if internet else _CONFINED
    program = [instruction for calls in _MACHINES[machine] for instruction in _part(calls, families)]
    program.append((_RETURN, 0, 0, _NO_SUCH_CALL))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


def _part(calls: _Calls, families: Sequence[int]) -> Iterable[_Instruction]:
    """What is done with one set of calls; any other goes past it. Jumps count the instructions that are left out, if
    the condition holds and if it does not."""
    old_way = [] if calls.socketcall is None else _if_equal(calls.socketcall, _NO_SUCH_FAMILY)
    part = [
        (_LOAD, 0, 0, _CALL),
        (_JUMP_IF_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _NO_SUCH_CALL),
        *_if_equal(_IO_URING_SETUP, _NO_SUCH_CALL),
        *old_way,
        (_JUMP_IF_EQUAL, 1, 0, calls.socket),
        (_RETURN, 0, 0, _ALLOW),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        *(instruction for family in families for instruction in _if_equal(family, _ALLOW)),
        (_RETURN, 0, 0, _NO_SUCH_FAMILY),
    ]
    return [(_LOAD, 0, 0, _MACHINE), (_JUMP_IF_EQUAL, 0, len(part), calls.architecture), *part]


def _if_equal(value: int, answer: int) -> list[_Instruction]:
    return [(_JUMP_IF_EQUAL, 0, 1, value), (_RETURN, 0, 0, answer)]
