"""A gateway that the tests of one file share; its processes do not count as left behind by a single test."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

from tests.support.client import HttpClient
from tests.support.gateway import Gateway
from tests.support.left_behind import LeftBehind
from tests.support.processes import LASTING, alive
from tests.support.waiting import wait_until


@contextlib.contextmanager
def shared_gateway(gateway: Gateway) -> Iterator[Gateway]:
    """From a fixture of the whole module. A test that ends the gateway, or wears it down, has one of its own."""
    with gateway:
        LASTING.add(gateway.process.pid)
        try:
            yield gateway
        finally:
            LASTING.discard(gateway.process.pid)
            started = gateway.descendants()
    try:
        wait_until(lambda: not any(alive(process.pid) for process in started), "whatever the gateway started is gone")
    except AssertionError as error:
        raise LeftBehind(str(error)) from None


@contextlib.asynccontextmanager
async def visiting(gateway: Gateway, **keys: Any) -> AsyncIterator[HttpClient]:
    """A client whose session ends with the block, and with it the servers that worked for it alone."""
    async with gateway.client(**keys) as client:
        try:
            yield client
        finally:
            await client.delete()
