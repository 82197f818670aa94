"""How many calls per second an app gets."""

from __future__ import annotations

import pytest

from trunkline.sources.app.connected_app import RateLimiter


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_seconds_worth_may_come_at_once_and_then_it_trickles() -> None:
    clock = Clock()
    allowance = RateLimiter(4, clock)
    assert [allowance.take() for _ in range(4)] == [0.0] * 4
    assert allowance.take() == pytest.approx(0.25)
    clock.now += 0.25
    assert allowance.take() == 0.0
    assert allowance.take() > 0.0


def test_what_is_not_used_is_saved_for_a_second_only() -> None:
    clock = Clock()
    allowance = RateLimiter(2, clock)
    clock.now += 3600
    assert [allowance.take() > 0 for _ in range(3)] == [False, False, True]


def test_the_wait_it_names_is_long_enough() -> None:
    clock = Clock()
    allowance = RateLimiter(3, clock)
    for _ in range(50):
        wait_s = allowance.take()
        if wait_s:
            clock.now += wait_s + 1e-9
            assert allowance.take() == 0.0
