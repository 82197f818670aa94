"""Ports for test servers that nothing else on the machine will take meanwhile."""

from __future__ import annotations

import itertools
import os
import re
import socket

_WORKER = int(re.sub(r"\D", "", os.environ.get("PYTEST_XDIST_WORKER", "")) or 0)
_ports = itertools.cycle(range(20_000 + 1_000 * _WORKER, 21_000 + 1_000 * _WORKER))


def free_port() -> int:
    """A port below the range that outgoing connections use, and that no other test worker asks for."""
    for port in _ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("unreachable")
