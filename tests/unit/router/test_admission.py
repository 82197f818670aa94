"""Admission: how many calls run and wait at a server, and which one is next."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.router.fakes import OK, FakeSource, RouterRig, problem_of

from trunkline.core.call import Call, Failure
from trunkline.core.errors import (
    DRAINING,
    QUEUE_FULL,
    SOURCE_AUTH_REQUIRED,
    SOURCE_DISABLED,
    SOURCE_DOWN,
    SOURCE_LOST,
    Code,
    Problem,
)
from trunkline.core.source import Health, State


class AdmissionRig(RouterRig):
    """A router rig with one server, and calls of its only tool."""

    def __init__(self, folder: Path, state: State = "ready", max_in_flight: int = 2, max_queue: int = 2) -> None:
        super().__init__(folder, in_flight_per_source=max_in_flight, queue_per_source=max_queue)
        self.source: FakeSource = self.add("s", "t", state=state)

    def set(self, state: State, **more: str) -> None:
        self.sinks["s"].health(Health(state=state, **more))

    def enter(self) -> Call:
        return self.call("s_t")

    def leave(self) -> None:
        """Everything that is held ends, and with it whatever comes in meanwhile."""
        for call in self.source.held:
            call.finish(OK)
        assert self.router.in_flight == 0
        self.router.registry.close()


async def test_calls_pass_while_there_is_room_then_wait_then_are_refused(tmp_path: Path) -> None:
    rig = AdmissionRig(tmp_path)
    calls = [rig.enter() for _ in range(5)]
    assert rig.source.held == calls[:2]
    assert [call.done for call in calls] == [False] * 4 + [True]
    problem = problem_of(calls[4])
    assert (problem.code, problem.executed, problem.phase) == (QUEUE_FULL, "no", "queued")
    assert problem.retryable
    assert problem.retry_after_ms
    assert (problem.source, problem.tool) == ("s", "t")
    rig.leave()
    assert all(call.done for call in calls)


async def test_a_place_that_becomes_free_goes_to_the_first_in_line(tmp_path: Path) -> None:
    rig = AdmissionRig(tmp_path, max_in_flight=1)
    first, second, third = (rig.enter() for _ in range(3))
    first.finish(OK)
    assert rig.source.held == [first, second]
    second.finish(OK)
    assert rig.source.held == [first, second, third]
    third.finish(OK)
    assert rig.router.in_flight == 0


async def test_calls_wait_while_the_source_starts_and_go_in_order_when_it_is_ready(tmp_path: Path) -> None:
    rig = AdmissionRig(tmp_path, "starting")
    calls = [rig.enter() for _ in range(2)]
    assert rig.source.held == []
    rig.set("ready")
    assert rig.source.held == calls
    rig.leave()


@pytest.mark.parametrize(
    "state, code",
    [("down", SOURCE_DOWN), ("disabled", SOURCE_DISABLED), ("auth_required", SOURCE_AUTH_REQUIRED)],
)
async def test_a_source_that_will_not_come_refuses_at_once_and_says_who_and_why(
    tmp_path: Path, state: State, code: Code
) -> None:
    rig = AdmissionRig(tmp_path, state)
    rig.set(state, reason="the reason", stderr_tail="last words")
    problem = problem_of(rig.enter())
    assert problem.code is code
    assert problem.message == f"Server s is {state}: the reason"
    assert problem.executed == "no"
    assert "last words" in problem.hint
    assert problem.retryable == (state == "down")
    rig.leave()


async def test_what_to_do_goes_before_what_the_server_wrote(tmp_path: Path) -> None:
    rig = AdmissionRig(tmp_path, "auth_required")
    rig.set("auth_required", hint="log in", stderr_tail="chatter")
    assert problem_of(rig.enter()).hint == "log in"
    rig.leave()


async def test_the_last_error_serves_as_reason_where_there_is_none(tmp_path: Path) -> None:
    rig = AdmissionRig(tmp_path, "down")
    rig.set("down", last_error="it broke")
    assert problem_of(rig.enter()).message == "Server s is down: it broke"
    rig.leave()


@pytest.mark.parametrize("state", ["down", "auth_required"])
async def test_those_that_wait_are_refused_when_the_source_goes_down(tmp_path: Path, state: State) -> None:
    rig = AdmissionRig(tmp_path, "starting")
    calls = [rig.enter() for _ in range(2)]
    rig.set(state, reason="gone")
    assert [problem_of(call).executed for call in calls] == ["no", "no"]
    rig.leave()


async def test_what_is_in_flight_is_left_to_the_source_when_it_goes_down(tmp_path: Path) -> None:
    rig = AdmissionRig(tmp_path)
    call = rig.enter()
    rig.set("down", reason="gone")
    assert not call.done
    call.finish(OK)
    assert call.outcome is OK
    rig.leave()


async def test_a_degraded_source_is_still_used(tmp_path: Path) -> None:
    rig = AdmissionRig(tmp_path, "degraded")
    assert rig.source.held == [rig.enter()]
    rig.leave()


async def test_a_restart_lets_calls_wait_again(tmp_path: Path) -> None:
    rig = AdmissionRig(tmp_path)
    rig.set("starting", reason="lost")
    call = rig.enter()
    assert not call.done
    rig.set("ready")
    assert rig.source.held == [call]
    rig.leave()


async def test_draining_refuses_new_and_waiting_calls_and_lets_the_rest_finish(tmp_path: Path) -> None:
    rig = AdmissionRig(tmp_path, max_in_flight=1)
    running, waiting = rig.enter(), rig.enter()
    rig.router.drain()
    late = rig.enter()
    assert [problem_of(call).code for call in (waiting, late)] == [DRAINING, DRAINING]
    assert not running.done
    rig.set("ready")
    assert problem_of(rig.enter()).code is DRAINING
    rig.leave()


async def test_a_call_that_is_taken_back_leaves_the_queue(tmp_path: Path) -> None:
    rig = AdmissionRig(tmp_path, "starting")
    first, second = rig.enter(), rig.enter()
    assert problem_of(rig.enter()).code is QUEUE_FULL
    first.cancel("changed my mind")
    third = rig.enter()
    rig.set("ready")
    assert rig.source.held == [second, third]
    rig.leave()


async def test_a_call_that_is_taken_back_in_flight_frees_its_place(tmp_path: Path) -> None:
    rig = AdmissionRig(tmp_path, max_in_flight=1)
    first, second = rig.enter(), rig.enter()
    first.cancel("changed my mind")
    assert rig.source.held == [first, second]
    assert not first.finish(OK)
    assert rig.router.in_flight == 1
    rig.leave()


async def test_a_source_that_answers_at_once_gets_through_any_queue(tmp_path: Path) -> None:
    """Each answer frees a place, which serves the next: that must not go one level deeper each time."""
    rig = AdmissionRig(tmp_path, "starting", max_in_flight=1, max_queue=5000)
    calls = [rig.enter() for _ in range(5000)]
    problem = Problem(code=SOURCE_LOST, message="refused")
    rig.source.on_submit = lambda call: call.finish(Failure(problem)) and None
    rig.set("ready")
    assert all(call.done for call in calls)
    rig.leave()


async def test_the_whole_queue_is_refused_even_when_it_is_long(tmp_path: Path) -> None:
    rig = AdmissionRig(tmp_path, "starting", max_queue=5000)
    calls = [rig.enter() for _ in range(5000)]
    rig.set("down", reason="gone")
    assert all(call.done for call in calls)
    rig.leave()


async def test_a_source_that_goes_down_while_the_queue_is_served_refuses_the_rest(tmp_path: Path) -> None:
    rig = AdmissionRig(tmp_path, "starting", max_in_flight=10, max_queue=10)
    calls = [rig.enter() for _ in range(5)]

    def breaks(call: Call) -> None:
        rig.source.held.append(call)
        if len(rig.source.held) == 2:
            rig.set("down", reason="broke")

    rig.source.on_submit = breaks
    rig.set("ready")
    assert rig.source.held == calls[:2]
    assert {problem_of(call).code for call in calls[2:]} == {SOURCE_DOWN}
    rig.leave()
