"""Ports for test servers that nothing else on the machine will take meanwhile."""

from __future__ import annotations

import fcntl
import itertools
import socket
import tempfile
from pathlib import Path
from typing import TextIO

_FIRST = 20_000
_PER_PROCESS = 200
_BLOCKS = 60  # all of them below the range that outgoing connections use


def _claim() -> tuple[TextIO, range]:
    """A block of ports that is ours as long as its lock is: other workers, and other sessions, take others."""
    for number in range(_BLOCKS):
        try:
            lock = Path(tempfile.gettempdir(), f"trunkline-test-ports-{number}").open("a")  # noqa: SIM115  (held until the process ends)
        except PermissionError:
            continue  # another user's
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            continue
        first = _FIRST + number * _PER_PROCESS
        return lock, range(first, first + _PER_PROCESS)
    raise RuntimeError("every block of test ports is taken")


# at import, before any test counts its open files
_lock, _block = _claim()
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
