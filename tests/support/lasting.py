"""Gateways that several tests share."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tests.support.gateway import Gateway
from tests.support.processes import LASTING, alive
from tests.support.waiting import wait_until


@contextlib.contextmanager
def lasting(gateway: Gateway) -> Iterator[Gateway]:
    """It runs for all tests of a module, and starts and ends servers as it likes; whatever it started ends with it."""
    started: list[int] = []
    with gateway:
        LASTING.add(gateway.process.pid)
        try:
            yield gateway
        finally:
            LASTING.discard(gateway.process.pid)
            started += [process.pid for process in gateway.descendants()]
    wait_until(lambda: not any(map(alive, started)), "whatever the gateway started is gone")
