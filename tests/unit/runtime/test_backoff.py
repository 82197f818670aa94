from __future__ import annotations

import pytest

from trunkline.runtime import server_lifecycle
from trunkline.runtime.server_lifecycle import AT_ONCE, AT_ONCE_WITHIN_S, BASE_S, CAP_S, FIRST_S, Backoff


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(server_lifecycle.time, "monotonic", clock.monotonic)
    return clock


@pytest.fixture
def longest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jitter that always takes the upper end."""
    monkeypatch.setattr(server_lifecycle.random, "uniform", lambda low, high: high)


@pytest.mark.usefixtures("longest")
def test_waits_double_from_almost_nothing_up_to_a_cap() -> None:
    patience = Backoff()
    waits = [patience.next_delay_s() for _ in range(12)]
    assert waits[:4] == [FIRST_S, BASE_S, 2 * BASE_S, 4 * BASE_S]
    assert waits == sorted(waits)
    assert waits[-1] == CAP_S


def test_every_wait_is_somewhere_between_nothing_and_its_limit() -> None:
    waits = [Backoff().next_delay_s() for _ in range(200)]
    assert all(0 <= wait <= FIRST_S for wait in waits)
    assert len(set(waits)) > 100


def test_any_number_of_failures_has_a_wait() -> None:
    patience = Backoff()
    assert all(0 <= patience.next_delay_s() <= CAP_S for _ in range(3000))


@pytest.mark.usefixtures("longest")
def test_one_that_worked_is_tried_again_at_once_so_many_times_a_minute(clock: Clock) -> None:
    patience = Backoff()
    assert crashes(patience, AT_ONCE, clock, apart_s=3) == [0] * AT_ONCE
    assert crashes(patience, 4, clock, apart_s=3) == [FIRST_S, BASE_S, 2 * BASE_S, 4 * BASE_S]
    clock.now += AT_ONCE_WITHIN_S
    assert crashes(patience, AT_ONCE, clock, apart_s=3) == [0] * AT_ONCE


@pytest.mark.usefixtures("longest")
def test_one_that_crashes_now_and_then_never_waits_for_long(clock: Clock) -> None:
    assert max(crashes(Backoff(), 500, clock, apart_s=10)) == FIRST_S


@pytest.mark.usefixtures("longest")
def test_one_that_crashes_as_soon_as_it_is_up_is_started_a_few_times_a_minute(clock: Clock) -> None:
    patience, begin, starts = Backoff(), clock.now, 0
    while clock.now < begin + 10 * AT_ONCE_WITHIN_S:
        clock.now += crashes(patience, 1, clock, apart_s=0.1)[0]
        starts += 1
    assert starts <= 10 * (AT_ONCE + 8)


@pytest.mark.usefixtures("longest")
def test_having_worked_forgets_the_failures_before(clock: Clock) -> None:
    patience = Backoff()
    for _ in range(8):
        patience.next_delay_s()
    assert crashes(patience, 1, clock, apart_s=1) == [0]
    assert [patience.next_delay_s() for _ in range(2)] == [FIRST_S, BASE_S]


def crashes(patience: Backoff, times: int, clock: Clock, *, apart_s: float) -> list[float]:
    """The waits after crashes of something that came up every time."""
    waits: list[float] = []
    for _ in range(times):
        patience.up()
        clock.now += apart_s
        waits.append(patience.next_delay_s())
    return waits
