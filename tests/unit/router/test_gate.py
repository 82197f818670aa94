from __future__ import annotations

import pytest
from tests.unit.router.fakes import OK, FakeSource, problem_of

from trunkline.core.call import Call, Caller, Failure
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
from trunkline.router.gate import Gate
from trunkline.router.options import NameRules, SourceOptions


class Entrance:
    """A gate, its source, and calls that leave it when they end, as the router does it."""

    def __init__(self, state: State = "ready", max_in_flight: int = 2, max_queue: int = 2) -> None:
        self.source = FakeSource()
        options = SourceOptions(rules=NameRules(prefix="s"), timeout_s=60.0, grace_s=60.0)
        health = Health(state="starting")
        self.gate = Gate("s", self.source, health, options, max_in_flight=max_in_flight, max_queue=max_queue)
        self.set(state)

    def set(self, state: State, **more: str) -> None:
        self.gate.set_health(Health(state=state, **more))

    def call(self) -> Call:
        call = Call("tools/call", b"{}", self.gate.release, caller=Caller(), reply=lambda _: None)  # type: ignore[arg-type]
        call.tool = "t"
        self.gate.admit(call)
        return call


def test_calls_pass_while_there_is_room_then_wait_then_are_refused() -> None:
    entrance = Entrance()
    calls = [entrance.call() for _ in range(5)]
    assert entrance.source.held == calls[:2]
    assert list(entrance.gate.queue) == calls[2:4]
    problem = problem_of(calls[4])
    assert (problem.code, problem.executed, problem.phase) == (QUEUE_FULL, "no", "queued")
    assert problem.retryable
    assert problem.retry_after_ms
    assert (problem.source, problem.tool) == ("s", "t")


def test_a_place_that_becomes_free_goes_to_the_first_in_line() -> None:
    entrance = Entrance(max_in_flight=1)
    first, second, third = (entrance.call() for _ in range(3))
    first.finish(OK)
    assert entrance.source.held == [first, second]
    second.finish(OK)
    assert entrance.source.held == [first, second, third]
    third.finish(OK)
    assert entrance.gate.in_flight == 0


def test_calls_wait_while_the_source_starts_and_go_in_order_when_it_is_ready() -> None:
    entrance = Entrance("starting")
    calls = [entrance.call() for _ in range(2)]
    assert entrance.source.held == []
    entrance.set("ready")
    assert entrance.source.held == calls


@pytest.mark.parametrize(
    ("state", "code"),
    [("down", SOURCE_DOWN), ("disabled", SOURCE_DISABLED), ("auth_required", SOURCE_AUTH_REQUIRED)],
)
def test_a_source_that_will_not_come_refuses_at_once_and_says_who_and_why(state: State, code: Code) -> None:
    entrance = Entrance(state)
    entrance.set(state, reason="the reason", stderr_tail="last words")
    call = entrance.call()
    problem = problem_of(call)
    assert problem.code is code
    assert problem.message == f"Server s is {state}: the reason"
    assert problem.executed == "no"
    assert "last words" in problem.hint
    assert problem.retryable == (state == "down")


def test_what_to_do_goes_before_what_the_server_wrote() -> None:
    entrance = Entrance("auth_required")
    entrance.set("auth_required", hint="log in", stderr_tail="chatter")
    assert problem_of(entrance.call()).hint == "log in"


def test_the_last_error_serves_as_reason_where_there_is_none() -> None:
    entrance = Entrance("down")
    entrance.set("down", last_error="it broke")
    assert problem_of(entrance.call()).message == "Server s is down: it broke"


@pytest.mark.parametrize("state", ["down", "auth_required"])
def test_those_that_wait_are_refused_when_the_source_goes_down(state: State) -> None:
    entrance = Entrance("starting")
    calls = [entrance.call() for _ in range(2)]
    entrance.set(state, reason="gone")
    assert [problem_of(call).executed for call in calls] == ["no", "no"]
    assert not entrance.gate.queue


def test_what_is_in_flight_is_left_to_the_source_when_it_goes_down() -> None:
    entrance = Entrance()
    call = entrance.call()
    entrance.set("down", reason="gone")
    assert not call.done
    call.finish(OK)
    assert call.outcome is OK
    assert entrance.gate.in_flight == 0


def test_a_degraded_source_is_still_used() -> None:
    entrance = Entrance("degraded")
    assert entrance.source.held == [entrance.call()]


def test_a_restart_lets_calls_wait_again() -> None:
    entrance = Entrance()
    entrance.set("starting", reason="lost")
    call = entrance.call()
    assert not call.done
    entrance.set("ready")
    assert entrance.source.held == [call]


def test_draining_refuses_new_and_waiting_calls_and_lets_the_rest_finish() -> None:
    entrance = Entrance(max_in_flight=1)
    running, waiting = entrance.call(), entrance.call()
    entrance.gate.drain()
    late = entrance.call()
    assert [problem_of(call).code for call in (waiting, late)] == [DRAINING, DRAINING]
    assert not running.done
    entrance.set("ready")
    assert problem_of(entrance.call()).code is DRAINING
    running.finish(OK)
    assert entrance.gate.in_flight == 0


def test_a_call_that_is_taken_back_leaves_the_queue() -> None:
    entrance = Entrance("starting")
    first, second = entrance.call(), entrance.call()
    first.cancel("changed my mind")
    assert list(entrance.gate.queue) == [second]
    entrance.set("ready")
    assert entrance.source.held == [second]


def test_a_call_that_is_taken_back_in_flight_frees_its_place() -> None:
    entrance = Entrance(max_in_flight=1)
    first, second = entrance.call(), entrance.call()
    first.cancel("changed my mind")
    assert entrance.source.held == [first, second]
    assert not first.finish(OK)
    assert entrance.gate.in_flight == 1


@pytest.mark.parametrize("waiting", [10, 5000])
def test_a_source_that_answers_at_once_gets_through_any_queue(waiting: int) -> None:
    """Each answer frees a place, which serves the next: that must not go one level deeper each time."""
    entrance = Entrance("starting", max_in_flight=1, max_queue=waiting)
    calls = [entrance.call() for _ in range(waiting)]
    problem = Problem(code=SOURCE_LOST, message="refused")
    entrance.source.on_submit = lambda call: call.finish(Failure(problem)) and None
    entrance.set("ready")
    assert all(call.done for call in calls)
    assert entrance.gate.in_flight == 0
    assert not entrance.gate.queue


def test_the_whole_queue_is_refused_even_when_it_is_long() -> None:
    entrance = Entrance("starting", max_queue=5000)
    calls = [entrance.call() for _ in range(5000)]
    entrance.set("down", reason="gone")
    assert all(call.done for call in calls)


def test_a_source_that_goes_down_while_the_queue_is_served_refuses_the_rest() -> None:
    entrance = Entrance("starting", max_in_flight=10, max_queue=10)
    calls = [entrance.call() for _ in range(5)]

    def breaks(call: Call) -> None:
        entrance.source.held.append(call)
        if len(entrance.source.held) == 2:
            entrance.set("down", reason="broke")

    entrance.source.on_submit = breaks
    entrance.set("ready")
    assert entrance.source.held == calls[:2]
    assert {problem_of(call).code for call in calls[2:]} == {SOURCE_DOWN}
