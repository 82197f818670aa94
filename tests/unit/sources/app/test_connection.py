"""One connection of an app: answers in any order, junk that costs nothing, and the limits."""

from __future__ import annotations

import asyncio
import json
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.support.app_peer import AppPeer
from tests.support.app_peer_stage import HOST, app_stage, ended, problem, value
from tests.support.waiting import PATIENCE_S, at_most, until

from trunkline.core.call import Json
from trunkline.core.errors import (
    ANSWER_TOO_LARGE,
    DEADLINE,
    QUEUE_FULL,
    RATE_LIMIT,
    SOURCE_LOST,
    SOURCE_PROTOCOL,
)

TOOL = "A.echo"


def text(outcome: Any) -> str:
    return value(outcome)["content"][0]["text"]


async def test_answers_come_in_any_order(tmp_path: Path) -> None:
    async with app_stage(tmp_path) as stage, stage.app("A", echo=False) as app:
        calls = [stage.begin(TOOL, {"n": n}) for n in range(50)]
        asked = [await app.hear() for _ in calls]
        for invocation in reversed(asked):
            app.answer(invocation, f"n{invocation['parameters']['n']}")
        assert [text(await ended(call)) for call in calls] == [f"n{n}" for n in range(50)]


async def test_a_line_may_come_byte_by_byte_with_any_line_end(tmp_path: Path) -> None:
    async with app_stage(tmp_path) as stage, stage.app("A", echo=False) as app:
        call = stage.begin(TOOL)
        number = (await app.hear())["correlationId"]
        answer = {"type": "toolResponse", "correlationId": number, "result": {"success": True, "data": "é"}}
        for byte in b"\r\n\n" + json.dumps(answer, ensure_ascii=False).encode() + b"\r\n\r\n":
            app.writer.write(bytes([byte]))
            await app.writer.drain()
        assert text(await ended(call)) == "é"


async def test_junk_and_strange_ids_cost_nothing(tmp_path: Path) -> None:
    async with app_stage(tmp_path) as stage, stage.app("A", echo=False) as app:
        call = stage.begin(TOOL)
        invocation = await app.hear()
        app.say(b"Starting up...", b"\xff\xfe", b"[1,2,3]", b'{"type":"weather"}', b"{" * 5000)
        app.answer(999_999_999, "nobody's")
        app.send({"type": "toolProgress", "correlationId": 999_999_999, "progress": 1})
        app.answer(invocation, "first")
        app.answer(invocation, "second")
        assert text(await ended(call)) == "first"
        assert await stage.counted("noise_lines", "A", 5) == 5
        assert await stage.counted("unmatched_answers", "A", 2) == 2
        assert await stage.counted("unmatched_progress", "A") == 1
        assert any("nobody waits for" in note for note in stage.notes)
        assert stage.health("A").state == "ready"


@pytest.mark.parametrize(
    "data",
    [b"NaN", b"[1,2", b'"\xff"', b"[" * 100_000, b"tru"],
)
async def test_a_broken_answer_fails_its_call_at_once_and_no_other(tmp_path: Path, data: bytes) -> None:
    async with app_stage(tmp_path) as stage, stage.app("A", echo=False) as app:
        broken, beside = stage.begin(TOOL), stage.begin(TOOL)
        numbers = [(await app.hear())["correlationId"] for _ in range(2)]
        app.say(b'{"type":"toolResponse","correlationId":%d,"result":{"success":true,"data":%b}}' % (numbers[0], data))
        failed = problem(await ended(broken))
        assert (failed.code, failed.executed, failed.source) == (SOURCE_PROTOCOL, "unknown", "A")
        app.answer(numbers[1], "fine")
        assert text(await ended(beside)) == "fine"
        assert stage.health("A").state == "ready"


async def test_a_disconnect_fails_every_open_call_of_that_app_at_once_and_no_other(tmp_path: Path) -> None:
    async with app_stage(tmp_path) as stage, stage.app("B", echo=False) as other:
        async with stage.app("A", echo=False) as app:
            calls = [stage.begin(TOOL) for _ in range(20)]
            beside = stage.begin("B.echo")
            asked = await other.hear()
            await app.hear()
            app.reset()
            for call in calls:
                lost = problem(await ended(call))
                assert (lost.code, lost.executed, lost.message) == (
                    SOURCE_LOST,
                    "unknown",
                    "Server A: the app disconnected",
                )
        other.answer(asked, "still here")
        assert text(await ended(beside)) == "still here"


async def test_half_an_answer_and_the_end_is_a_lost_call(tmp_path: Path) -> None:
    async with app_stage(tmp_path) as stage, stage.app("A", echo=False) as app:
        call = stage.begin(TOOL)
        number = (await app.hear())["correlationId"]
        app.writer.write(b'{"type":"toolResponse","correlationId":%d,"result":{"succ' % number)
        await app.writer.drain()
        app.writer.close()
        assert problem(await ended(call)).code is SOURCE_LOST


# Cancelling and progress ----------------------------------------------------------------------------------------------


async def test_a_call_past_its_deadline_is_cancelled_and_its_late_answer_ignored(tmp_path: Path) -> None:
    async with app_stage(tmp_path, timeout=0.2) as stage, stage.app("A", echo=False) as app:
        call = stage.begin(TOOL)
        number = (await app.hear())["correlationId"]
        late = problem(await ended(call))
        assert (late.code, late.executed) == (DEADLINE, "unknown")
        assert late.message == "Tool execution timed out after 0.2 seconds"
        assert await app.hear() == {"type": "toolCancel", "correlationId": number}
        app.answer(number, "late")
        await stage.counted("unmatched_answers", "A")


async def test_a_cancelled_call_is_told_to_the_app(tmp_path: Path) -> None:
    async with app_stage(tmp_path) as stage, stage.app("A", echo=False) as app:
        call = stage.begin(TOOL)
        number = (await app.hear())["correlationId"]
        call.cancel("the user changed her mind")
        assert await app.hear() == {"type": "toolCancel", "correlationId": number}


async def test_progress_reaches_whoever_asked_for_it(tmp_path: Path) -> None:
    replies: list[dict[str, Any]] = []

    def on_notification(method: str, params: Json) -> None:
        assert method == "notifications/progress"
        replies.append(json.loads(bytes(params)))

    async with app_stage(tmp_path) as stage, stage.app("A", echo=False) as app:
        call = stage.begin(TOOL, on_notification=on_notification)
        number = (await app.hear())["correlationId"]
        app.send({"type": "toolProgress", "correlationId": number, "progress": 1, "total": 3, "message": "one"})
        app.send({"type": "toolProgress", "correlationId": number, "data": {"rows": 2}})
        app.send({"type": "ToolProgress", "CorrelationId": number, "Message": "three"})
        app.answer(number, "done")
        assert text(await ended(call)) == "done"
        assert replies == [
            {"progress": 1, "total": 3, "message": "one"},
            {"progress": 1, "message": '{"rows": 2}'},
            {"progress": 2, "message": "three"},
        ]


@pytest.mark.slow
async def test_progress_buys_time_whether_or_not_it_is_shown(tmp_path: Path) -> None:
    half_s = at_most(0.5)
    async with app_stage(tmp_path, timeout=2 * half_s) as stage, stage.app("A", echo=False) as app:
        call = stage.begin(TOOL)
        number = (await app.hear())["correlationId"]
        await until(lambda: time.monotonic() - call.started_at > half_s, "half of its time is over")
        app.send({"type": "toolProgress", "correlationId": number})
        late = problem(await ended(call))
        assert late.code is DEADLINE
        assert late.phase == "partial"
        assert call.progressed_at - call.started_at >= half_s


# Limits ---------------------------------------------------------------------------------------------------------------


async def test_more_calls_than_its_queue_are_refused_and_room_is_made_by_answers(tmp_path: Path) -> None:
    async with app_stage(tmp_path, queue=2) as stage, stage.app("A", echo=False) as app:
        first, second = stage.begin(TOOL), stage.begin(TOOL)
        refused = problem(stage.begin(TOOL).outcome)
        assert (refused.code, refused.executed, refused.retryable) == (QUEUE_FULL, "no", True)
        assert refused.retry_after_ms
        app.answer(await app.hear(), "one")
        assert text(await ended(first)) == "one"
        third = stage.begin(TOOL)
        for call in (second, third):
            app.answer(await app.hear(), "x")
            assert text(await ended(call)) == "x"


async def test_calls_beyond_the_rate_are_refused_for_that_app_alone(tmp_path: Path) -> None:
    async with app_stage(tmp_path, rate=2) as stage, stage.app("A"), stage.app("B"):
        calls = [stage.begin(TOOL) for _ in range(3)]
        refused = problem(calls[2].outcome)
        assert (refused.code, refused.executed, refused.retryable) == (RATE_LIMIT, "no", True)
        assert refused.retry_after_ms is not None and 0 < refused.retry_after_ms <= 1000
        assert value(await stage.call("B.echo", {"a": 1}))["structuredContent"] == {"a": 1}
        assert [value(await ended(call))["structuredContent"] for call in calls[:2]] == [{}, {}]


async def test_a_message_over_the_limit_fails_its_call_and_cuts_the_link(tmp_path: Path) -> None:
    async with app_stage(tmp_path) as stage, stage.app("A", echo=False) as app:
        large, beside = stage.begin(TOOL), stage.begin(TOOL)
        number = (await app.hear())["correlationId"]
        await app.hear()
        app.writer.write(b'{"type":"toolResponse","correlationId":%d,"result":{"success":true,"data":"' % number)
        app.writer.write(b"x" * 17 * 1024 * 1024)
        too_large = problem(await ended(large))
        assert (too_large.code, too_large.executed) == (ANSWER_TOO_LARGE, "unknown")
        assert problem(await ended(beside)).code is SOURCE_LOST
        await app.ended()
        await stage.becomes("A", "down")
        async with stage.app("A"):
            assert value(await stage.call(TOOL, {"a": 1}))["structuredContent"] == {"a": 1}


async def test_a_message_over_the_limit_that_is_nobodys_fails_all(tmp_path: Path) -> None:
    async with app_stage(tmp_path) as stage, stage.app("A", echo=False) as app:
        calls = [stage.begin(TOOL) for _ in range(3)]
        await app.hear()
        app.writer.write(b"x" * 17 * 1024 * 1024)
        assert {problem(await ended(call)).code for call in calls} == {ANSWER_TOO_LARGE}


@pytest.mark.slow
async def test_an_app_that_stops_reading_is_refused_more_and_others_go_on(tmp_path: Path) -> None:
    async with app_stage(tmp_path, timeout=at_most(2)) as stage, stage.app("B"), await AppPeer.dial(stage.port) as app:
        await app.register("A")
        app.writer.transport.pause_reading()  # type: ignore[attr-defined]
        large = {"text": "x" * 200_000}
        calls = []

        def refused() -> bool:
            calls.append(stage.begin(TOOL, large))
            return calls[-1].done

        await until(refused, "it is refused")
        full = problem(calls[-1].outcome)
        assert (full.code, full.executed) == (QUEUE_FULL, "no")
        assert value(await stage.call("B.echo", {"a": 1}))["structuredContent"] == {"a": 1}
        late = problem(await ended(calls[0]))
        assert late.code is DEADLINE
        assert stage.health("A").state == "ready"


@pytest.mark.parametrize(("source", "line"), [("A", b"x"), ("A", b"{}"), (HOST, b"x")])
async def test_very_many_lines_at_once_leave_others_their_turn(tmp_path: Path, source: str, line: bytes) -> None:
    async with app_stage(tmp_path) as stage, await AppPeer.dial(stage.port) as app:
        if source == "A":
            await app.register("A")
        app.say(*[line] * 20_000)  # few enough bytes to be read at once
        at_each_turn = [0]
        async with asyncio.timeout(PATIENCE_S):
            while at_each_turn[-1] < 20_000:
                await asyncio.sleep(0)
                at_each_turn.append(stage.counts.get((source, "noise_lines"), 0))
    assert max(after - before for before, after in pairwise(at_each_turn)) < 15_000
