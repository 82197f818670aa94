"""What is over leaves nothing: the collector runs rarely, and a request or a result may be megabytes."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.doors.rig import House, echo, house

from trunkline.core.call import Call, Result
from trunkline.doors.http.exchange import HttpExchange

_TIMES = 5


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def alive(here: House) -> int:
    here.desk.ended.clear()  # the tests' own
    return sum(isinstance(one, Call | HttpExchange | Result) for one in gc.get_objects())


async def test_requests_that_were_answered_leave_nothing_behind(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.client() as legacy, here.modern() as modern:
        here.source.on_submit = echo
        for client in (legacy, modern):
            await client.call("s_t")
            before = alive(here)
            for _ in range(_TIMES):
                await client.call("s_t", {"a": 1}, meta={"progressToken": 1})
                await client.call("s_unknown")
                await client.request("tools/list")
                await client.request("resources/read", {"uri": "x://1"})
            assert alive(here) <= before


async def test_a_batch_that_was_answered_leaves_nothing_behind(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        client = here.client()
        client.version = "2025-03-26"
        async with client:
            here.source.on_submit = echo
            calls = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"s_t"}}'
            batch = b"[%b,%b]" % (calls % 1, calls % 2)
            assert (await client.post(batch)).body.startswith(b"[")
            before = alive(here)
            for _ in range(_TIMES):
                await client.post(batch)
            assert alive(here) <= before
