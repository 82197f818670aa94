"""The demo server `clock`: today, and the distance between days."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo, available_timezones

from trunkline.demo.library import Library, Resource, Template
from trunkline.demo.talk import Talk
from trunkline.demo.toolbox import Answer, Arguments, Refusal, Tool, toolbox

_LONGEST_DAYS = 3_660_000  # about ten thousand years, which is all the calendar there is
_DATE = {"type": "string", "format": "date", "maxLength": 10, "description": "A date such as 2026-07-28"}


def _now(arguments: Arguments) -> Answer:
    return Answer(_time_in(arguments["timezone"]))


def _time_in(zone: str) -> str:
    now = datetime.now(UTC).astimezone(_zone(zone))
    return f"{now:%A}, {now.isoformat(sep=' ', timespec='seconds')}"


def _zones() -> Iterable[str]:
    return {"UTC", *available_timezones()}


def _count_down(arguments: Arguments, talk: Talk) -> Answer:
    seconds = arguments["seconds"]
    talk.log("info", f"Counting down from {seconds}")
    for done in range(seconds):
        talk.progress(done, seconds, f"{seconds - done} left")
        time.sleep(1)
    talk.progress(seconds, seconds, "done")
    return Answer(f"{seconds} seconds are over")


def _days_between(arguments: Arguments) -> Answer:
    days = (_date(arguments, "last") - _date(arguments, "first")).days
    return Answer(f"{days} day{'' if abs(days) == 1 else 's'}")  # never a bare number: some clients take that for data


def _add_days(arguments: Arguments) -> Answer:
    try:
        found = _date(arguments, "date") + timedelta(days=arguments["days"])
    except OverflowError:
        raise Refusal("That day is beyond the years 1 to 9999") from None
    return Answer(f"{found.isoformat()} ({found:%A})")


def _zone(name: str) -> tzinfo:
    try:
        return UTC if name == "UTC" else ZoneInfo(name)
    except (KeyError, OSError, ValueError):
        raise Refusal(f"`{name}` is not a time zone known here; try `UTC` or `Europe/Berlin`") from None


def _date(arguments: Arguments, name: str) -> date:
    try:
        return date.fromisoformat(arguments[name])
    except ValueError:
        raise Refusal(f"`{name}` must be a date such as 2026-07-28") from None


CLOCK = toolbox(
    "clock",
    "Clock",
    "Dates and times. Ask here instead of guessing what day it is.",
    Tool(
        "now",
        "Current date and time",
        "The current weekday, date and time in a time zone.",
        _now,
        {
            "timezone": {
                "type": "string",
                "default": "UTC",
                "maxLength": 64,
                "description": "An IANA time zone such as Europe/Berlin",
            }
        },
    ),
    Tool(
        "days_between",
        "Days between two dates",
        "How many days lie from one date to another; negative when the second is earlier.",
        _days_between,
        {"first": _DATE, "last": _DATE},
    ),
    Tool(
        "add_days",
        "Add days to a date",
        "The date and weekday a number of days after a date, or before it when the number is negative.",
        _add_days,
        {
            "date": _DATE,
            "days": {
                "type": "integer",
                "minimum": -_LONGEST_DAYS,
                "maximum": _LONGEST_DAYS,
                "description": "Days to add; negative to go back",
            },
        },
    ),
    Tool(
        "count_down",
        "Count down",
        "Wait some seconds, with progress and a line in the log: to see whether a client shows them.",
        _count_down,
        {"seconds": {"type": "integer", "minimum": 1, "maximum": 10, "default": 3, "description": "How many"}},
        talks=True,
    ),
)

CLOCK_LIBRARY = Library(
    resources=[Resource("clock://now/UTC", "Now", "The current date and time, in UTC.", lambda: _time_in("UTC"))],
    templates=[
        Template(
            "clock://now/",
            "timezone",
            "Now in a time zone",
            "The current date and time in an IANA time zone, such as Europe/Berlin.",
            _time_in,
            _zones,
        )
    ],
)
