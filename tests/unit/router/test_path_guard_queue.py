from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.support.bugs import reported_bugs
from tests.support.waiting import at_most
from tests.unit.router.fakes import RouterRig, problem_of

from trunkline.core.call import Call
from trunkline.core.errors import DRAINING, INTERNAL, PATH_TRAVERSAL, QUEUE_FULL, UNKNOWN_TOOL, Problem
from trunkline.router import path_guard

LONG = ["a..b"] * 20_000
WITH_TRAVERSAL = [*LONG, "../x"]


def guarded(folder: Path, **options: Any) -> RouterRig:
    rig = RouterRig(folder, **options)
    rig.add("files", "read", guards_paths=True)
    return rig


def call(rig: RouterRig, value: object) -> Call:
    return rig.call("files.read", {"arguments": {"text": value}})


async def looked(rig: RouterRig) -> None:
    async with asyncio.timeout(at_most(60)):
        while rig.router.in_flight > len(rig.sources["files"].held):
            await asyncio.sleep(0.001)


async def test_a_long_call_is_looked_at_beside_the_loop_and_then_sent_as_it_was_written(tmp_path: Path) -> None:
    rig = guarded(tmp_path)
    one = call(rig, LONG)
    assert not rig.sources["files"].held
    assert rig.router.in_flight == 1
    await looked(rig)
    assert rig.sources["files"].held == [one]
    assert bytes(one.params).count(b"a..b") == len(LONG)


async def test_a_long_call_with_a_path_traversal_is_refused_and_named_like_any_other(tmp_path: Path) -> None:
    rig = guarded(tmp_path)
    one = call(rig, WITH_TRAVERSAL)
    await looked(rig)
    problem = problem_of(one)
    assert (problem.code, problem.executed) == (PATH_TRAVERSAL, "no")
    assert problem.message.endswith(f"`arguments.text[{len(LONG)}]`")
    assert not rig.sources["files"].held


async def test_short_calls_do_not_wait_for_long_ones(tmp_path: Path) -> None:
    rig = guarded(tmp_path)
    long_one = call(rig, LONG)
    short = call(rig, "a..b")
    assert rig.sources["files"].held == [short]
    await looked(rig)
    assert rig.sources["files"].held == [short, long_one]


async def test_a_call_that_nobody_waits_for_any_more_is_not_sent(tmp_path: Path) -> None:
    rig = guarded(tmp_path)
    first, second = call(rig, LONG), call(rig, LONG)
    first.cancel("test")
    second.cancel("test")
    await looked(rig)
    assert not rig.sources["files"].held
    assert rig.ended == [first, second]


async def test_a_tool_that_went_away_meanwhile_is_unknown(tmp_path: Path) -> None:
    rig = guarded(tmp_path)
    rig.add("other", "read")
    one = call(rig, LONG)
    rig.router.registry.remove("files")
    async with asyncio.timeout(at_most(60)):
        while not one.done:
            await asyncio.sleep(0.001)
    assert problem_of(one).code is UNKNOWN_TOOL


async def test_a_gateway_that_shuts_down_meanwhile_says_so(tmp_path: Path) -> None:
    rig = guarded(tmp_path)
    looked_at, waits = call(rig, LONG), call(rig, LONG)
    rig.router.drain()
    assert problem_of(waits).code is DRAINING
    await looked(rig)
    assert problem_of(looked_at).code is DRAINING


async def test_what_waits_to_be_looked_at_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(path_guard, "_MAX_WAITING_BYTES", 200_000)
    rig = guarded(tmp_path)
    running, waits, refused = (call(rig, LONG) for _ in range(3))
    problem = problem_of(refused)
    assert (problem.code, problem.retryable) == (QUEUE_FULL, True)
    await looked(rig)
    assert rig.sources["files"].held == [running, waits]


async def test_a_check_that_fails_refuses_its_call_and_those_behind_it_are_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bugs = reported_bugs()
    check, checked = path_guard.traversal_problem, list[bool]()

    def fails_once(call: Call, start: int) -> Problem | None:
        checked.append(True)
        if len(checked) == 1:
            raise RuntimeError("a bug of the guard")
        return check(call, start)

    monkeypatch.setattr(path_guard, "traversal_problem", fails_once)
    rig = guarded(tmp_path)
    bad, good = call(rig, LONG), call(rig, LONG)
    await looked(rig)
    assert problem_of(bad).code is INTERNAL
    assert rig.sources["files"].held == [good]
    assert len(bugs) == 1


async def test_other_long_requests_are_looked_at_too(tmp_path: Path) -> None:
    rig = guarded(tmp_path)
    rig.serve("files", prompts=["review"])
    good = rig.request("prompts/get", {"name": "review", "arguments": {"text": "a..b " * 20_000}})
    bad = rig.request("prompts/get", {"name": "review", "arguments": {"text": "a..b " * 20_000 + " ../x"}})
    await looked(rig)
    assert problem_of(bad).code is PATH_TRAVERSAL
    assert rig.sources["files"].held == [good]
