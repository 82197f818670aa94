from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from trunkline.demo.clock import CLOCK
from trunkline.demo.toolbox import Refusal


def clock(tool: str, **arguments: object) -> str:
    return CLOCK.tools[tool].call(arguments).text


def test_now_is_now() -> None:
    weekday, shown = clock("now").split(", ")
    moment = datetime.fromisoformat(shown)
    assert abs(datetime.now(UTC) - moment) < timedelta(minutes=5)
    assert weekday == f"{moment:%A}"


def test_now_can_be_asked_for_elsewhere() -> None:
    assert clock("now", timezone="Asia/Tokyo").endswith("+09:00")


@pytest.mark.parametrize("zone", ["Atlantis/Capital", "../../etc/passwd", "", "\0"])
def test_a_zone_that_there_is_not_is_refused(zone: str) -> None:
    with pytest.raises(Refusal):
        clock("now", timezone=zone)


def test_days_are_counted_in_both_directions() -> None:
    assert clock("days_between", first="2026-01-01", last="2026-07-28") == "208 days"
    assert clock("days_between", first="2024-03-01", last="2024-02-28") == "-2 days"


def test_days_are_added_over_leap_days() -> None:
    assert clock("add_days", date="2024-02-28", days=2) == "2024-03-01 (Friday)"
    assert clock("add_days", date="2026-01-01", days=-1) == "2025-12-31 (Wednesday)"


@pytest.mark.parametrize("text", ["yesterday", "2026-02-30", "", "2026-1-1"])
def test_what_is_no_date_is_refused(text: str) -> None:
    with pytest.raises(Refusal, match="`date`"):
        clock("add_days", date=text, days=1)


def test_the_end_of_the_calendar_is_said_to_be_one() -> None:
    with pytest.raises(Refusal, match="9999"):
        clock("add_days", date="9999-12-31", days=1)
