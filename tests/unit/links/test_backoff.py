from __future__ import annotations

import pytest

from trunkline.links import backoff
from trunkline.links.backoff import BASE_S, CAP_S, FIRST_S, HEALTHY_AFTER_S, Backoff


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(backoff.time, "monotonic", clock.monotonic)
    return clock


@pytest.fixture
def longest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jitter that always takes the upper end."""
    monkeypatch.setattr(backoff.random, "uniform", lambda low, high: high)


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
def test_a_crash_loop_keeps_backing_off(clock: Clock) -> None:
    patience = Backoff()
    waits = []
    for _ in range(5):
        patience.up()
        clock.now += HEALTHY_AFTER_S - 1
        waits.append(patience.next_delay_s())
    assert waits == [FIRST_S, BASE_S, 2 * BASE_S, 4 * BASE_S, 8 * BASE_S]


@pytest.mark.usefixtures("longest")
def test_a_healthy_while_forgets_the_failures(clock: Clock) -> None:
    patience = Backoff()
    for _ in range(5):
        patience.next_delay_s()
    patience.up()
    clock.now += HEALTHY_AFTER_S
    assert patience.next_delay_s() == FIRST_S
    assert patience.next_delay_s() == BASE_S
