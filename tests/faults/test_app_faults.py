"""Faults of connected apps, each over a real socket to a real gateway."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.support.answers import (
    ANSWER_TOO_LARGE,
    BROKE_PROTOCOL,
    DOWN,
    QUEUE_FULL,
    TIMED_OUT,
    UNKNOWN_TOOL,
)
from tests.support.app_peer import AppPeer
from tests.support.app_peer_house import house, listens
from tests.support.scenes import all_of, assert_all_lost
from tests.support.waiting import at_most, until

RATE_LIMITED = (429, "TL316", "no")


# Not there, hangs and crashes -----------------------------------------------------------------------------------------


async def test_an_app_that_left_is_refused_by_name_and_its_tools_are_gone_at_once(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.client.listen() as stream:
        assert (await here.client.call("T.echo")).situation == UNKNOWN_TOOL
        async with await here.dial():
            assert b"notifications/tools/list_changed" in await anext(stream)
            assert {"T_echo", "T_hang", "T_fault"} < await here.client.tool_names()
        assert b"notifications/tools/list_changed" in await anext(stream)
        assert await here.client.tool_names() == {"Good_echo"}
        refused = await here.client.call("T.echo")
        assert refused.situation == DOWN
        assert refused.error["message"] == "Server T is down: the app disconnected"
        await here.good_works()
        await here.works_again()


async def test_a_hanging_call_times_out_is_cancelled_and_frees_its_place(tmp_path: Path) -> None:
    async with house(tmp_path, timeout=at_most(1), queue=1) as here, await here.dial() as app:
        late = await here.client.call("T_hang")
        assert late.situation == TIMED_OUT
        assert late.error["message"] == f"Tool execution timed out after {at_most(1):g} seconds"
        number = (await app.hear())["correlationId"]
        assert await app.hear() == {"type": "toolCancel", "correlationId": number}
        app.serve()
        assert (await here.client.call("T_echo", {"a": 1})).structured == {"a": 1}


async def test_a_disconnect_loses_every_call_of_that_link_and_no_other(tmp_path: Path) -> None:
    async with house(tmp_path) as here, await here.dial("Slow", ("Slow:echo",)) as slow:
        beside = here.call("Slow_echo")
        asked = await slow.hear()
        for how in ("reset", "goodbye", "half an answer"):
            async with await here.dial() as app:
                lost = [here.call("T_hang", {"n": number}) for number in range(4)]
                numbers = [(await app.hear())["correlationId"] for _ in lost]
                if how == "half an answer":
                    app.writer.write(b'{"type":"toolResponse","correlationId":%d,"result":{"suc' % numbers[0])
                if how == "reset":
                    app.reset()
                else:
                    app.writer.close()
                assert_all_lost(await all_of(lost))
                await here.works_again()
                assert not app.invoked, f"nothing was sent again after {how}"
        slow.answer(asked, "slept")
        assert (await beside).text == "slept"


# Broken messages ------------------------------------------------------------------------------------------------------

BROKEN = {
    "bad JSON": b'{"success":true,"data":[1,2}',
    "bad UTF-8": b'{"success":true,"data":"\xff\xfe"}',
    "NaN": b'{"success":true,"data":NaN}',
    "too deep": b'{"success":true,"data":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    "no result": b"5",
}


async def test_a_broken_answer_fails_its_call_and_nothing_else(tmp_path: Path) -> None:
    async with house(tmp_path) as here, await here.dial() as app:
        for count, (how, result) in enumerate(BROKEN.items(), 1):
            broken, beside = here.call("T_fault"), here.call("T_hang")
            first, second = await app.hear(), await app.hear()
            faulty, proper = sorted((first, second), key=lambda message: message["tool"] != "T:fault")
            app.say(b'{"type":"toolResponse","correlationId":%d,"result":%b}' % (faulty["correlationId"], result))
            assert (await broken).situation == BROKE_PROTOCOL, how
            app.answer(proper, "fine")
            assert (await beside).text == "fine", how
            assert await here.gateway.counted("protocol_errors", "T") == count, how


async def test_banners_wrong_ids_and_second_answers_are_ignored_and_counted(tmp_path: Path) -> None:
    async with house(tmp_path) as here, await here.dial() as app:
        call = here.call("T_echo")
        asked = await app.hear()
        app.say(b"T version 1.0", b"", b"\r", b"{}")
        app.answer(4_000_000_000, "nobody's")
        app.answer(asked, "first")
        app.answer(asked, "second")
        assert (await call).text == "first"

        async def counted() -> bool:
            strays = await here.gateway.counted("unmatched_answers", "T")
            return strays == 2 and await here.gateway.counted("noise_lines", "T") == 2

        await until(counted, "the strays are counted")
        app.serve()
        assert (await here.client.call("T_echo", {"a": 1})).structured == {"a": 1}


async def test_an_answer_that_cannot_be_matched_is_waited_for_until_the_deadline(tmp_path: Path) -> None:
    async with house(tmp_path, timeout=at_most(1)) as here, await here.dial() as app:
        call = here.call("T_fault")
        asked = await app.hear()
        app.say(b'{"result":{"success":tru,"correlationId":%d,"type":"toolResponse"}' % asked["correlationId"])
        assert (await call).situation == TIMED_OUT
        await here.good_works()


# Size and flow --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("readable", [True, False], ids=["id first", "id last"])
async def test_an_answer_over_the_limit_is_refused_and_the_link_is_cut(tmp_path: Path, readable: bool) -> None:
    async with house(tmp_path) as here, await here.dial() as app:
        call = here.call("T_fault")
        number = (await app.hear())["correlationId"]
        data = b'"%b"' % (b"x" * 17 * 1024 * 1024)
        if readable:
            app.say(b'{"type":"toolResponse","correlationId":%d,"result":{"success":true,"data":%b}}' % (number, data))
        else:
            app.say(b'{"result":{"success":true,"data":%b},"type":"toolResponse","correlationId":%d}' % (data, number))
        assert (await call).situation == ANSWER_TOO_LARGE
        await app.ended()
        await here.good_works()
        await here.works_again()


async def test_an_answer_just_under_the_limit_arrives_whole(tmp_path: Path) -> None:
    size = 7 * 1024 * 1024  # as text and as data it is there twice
    async with house(tmp_path) as here, await here.dial() as app:
        call = here.call("T_fault")
        app.answer(await app.hear(), "x" * size)
        assert len((await call).text) == size


async def test_an_app_that_stops_reading_holds_up_nobody_else(tmp_path: Path) -> None:
    async with house(tmp_path, timeout=at_most(2)) as here, await here.dial() as app:
        app.writer.transport.pause_reading()  # type: ignore[attr-defined]
        big = {"x": "x" * 1_000_000}
        stuck = [here.call("T_echo", big) for _ in range(12)]
        for _ in range(20):
            await here.good_works()
        assert {answer.situation for answer in await all_of(stuck)} <= {TIMED_OUT, QUEUE_FULL}
        app.writer.transport.resume_reading()  # type: ignore[attr-defined]
        app.serve()

        async def reads_again() -> bool:
            answer = await here.client.call("T_echo", {"a": 1})
            return not answer.failed and answer.structured == {"a": 1}

        await until(reads_again, "it is called again once it reads")


async def test_a_slow_wire_is_no_fault(tmp_path: Path) -> None:
    async def answer_slowly(app: AppPeer, invocation: dict[str, Any]) -> None:
        result = {"success": True, "data": invocation["parameters"], "error": None}
        message = {"type": "toolResponse", "correlationId": invocation["correlationId"], "result": result}
        await asyncio.sleep(0.3)
        for byte in json.dumps(message).encode() + b"\n":
            app.writer.write(bytes([byte]))
            await app.writer.drain()

    async with house(tmp_path) as here, await here.dial() as app:
        app.serve(answer_slowly)
        answers = await all_of(here.client.call("T_echo", {"n": number}) for number in range(4))
        assert [answer.structured["n"] for answer in answers] == [0, 1, 2, 3]


async def test_more_calls_than_queue_or_rate_allow_are_refused_with_the_time_to_wait(tmp_path: Path) -> None:
    async with house(tmp_path, queue=2, rate=1000) as here, await here.dial() as app:
        open_calls = [here.call("T_hang") for _ in range(2)]
        asked = [await app.hear() for _ in open_calls]
        refused = await here.client.call("T_hang")
        assert refused.situation == QUEUE_FULL
        assert refused.error["data"]["retryAfterMs"] > 0
        for invocation in asked:
            app.answer(invocation, "x")
        assert [answer.text for answer in await all_of(open_calls)] == ["x", "x"]


async def test_calls_beyond_the_rate_are_refused(tmp_path: Path) -> None:
    async with house(tmp_path, rate=1) as here, await here.dial() as app:
        app.serve()
        answers = await all_of(here.client.call("T_echo") for _ in range(20))
        refused = [answer for answer in answers if answer.failed]
        assert refused
        assert {answer.situation for answer in refused} == {RATE_LIMITED}
        assert all(0 < answer.error["data"]["retryAfterMs"] <= 1001 for answer in refused)
        assert len(app.invoked) == len(answers) - len(refused)


# Progress, cancelling, ending -----------------------------------------------------------------------------------------


async def test_progress_without_end_ends_at_the_longest_time_a_call_may_take(tmp_path: Path) -> None:
    async def go_on(app: AppPeer, invocation: dict[str, Any]) -> None:
        for step in range(1_000_000):
            app.send({"type": "toolProgress", "correlationId": invocation["correlationId"], "progress": step})
            await asyncio.sleep(0.1)

    async with (
        house(tmp_path, timeout=at_most(1), limits={"call_seconds": at_most(3)}) as here,
        await here.dial() as app,
    ):
        app.serve(go_on)
        endless = await here.client.call("T_hang", meta={"progressToken": "mine"})
        assert endless.situation == TIMED_OUT
        shown = [notice["params"] for notice in endless.notices if notice["method"] == "notifications/progress"]
        assert len(shown) > 3
        assert {params["progressToken"] for params in shown} == {"mine"}
        await here.good_works()


async def test_a_client_that_leaves_or_cancels_stops_its_call(tmp_path: Path) -> None:
    async with house(tmp_path) as here, await here.dial() as app:
        cancelled = here.call("T_hang", id="mine")
        number = (await app.hear())["correlationId"]
        await here.client.cancel("mine")
        assert await app.hear() == {"type": "toolCancel", "correlationId": number}
        app.answer(number, "too late")
        assert (await cancelled).failed
        async with here.gateway.modern() as modern:
            async with modern.start_call("T_hang", {}):
                number = (await app.hear())["correlationId"]
            assert await app.hear() == {"type": "toolCancel", "correlationId": number}
        app.serve()
        assert (await here.client.call("T_echo", {"a": 1})).structured == {"a": 1}


async def test_a_client_that_ends_its_session_stops_its_calls(tmp_path: Path) -> None:
    async with house(tmp_path) as here, await here.dial() as app, here.gateway.client() as leaving:
        call = asyncio.ensure_future(leaving.call("T_hang"))
        number = (await app.hear())["correlationId"]
        await leaving.delete()
        assert await app.hear() == {"type": "toolCancel", "correlationId": number}
        assert (await call).failed


@pytest.mark.law
async def test_a_cancel_and_an_answer_that_cross_give_one_outcome(tmp_path: Path) -> None:
    async with house(tmp_path) as here, await here.dial() as app:
        for round_number in range(20):
            call = here.call("T_echo", id=f"c{round_number}")
            asked = await app.hear()
            app.answer(asked, "answered")
            await here.client.cancel(f"c{round_number}")
            answer = await call
            assert answer.failed or answer.text == "answered"
            if answer.failed:
                assert await app.hear() == {"type": "toolCancel", "correlationId": asked["correlationId"]}
        await here.good_works()


async def test_a_gateway_that_ends_lets_calls_finish_and_closes_the_links(tmp_path: Path) -> None:
    async with house(tmp_path) as here, await here.dial() as app:
        call = here.call("T_hang")
        asked = await app.hear()
        here.gateway.process.send_signal(signal.SIGTERM)
        await until(lambda: '"stopping"' in here.gateway.log, "it drains")
        app.answer(asked, "in time")
        assert (await call).text == "in time"
        await app.ended()
        assert await asyncio.to_thread(here.gateway.process.wait, at_most(30)) == 0


async def test_a_killed_gateway_is_dialled_again(tmp_path: Path) -> None:
    async with house(tmp_path) as here, await here.dial() as app:
        here.gateway.kill()
        await app.ended()
        here.gateway.start()
        await until(lambda: listens(here.port), "the gateway listens again")
        async with here.gateway.client() as client, await here.dial() as again:
            again.serve()
            assert (await client.call("T_echo", {"a": 1})).structured == {"a": 1}
