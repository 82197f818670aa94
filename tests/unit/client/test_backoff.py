from __future__ import annotations

import pytest

from trunkline.client import backoff
from trunkline.client.backoff import Backoff


def test_pauses_grow_to_a_limit_and_are_never_the_same_for_all() -> None:
    pauses = [Backoff() for _ in range(20)]
    assert all(each.next_delay_s() <= backoff.FIRST_S for each in pauses)
    second = [each.next_delay_s() for each in pauses]
    assert len(set(second)) > 1
    assert max(second) <= 2 * backoff.BASE_S
    for _ in range(20):
        last = [each.next_delay_s() for each in pauses]
    assert min(last) >= backoff.CAP_S / 2
    assert max(last) <= backoff.CAP_S


def test_only_staying_up_forgets_the_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    pause = Backoff()
    for _ in range(10):
        pause.next_delay_s()
    pause.up()
    assert pause.next_delay_s() > backoff.FIRST_S
    monkeypatch.setattr(backoff, "HEALTHY_AFTER_S", 0)
    pause.up()
    assert pause.next_delay_s() <= backoff.FIRST_S


def test_a_refusal_is_not_tried_again_within_seconds() -> None:
    assert Backoff().after_refusal_s() >= backoff.REFUSED_S
