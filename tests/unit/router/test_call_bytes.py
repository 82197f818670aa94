"""The limit on the memory of all large calls, waiting or running."""

from __future__ import annotations

from pathlib import Path

from tests.unit.router.fakes import OK, RouterRig, problem_of

from trunkline.core.call import Call
from trunkline.core.errors import QUEUE_FULL

KIB = 1024


class LargeCallsRig(RouterRig):
    """Room for calls of 50 KiB: each is counted as it came and as it goes on."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, large_call_bytes=100 * KIB, in_flight_per_source=1, queue_per_source=1000)

    def enter(self, name: str, kib: int) -> Call:
        return self.call(name, {"arguments": {"text": "x" * (kib * KIB)}})


async def test_large_calls_of_all_servers_are_refused_once_they_hold_too_much_and_small_ones_are_not(
    tmp_path: Path,
) -> None:
    rig = LargeCallsRig(tmp_path)
    one, other = rig.add("one", "t"), rig.add("other", "t")
    runs, waits = rig.enter("one_t", 20), rig.enter("one_t", 20)
    refused = rig.enter("other_t", 20)
    problem = problem_of(refused)
    assert (problem.code, problem.executed, problem.source, problem.tool) == (QUEUE_FULL, "no", "other", "t")
    assert problem.retryable
    assert problem.retry_after_ms
    small = [rig.enter("other_t", 10) for _ in range(20)]
    assert not any(call.done for call in (runs, waits, *small))
    runs.finish(OK)
    assert one.held == [runs, waits], "the next in line is not counted anew"
    again = rig.enter("other_t", 20)
    assert not again.done, "there is room again"
    for call in (waits, *small, again):
        call.finish(OK)
    assert rig.router.large_call_bytes == 0
    assert len(other.held) == 21
    rig.router.registry.close()


async def test_one_alone_is_never_too_large(tmp_path: Path) -> None:
    rig = LargeCallsRig(tmp_path)
    rig.add("s", "t")
    alone = rig.enter("s_t", 300)
    assert not alone.done
    assert rig.enter("s_t", 17).done
    alone.finish(OK)
    assert not rig.enter("s_t", 300).done
    rig.router.registry.close()


async def test_calls_for_a_server_that_has_not_said_yet_what_it_offers_count_too(tmp_path: Path) -> None:
    rig = LargeCallsRig(tmp_path)
    source = rig.add("s", state=None)
    calls = [rig.enter("s_t", 10) for _ in range(10)]
    assert [call.done for call in calls] == [False] * 4 + [True] * 6, "each holds 22 KiB, small as it is"
    assert problem_of(calls[-1]).code == QUEUE_FULL
    rig.publish("s", "t")
    rig.health("s", "ready")
    for call in calls[:4]:
        call.finish(OK)
    assert source.held == calls[:4]
    assert rig.router.large_call_bytes == 0
    rig.router.registry.close()
