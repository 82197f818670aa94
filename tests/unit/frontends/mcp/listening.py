"""Clients that listen: a modern one with an open `subscriptions/listen`, and one on a pipe."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.support.client import META, encode, modern_headers
from tests.support.pipes import Pipes
from tests.support.waiting import at_most
from tests.unit.frontends.rig import House, at_pipe

Heard = Callable[[], Awaitable[dict[str, Any]]]


@contextlib.asynccontextmanager
async def opened(
    here: House,
    notifications: dict[str, Any],
    *,
    id: Any = 7,  # noqa: A002
    capabilities: dict[str, Any] | None = None,
) -> AsyncIterator[Heard]:
    """What is heard, message by message, each with the id of the listen it belongs to."""
    client = here.modern()
    params: dict[str, Any] = {"notifications": notifications}
    if capabilities is not None:
        params["_meta"] = {f"{META}clientCapabilities": capabilities}
    message = client.message("subscriptions/listen", params, id=id)
    client.headers |= modern_headers("subscriptions/listen", message["params"])
    async with client.start_post(encode(message)) as wire:
        events: AsyncIterator[bytes] | None = None

        async def heard() -> dict[str, Any]:
            nonlocal events
            async with asyncio.timeout(at_most(15)):
                if events is None:
                    events = wire.events(await wire.read_head())
                event = json.loads(await anext(events))
            meta = event.get("params", event.get("result", {}))["_meta"]
            return event | {"id_of_listen": meta[f"{META}subscriptionId"]}

        yield heard


@contextlib.asynccontextmanager
async def listening(
    here: House,
    notifications: dict[str, Any],
    *,
    id: Any = 7,  # noqa: A002
) -> AsyncIterator[tuple[dict[str, Any], Heard]]:
    """After the acknowledgement: what will be told of, and what is heard."""
    async with opened(here, notifications, id=id) as heard:
        first = await heard()
        assert first["method"] == "notifications/subscriptions/acknowledged"
        assert (type(first["id_of_listen"]), first["id_of_listen"]) == (type(id), id)
        yield first["params"]["notifications"], heard


@contextlib.asynccontextmanager
async def piped(folder: Path) -> AsyncIterator[tuple[House, Pipes]]:
    """A client at a pipe."""
    here = House(folder)
    async with at_pipe(here) as (pipes, _):
        yield here, pipes
