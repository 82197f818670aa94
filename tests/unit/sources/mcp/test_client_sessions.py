from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.waiting import until
from tests.unit.router.virtual_clock import ClockLoop, run_with_clock
from tests.unit.sources.mcp.memory_session import MemorySession, new_call, session_on

from trunkline.core.call import Call, Failure, Result
from trunkline.core.errors import SOURCE_LOST, SOURCE_START_FAILED, TOO_MANY_LANES, GatewayError, Problem
from trunkline.runtime.server_lifecycle import RetryBackoff
from trunkline.sources.mcp import client_sessions as lanes_module
from trunkline.sources.mcp.client_sessions import ClientSessions, session_key
from trunkline.sources.mcp.session import UpstreamSession

GONE = Problem(code=SOURCE_LOST, message="Server s: exited")


class ProcessLane(MemorySession):
    is_process = True


class EndingLane(ProcessLane):
    """Its process has just ended, and how is not known yet."""

    @property
    def usable(self) -> bool:
        return False


class Opener:
    """Opens lanes when the test lets it, and remembers them."""

    def __init__(self, kind: type[MemorySession] = MemorySession) -> None:
        self.kind = kind
        self.lanes: list[MemorySession] = []
        self.declared: list[bytes] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.failure: Exception | None = None
        self.cleaned_up = 0

    async def __call__(self, capabilities: bytes) -> UpstreamSession:
        self.declared.append(capabilities)
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0.05)  # as a process that takes a moment to end
            self.cleaned_up += 1
            raise
        if self.failure is not None:
            raise self.failure
        lane = self.kind()
        self.lanes.append(lane)
        return session_on(lane)


@contextlib.asynccontextmanager
async def lanes_with(opener: Opener, **options: Any) -> AsyncIterator[ClientSessions]:
    lanes = ClientSessions("s", opener, **{"max_sessions": 3, "idle_s": 1000.0, **options})
    try:
        yield lanes
    finally:
        await lanes.close()


def submit(lanes: ClientSessions, call: Call) -> Call:
    key = session_key(call.caller)
    assert key is not None
    lanes.submit(call, key)
    return call


def problem(call: Call) -> Problem:
    assert isinstance(call.outcome, Failure)
    return call.outcome.problem


async def opened(opener: Opener, count: int = 1) -> list[MemorySession]:
    await until(lambda: len(opener.lanes) == count and opener.lanes[-1].sent, f"{count} lanes are open and in use")
    return opener.lanes


# Who gets which lane -------------------------------------------------------------------------------------------------


@pytest.mark.law
async def test_principal_and_capabilities_tell_lanes_apart_as_well() -> None:
    opener = Opener()
    async with lanes_with(opener) as lanes:
        submit(lanes, new_call("one"))
        submit(lanes, new_call("one", principal="other"))
        submit(lanes, new_call("one", capabilities=b'{"roots":{}}'))
        await until(lambda: len(opener.lanes) == 3, "three lanes")
        assert opener.declared == [b"{}", b"{}", b'{"roots":{}}']


async def test_calls_wait_for_their_lane_and_go_in_order() -> None:
    opener = Opener()
    opener.gate.clear()
    async with lanes_with(opener) as lanes:
        calls = [submit(lanes, new_call()) for _ in range(4)]
        calls[1].cancel("changed its mind")
        assert (problem(calls[1]).phase, problem(calls[1]).executed) == ("queued", "no")
        await asyncio.sleep(0)
        assert [call.phase for call in calls] == ["queued"] * 4
        opener.gate.set()
        (lane,) = await opened(opener)
        assert len(lane.sent) == 3
        assert [call.upstream_id for call in calls] == [1, 0, 2, 3]


# Failing -------------------------------------------------------------------------------------------------------------


async def test_a_lane_that_cannot_be_opened_answers_those_that_wait() -> None:
    opener = Opener()
    opener.gate.clear()
    opener.failure = GatewayError(
        Problem(code=SOURCE_START_FAILED, message="Server s: no such file", hint="install it")
    )
    async with lanes_with(opener) as lanes:
        calls = [submit(lanes, new_call()) for _ in range(3)]
        opener.gate.set()
        await until(lambda: all(call.done for call in calls), "all are answered")
        for call in calls:
            assert problem(call).code is SOURCE_START_FAILED
            assert problem(call).message == "Server s: no such file"
            assert problem(call).hint == "install it"
            assert (problem(call).executed, problem(call).tool) == ("no", "t")
        assert len(lanes) == 0


async def test_even_an_error_of_ours_while_opening_answers_those_that_wait() -> None:
    opener = Opener()
    opener.failure = ValueError("a bug")
    async with lanes_with(opener) as lanes:
        call = submit(lanes, new_call())
        await until(lambda: call.done, "it is answered")
        assert problem(call).executed == "no"
        assert len(lanes) == 0


async def test_starts_that_keep_failing_are_not_tried_for_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RetryBackoff, "next_delay_s", lambda self: 60.0)
    opener = Opener()
    opener.failure = GatewayError(Problem(code=SOURCE_START_FAILED, message="no"))
    async with lanes_with(opener) as lanes:
        first = submit(lanes, new_call())
        await until(lambda: first.done, "the first is answered")
        refused = submit(lanes, new_call("two"))
        assert problem(refused).code is SOURCE_START_FAILED
        assert problem(refused).retry_after_ms
        assert opener.declared == [b"{}"]


async def test_starts_that_fail_for_what_one_client_declares_keep_nobody_else_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(RetryBackoff, "next_delay_s", lambda self: 60.0)
    opener = Opener()
    opener.failure = GatewayError(Problem(code=SOURCE_START_FAILED, message="no"))
    async with lanes_with(opener) as lanes:
        first = submit(lanes, new_call(capabilities=b'{"sampling":{}}'))
        await until(lambda: first.done, "it is answered")
        opener.failure = None
        submit(lanes, new_call("two"))
        await opened(opener)


async def test_calls_wait_for_a_start_that_is_due_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RetryBackoff, "next_delay_s", lambda self: 0.1)
    opener = Opener()
    opener.failure = GatewayError(Problem(code=SOURCE_START_FAILED, message="no"))
    async with lanes_with(opener) as lanes:
        first = submit(lanes, new_call())
        await until(lambda: first.done, "the first is answered")
        opener.failure = None
        second = submit(lanes, new_call("two"))
        assert not second.done
        await opened(opener)


async def test_a_process_that_crashes_is_given_a_rest_and_those_of_others_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(RetryBackoff, "next_delay_s", lambda self: 60.0)
    opener = Opener(ProcessLane)
    async with lanes_with(opener) as lanes:
        submit(lanes, new_call("one"))
        (lane,) = await opened(opener)
        assert lanes.processes == 1
        lane.lose(GONE)
        await until(lambda: lane.closed, "the crash is noticed")
        assert lanes.processes == 0
        refused = problem(submit(lanes, new_call("one")))
        assert (refused.code, refused.executed) == (SOURCE_START_FAILED, "no")
        assert refused.retry_after_ms
        submit(lanes, new_call("two"))
        await opened(opener, 2)
        lanes.forget("one")  # whoever comes again as somebody else is not known
        submit(lanes, new_call("one"))
        await opened(opener, 3)


async def test_a_session_that_a_server_forgot_is_opened_again_however_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RetryBackoff, "next_delay_s", lambda self: 60.0)
    opener = Opener()
    async with lanes_with(opener) as lanes:
        for number in range(1, 4):
            submit(lanes, new_call())
            lane = (await opened(opener, number))[-1]
            lane.lose(GONE)
        assert lanes.processes == 0


async def test_a_process_that_ends_right_behind_its_handshake_answers_those_that_wait() -> None:
    opener = Opener(EndingLane)
    async with lanes_with(opener) as lanes:
        call = submit(lanes, new_call())
        await until(lambda: call.done, "it is answered")
        assert (problem(call).code, problem(call).executed) == (SOURCE_START_FAILED, "no")
        await until(lambda: opener.lanes[0].closed, "the session is closed")


async def test_a_call_right_after_the_loss_is_not_sent_to_the_dead_lane() -> None:
    opener = Opener()
    async with lanes_with(opener) as lanes:
        submit(lanes, new_call())
        (lane,) = await opened(opener)
        lane.lose(GONE)
        call = submit(lanes, new_call())
        assert len(lane.sent) == 1
        _, second = await opened(opener, 2)
        second.answer({"id": 1}, {})
        assert isinstance(call.outcome, Result)
        await until(lambda: lane.closed, "the lost session is closed")
        assert [lane.closed for lane in opener.lanes] == [1, 0]


# Limits --------------------------------------------------------------------------------------------------------------


async def test_the_lane_silent_for_longest_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes_module, "_SILENT_S", 0.0)
    opener = Opener()
    async with lanes_with(opener, max_sessions=2) as lanes:
        for number, session in enumerate(("one", "two"), 1):
            submit(lanes, new_call(session))
            await opened(opener, number)
            opener.lanes[-1].answer({"id": 1}, {})
        again = submit(lanes, new_call("one"))
        opener.lanes[0].answer({"id": 2}, {})
        assert again.done
        submit(lanes, new_call("three"))
        await opened(opener, 3)
        await until(lambda: opener.lanes[1].closed, "the session of `two` is closed")
        assert [lane.closed for lane in opener.lanes] == [0, 1, 0]


async def test_a_client_that_was_heard_of_lately_keeps_its_lane() -> None:
    opener = Opener()
    async with lanes_with(opener, max_sessions=1) as lanes:
        submit(lanes, new_call("one"))
        (lane,) = await opened(opener)
        lane.answer({"id": 1}, {})
        assert problem(submit(lanes, new_call("two"))).code is TOO_MANY_LANES
        assert lane.closed == 0


async def test_an_idle_lane_is_closed_after_a_while_and_a_busy_one_is_not() -> None:
    opener = Opener()
    async with lanes_with(opener, idle_s=0.2) as lanes:
        submit(lanes, new_call("idle"))
        submit(lanes, new_call("busy"))
        idle, busy = await opened(opener, 2)
        idle.answer({"id": 1}, {})
        await until(lambda: idle.closed, "the idle lane is closed")
        assert busy.closed == 0
        assert len(lanes) == 1
        busy.answer({"id": 1}, {})
        await until(lambda: busy.closed, "the other one too, once it is idle")
        assert len(lanes) == 0
    assert [lane.closed for lane in opener.lanes] == [1, 1]


def test_a_client_that_asked_while_we_were_stopped_keeps_its_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ClockLoop)
        opener = Opener()
        async with lanes_with(opener, idle_s=100.0) as lanes:
            submit(lanes, new_call("one"))
            submit(lanes, new_call("silent"))
            await asyncio.sleep(1)
            for lane in opener.lanes:
                lane.answer({"id": 1}, {})
            await asyncio.sleep(50)
            loop.now += 1000
            await asyncio.sleep(0.5)  # in which its request is read
            submit(lanes, new_call("one"))
            await asyncio.sleep(20)
            assert [lane.closed for lane in opener.lanes] == [0, 1]
            opener.lanes[0].answer({"id": 2}, {})

    run_with_clock(monkeypatch, main())


# Clients that leave --------------------------------------------------------------------------------------------------


async def test_forgetting_a_session_whose_lane_is_opening_answers_its_calls_and_stops_the_opening() -> None:
    opener = Opener()
    opener.gate.clear()
    async with lanes_with(opener) as lanes:
        call = submit(lanes, new_call("one"))
        await until(lambda: opener.declared, "the session is being opened")
        lanes.forget("one")
        assert (problem(call).code, problem(call).executed) == (SOURCE_LOST, "no")
        assert len(lanes) == 0
        opener.gate.set()
        await until(lambda: opener.cleaned_up, "the opening was stopped")
        assert opener.lanes == []


async def test_closing_waits_for_what_is_opening_and_what_is_ending() -> None:
    opener = Opener()
    lanes = ClientSessions("s", opener, max_sessions=3, idle_s=1000)
    open_call = submit(lanes, new_call("open"))
    (lane,) = await opened(opener)
    opener.gate.clear()
    waiting = submit(lanes, new_call("opening"))
    await until(lambda: len(opener.declared) == 2, "the second is being opened")
    await lanes.close()
    assert problem(open_call).executed == "unknown"
    assert problem(waiting).executed == "no"
    assert lane.closed == 1
    assert opener.cleaned_up == 1
    assert len(asyncio.all_tasks()) == 1
