"""The memory of an open call, as docs/sources/app.md states it."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from pathlib import Path

from tests.support.app_peer_stage import AppStage, app_stage
from tests.support.waiting import until

CALLS = 1000


async def open_calls(stage: AppStage, number: int) -> None:
    for count in range(number):
        stage.begin("A.echo", b'{"text":"hello"}')
        if count % 250 == 0:
            await asyncio.sleep(0)


async def test_an_open_call_takes_little_memory(tmp_path: Path) -> None:
    gateway = {"limits": {"in_flight_per_source": 100_000}}
    async with app_stage(tmp_path, queue=100_000, gateway=gateway) as stage, stage.app("A", echo=False) as app:
        app.serve(lambda *_: None)
        await open_calls(stage, 100)
        gc.collect()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        await open_calls(stage, CALLS)
        await until(lambda: len(app.invoked) == CALLS + 100, "the app has them all")
        app.invoked.clear()
        gc.collect()
        per_call = (tracemalloc.get_traced_memory()[0] - before) / CALLS
        tracemalloc.stop()
    assert per_call < 2000
