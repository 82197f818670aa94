from __future__ import annotations

import asyncio
import gc
import threading

import pytest
from tests.support.waiting import PATIENCE_S, at_most

from trunkline.sources.builtin.tool import WorkerThreads


async def test_work_is_done_beside_the_loop_and_its_faults_come_back() -> None:
    threads = WorkerThreads("test")
    assert await threads.run(threading.get_ident) != threading.get_ident()
    with pytest.raises(ValueError, match="invalid literal"):
        await threads.run(int, "x")
    await threads.close()


async def test_no_more_than_so_many_work_at_once() -> None:
    threads = WorkerThreads("test", 2)
    now, most, lock, together = 0, 0, threading.Lock(), threading.Barrier(2, timeout=PATIENCE_S)

    def work() -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        together.wait()  # two do work at once
        threading.Event().wait(0.001)
        with lock:
            now -= 1

    await asyncio.gather(*(threads.run(work) for _ in range(20)))
    assert most == 2
    await threads.close()


async def test_closing_waits_for_what_is_under_way_and_begins_nothing_new() -> None:
    threads = WorkerThreads("test", 1)
    begun, release, done = threading.Event(), threading.Event(), []

    def work() -> None:
        begun.set()
        release.wait(at_most(20))
        done.append("first")
        raise RuntimeError("nobody hears of it")

    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(threads.run(work)), loop.create_task(threads.run(done.append, "second"))]
    reported: list[object] = []
    loop.set_exception_handler(lambda _, context: reported.append(context))
    while not begun.is_set():
        await asyncio.sleep(0.001)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    loop.call_later(0.05, release.set)
    await threads.close()
    assert done == ["first"]
    gc.collect()
    assert reported == []
