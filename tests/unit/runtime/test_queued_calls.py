from __future__ import annotations

from tests.support.bugs import Bug, broken, reported_bugs
from tests.unit.sources.mcp.memory_session import new_call

from trunkline.core.call import Call, Failure
from trunkline.core.errors import CANCELLED, INTERNAL, Problem
from trunkline.runtime.queued_calls import QueuedCalls


def queued(calls: QueuedCalls) -> Call:
    call = new_call()
    calls.add(call)
    return call


async def test_calls_are_released_in_order_and_a_failing_one_affects_no_other() -> None:
    bugs = reported_bugs()
    calls = QueuedCalls()
    first, second, third = (queued(calls) for _ in range(3))
    submitted: list[Call] = []

    def submit(call: Call) -> None:
        if call is second:
            broken()
        submitted.append(call)

    calls.release(submit)
    assert submitted == [first, third]
    assert isinstance(second.outcome, Failure)
    assert second.outcome.problem.code is INTERNAL
    assert [type(error) for error in bugs] == [Bug]
    assert len(calls) == 0


async def test_an_abandoned_call_is_dropped_at_once_and_was_not_sent() -> None:
    calls = QueuedCalls()
    first, second = queued(calls), queued(calls)
    assert first.executed == "no"
    first.give_up(Failure(Problem(code=CANCELLED, message="nobody waits")))
    assert list(calls) == [second]
    assert calls.pop_first() is second
