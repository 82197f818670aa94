from __future__ import annotations

import errno
import socket
import struct

import pytest

from trunkline.sources.builtin.sandbox import socket_filter

MACHINES = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198), "riscv64": (0xC00000F3, 198)}
ANCESTORS = {"x86_64": (0x40000003, 359), "aarch64": (0x40000028, 281), "riscv64": (0x400000F3, 198)}
CONFINED, INTERNET = {1, 16}, {2, 10}
FAMILIES = [*range(64), 0xFFFFFFFF]
READ = 63


def verdict(program: bytes, architecture: int, call: int, first: int = 0) -> int:
    """What the kernel does with a call: 0 where it goes on, else the error that the program gets."""
    seen = struct.pack("=IIQ6Q", call, architecture, 0, first, 0, 0, 0, 0, 0)
    instructions = list(struct.iter_unpack("=HBBI", program))
    at = value = 0
    while True:
        code, if_so, if_not, operand = instructions[at]
        at += 1
        if code == 0x20:
            (value,) = struct.unpack_from("=I", seen, operand)
        elif code in (0x15, 0x35):
            at += if_so if (value == operand if code == 0x15 else value >= operand) else if_not
        else:
            assert code == 0x06
            assert operand == 0x7FFF0000 or operand >> 16 == 0x0005
            return 0 if operand == 0x7FFF0000 else operand & 0xFFFF


def made(machine: str, *, internet: bool) -> bytes:
    program = socket_filter(internet=internet, machine=machine)
    assert program is not None
    return program


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("internet", [True, False])
def test_only_sockets_that_a_network_namespace_confines_can_be_opened(machine: str, internet: bool) -> None:
    program = made(machine, internet=internet)
    for numbers in (MACHINES, ANCESTORS):
        architecture, call = numbers[machine]
        verdicts = {family: verdict(program, architecture, call, family) for family in FAMILIES}
        allowed = {family for family, problem in verdicts.items() if not problem}
        assert allowed == (CONFINED | INTERNET if internet else CONFINED)
        assert set(verdicts.values()) == {0, errno.EAFNOSUPPORT}
        assert not verdict(program, architecture, READ, socket.AF_INET), "other calls are let through"


@pytest.mark.parametrize("machine", MACHINES)
def test_no_call_goes_round_the_filter(machine: str) -> None:
    program = made(machine, internet=True)
    for numbers in (MACHINES, ANCESTORS):
        architecture, call = numbers[machine]
        assert verdict(program, architecture, 425) == errno.ENOSYS, "a ring would open sockets unseen"
        assert verdict(program, architecture, 0x40000000 + call, 40) == errno.ENOSYS, "x32"
    assert verdict(program, 0xC0FFEE, READ) == errno.ENOSYS, "numbers that nobody knows"


def test_the_old_call_for_all_of_sockets_is_refused_because_its_arguments_cannot_be_seen() -> None:
    program = made("x86_64", internet=True)
    assert verdict(program, ANCESTORS["x86_64"][0], 102, 1) == errno.EAFNOSUPPORT
    assert not verdict(program, MACHINES["x86_64"][0], 102), "`getuid` there"


def test_a_machine_whose_numbers_are_not_known_has_none() -> None:
    assert socket_filter(internet=True, machine="pdp11") is None
