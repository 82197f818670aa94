"""A gateway that the tests of one file share: it outlives each of them, and what is below it is its own to end."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

from tests.support.client import HttpClient
from tests.support.gateway import Gateway
from tests.support.processes import LASTING, below, descendants
from tests.support.waiting import wait_until


@contextlib.contextmanager
def lasting(gateway: Gateway) -> Iterator[Gateway]:
    """From a fixture of the whole module. A test that ends the gateway, or wears it down, has one of its own."""
    before = ours()
    with gateway:
        LASTING.add(gateway.process.pid)
        try:
            yield gateway
        finally:
            LASTING.discard(gateway.process.pid)
    wait_until(lambda: ours() <= before, "whatever the gateway started is gone")


def ours() -> set[int]:
    """What was started here, but for what other gateways that last did."""
    processes = descendants(os.getpid())
    return {process.pid for process in processes} - {process.pid for process in below(processes, LASTING)}


@contextlib.asynccontextmanager
async def visiting(gateway: Gateway, **keys: Any) -> AsyncIterator[HttpClient]:
    """A client whose session ends with the block, and with it the servers that worked for it alone."""
    async with gateway.client(**keys) as client:
        try:
            yield client
        finally:
            await client.delete()
