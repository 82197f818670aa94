from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.support.waiting import until

from trunkline.search.index.encoder import LazyEncoder
from trunkline.search.index.query_encoder import QueryEncoder

ENCODER = LazyEncoder()


@asynccontextmanager
async def query_thread(encoder: LazyEncoder = ENCODER) -> AsyncIterator[QueryEncoder]:
    thread = QueryEncoder(encoder, lambda problem: None)
    try:
        yield thread
    finally:
        thread.stop()
        await until(lambda: not thread.alive, "the thread ends")


async def asked(thread: QueryEncoder, text: str):
    answer = asyncio.get_running_loop().create_future()
    thread.ask(text, asyncio.get_running_loop(), answer.set_result)
    return await answer


async def test_those_who_ask_the_same_meanwhile_share_the_answer():
    async with query_thread() as thread:
        first, second = await asyncio.gather(asked(thread, "send a mail"), asked(thread, "send a mail"))
        assert first is second


async def test_one_listener_that_fails_is_no_other_ones_fault():
    loop = asyncio.get_running_loop()
    reported = []
    loop.set_exception_handler(lambda loop, context: reported.append(context["exception"]))
    async with query_thread() as thread:
        thread.ask("send a mail", loop, lambda vector: 1 / 0)
        assert await asked(thread, "send a mail") is not None
    assert [type(error) for error in reported] == [ZeroDivisionError]


async def test_beyond_a_number_of_waiting_queries_there_is_no_answer():
    async with query_thread() as thread:
        answers = await asyncio.gather(*(asked(thread, f"query {number}") for number in range(200)))
        assert {answer is None for answer in answers} == {True, False}
        assert await asked(thread, "query after that") is not None


async def test_only_the_latest_answers_are_remembered_and_given_at_once(monkeypatch):
    monkeypatch.setattr("trunkline.search.index.query_encoder._REMEMBERED", 20)
    async with query_thread() as thread:
        vectors = [await asked(thread, f"{number}") for number in range(30)]
        answers: list[object] = []
        thread.ask("29", asyncio.get_running_loop(), answers.append)
        thread.ask("0", asyncio.get_running_loop(), answers.append)
        assert len(answers) == 1
        assert answers[0] is vectors[29]


async def test_who_still_waits_at_the_end_gets_none_and_so_does_who_comes_later():
    async with query_thread() as thread:
        waiting = [asyncio.ensure_future(asked(thread, f"query {number}")) for number in range(50)]
        await asyncio.sleep(0)
        thread.stop()
        answers = await asyncio.gather(*waiting)
        assert answers[-1] is None
        assert await asked(thread, "too late") is None
