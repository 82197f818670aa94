"""A short soak, for every change; `python -m tests.support.soak --minutes 30` is the long one."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.pairs import IN_FULL
from tests.support.soak import Plan, Soak, missed, summary

SECONDS = 180.0 if IN_FULL else 15.0

pytestmark = [pytest.mark.slow, pytest.mark.law, pytest.mark.timeout(600)]


async def test_crashes_reloads_and_abandoned_sessions_lose_double_and_leave_open_nothing(tmp_path: Path) -> None:
    plan = Plan(
        seconds=SECONDS,
        calls_per_s=40,
        kill_every_s=1,
        reload_every_s=4,
        abandon_every_s=0.7,
        sample_every_s=0.5,
        session_idle_s=5,
    )
    soak = Soak(plan, tmp_path, print)
    book = await soak.run()
    print(summary(soak))
    assert missed(soak) == []
    assert all(book.done[what] for what in ("kills: stdio", "reloads", "sessions"))
    assert len(book.answers) > SECONDS * 10
