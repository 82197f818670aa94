"""Plain functions run in threads, so many at once, and one that hangs keeps nobody."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Iterator

import pytest
from tests.support.waiting import at_most, until

from trunkline.sdk.threads import FunctionThreads


@pytest.fixture
def threads() -> Iterator[FunctionThreads]:
    workers = FunctionThreads(1)
    yield workers
    workers.close()


word: contextvars.ContextVar[str] = contextvars.ContextVar("word")


async def test_what_the_function_returns_or_raises_is_the_outcome(threads: FunctionThreads) -> None:
    assert await threads.run(lambda: threading.current_thread().name, "tool x") == "tool x"
    with pytest.raises(KeyError):
        await threads.run(lambda: {}["a"], "t")
    with pytest.raises(RuntimeError):
        await threads.run(lambda: next(iter(())), "t")
    with pytest.raises(SystemExit):
        await threads.run(lambda: exec("raise SystemExit(3)"), "t")


async def test_context_variables_go_along(threads: FunctionThreads) -> None:
    word.set("here")
    assert await threads.run(word.get, "t") == "here"


async def test_a_thread_is_used_again_and_ends_with_the_others(threads: FunctionThreads) -> None:
    one, other = [await threads.run(threading.current_thread, "t") for _ in range(2)]
    assert one is other
    threads.close()
    await until(lambda: not one.is_alive(), "it has ended")


async def test_a_thread_without_work_ends_and_the_next_function_gets_another(
    threads: FunctionThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trunkline.sdk.threads._IDLE_S", 0.001)
    for _ in range(3):
        thread = await threads.run(threading.current_thread, "t")
        await until(lambda thread=thread: not thread.is_alive(), "it has ended")


async def test_no_function_is_lost_where_threads_are_about_to_end(
    threads: FunctionThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trunkline.sdk.threads._IDLE_S", 0)
    assert [await asyncio.wait_for(threads.run(lambda: 1, "t"), at_most(20)) for _ in range(500)] == [1] * 500


async def test_functions_may_run_somewhere_else() -> None:
    loop = asyncio.get_running_loop()
    assert await FunctionThreads(1, loop.call_soon).run(threading.current_thread, "t") is threading.main_thread()


async def test_no_more_run_than_there_is_room_for_and_a_cancelled_one_keeps_its_place_until_it_ends(
    threads: FunctionThreads,
) -> None:
    loop = asyncio.get_running_loop()
    began, go_on = threading.Event(), threading.Event()

    def work() -> str:
        began.set()
        go_on.wait(at_most(20))
        return "done"

    first = loop.create_task(threads.run(work, "first"))
    await until(began.is_set, "the first runs")
    second = loop.create_task(threads.run(lambda: "second", "second"))
    first.cancel()
    await asyncio.wait([first])
    await asyncio.sleep(0)
    assert not second.done()
    go_on.set()
    assert await asyncio.wait_for(second, at_most(10)) == "second"


def test_a_function_that_outlives_its_loop_harms_nobody(threads: FunctionThreads) -> None:
    began, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        go_on.wait(at_most(20))
        ended.set()

    async def main() -> None:
        task = asyncio.get_running_loop().create_task(threads.run(work, "t"))
        await until(began.is_set, "it runs")
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(main())
    go_on.set()
    assert ended.wait(at_most(10))
