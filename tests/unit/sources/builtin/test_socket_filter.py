from __future__ import annotations

import pytest

from trunkline.sources.builtin.socket_filter import no_internet_sockets


@pytest.mark.parametrize("machine", ["x86_64", "aarch64", "riscv64"])
def test_a_known_machine_has_a_filter_of_whole_instructions(machine: str) -> None:
    program = no_internet_sockets(machine)
    assert program is not None
    assert len(program) == 9 * 8


def test_a_machine_whose_numbers_are_not_known_has_none() -> None:
    assert no_internet_sockets("pdp11") is None
