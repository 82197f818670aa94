from __future__ import annotations

import pytest

from trunkline.sdk.app_connection import ReconnectDelay


def test_pauses_grow_to_a_limit_and_are_never_the_same_for_all() -> None:
    pauses = [ReconnectDelay() for _ in range(20)]
    assert all(each.next_s() <= ReconnectDelay.FIRST_S for each in pauses)
    second = [each.next_s() for each in pauses]
    assert len(set(second)) > 1
    assert max(second) <= 2 * ReconnectDelay.BASE_S
    for _ in range(20):
        last = [each.next_s() for each in pauses]
    assert min(last) >= ReconnectDelay.CAP_S / 2
    assert max(last) <= ReconnectDelay.CAP_S


def test_only_staying_up_forgets_the_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    pause = ReconnectDelay()
    for _ in range(10):
        pause.next_s()
    pause.up()
    assert pause.next_s() > ReconnectDelay.FIRST_S
    monkeypatch.setattr(ReconnectDelay, "HEALTHY_AFTER_S", 0)
    pause.up()
    assert pause.next_s() <= ReconnectDelay.FIRST_S


def test_a_refusal_is_not_tried_again_within_seconds() -> None:
    assert ReconnectDelay().after_refusal_s() >= ReconnectDelay.REFUSED_S
