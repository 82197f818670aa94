"""Ports for test servers that nothing else on the machine will take meanwhile."""

from __future__ import annotations

import itertools
import socket

_FIRST = 20_000
_PER_PROCESS = 200
_BLOCKS = 60  # all of them below the range that outgoing connections use


def _claim() -> tuple[socket.socket, range]:
    """A block of ports that is ours while we hold its first one: other workers, and other sessions, take others."""
    for first in range(_FIRST, _FIRST + _BLOCKS * _PER_PROCESS, _PER_PROCESS):
        held = socket.socket()
        try:
            held.bind(("127.0.0.1", first))
            held.listen()
        except OSError:
            held.close()
            continue
        return held, range(first + 1, first + _PER_PROCESS)
    raise RuntimeError("every block of test ports is taken")


# at import, before any test counts its open files
_held, _block = _claim()
_ports = itertools.cycle(_block)


def free_port() -> int:
    """A port that nobody listens on now, and that no other test process will ask for."""
    for port in itertools.islice(_ports, _PER_PROCESS):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError(f"no port of {_block} is free")
