"""The demo server `clock`: the date and time, and calculations with dates."""

from __future__ import annotations

import asyncio
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

from trunkline.demo.tools import INVALID_PARAMS, RESOURCE_NOT_FOUND, Json, completion, handshake_server, tool
from trunkline.mcpserver import Context, MethodError, ToolError

server = handshake_server(
    "trunkline-demo-clock",
    "Dates and times. Ask here instead of guessing what day it is.",
    title="Clock",
    capabilities={"resources": {}, "completions": {}},
)

# -- tools ------------------------------------------------------------------------------------------------------------

_DATE = {"type": "string", "format": "date", "maxLength": 10, "description": "A date such as 2026-07-28"}
_ZONE = {"type": "string", "default": "UTC", "maxLength": 64, "description": "An IANA time zone such as Europe/Berlin"}
_SECONDS = {"type": "integer", "minimum": 1, "maximum": 10, "default": 3, "description": "How many"}
_LONGEST_DAYS = 3_660_000  # about ten thousand years, the whole range of dates
_DAYS = {
    "type": "integer",
    "minimum": -_LONGEST_DAYS,
    "maximum": _LONGEST_DAYS,
    "description": "Days to add; negative to go back",
}


@tool(server, "Current date and time", {"timezone": _ZONE})
def now(arguments: Json) -> str:
    """The current weekday, date and time in a time zone."""
    return _time_in(arguments["timezone"])


@tool(server, "Days between two dates", {"first": _DATE, "last": _DATE})
def days_between(arguments: Json) -> str:
    """How many days lie from one date to another; negative when the second is earlier."""
    days = (_date(arguments, "last") - _date(arguments, "first")).days
    return f"{days} day{'' if abs(days) == 1 else 's'}"  # never a bare number, which some clients take for data


@tool(server, "Add days to a date", {"date": _DATE, "days": _DAYS})
def add_days(arguments: Json) -> str:
    """The date and weekday a number of days after a date, or before it when the number is negative."""
    try:
        found = _date(arguments, "date") + timedelta(days=arguments["days"])
    except OverflowError:
        raise ToolError("That date is outside the years 1 to 9999") from None
    return f"{found.isoformat()} ({found:%A})"


@tool(server, "Count down", {"seconds": _SECONDS})
async def count_down(arguments: Json, context: Context) -> str:
    """Wait some seconds, with progress and a line in the log: to see whether a client shows them."""
    seconds = int(arguments["seconds"])
    context.log(f"Counting down from {seconds}", logger="demo")
    for done in range(seconds):
        context.progress(done, seconds, f"{seconds - done} left")
        await asyncio.sleep(1)
    context.progress(seconds, seconds, "done")
    return f"{seconds} seconds are over"


def _time_in(zone: str) -> str:
    try:
        now = datetime.now(UTC if zone == "UTC" else ZoneInfo(zone))
    except (KeyError, OSError, ValueError):
        raise ToolError(f"`{zone}` is not a known time zone; try `UTC` or `Europe/Berlin`") from None
    return f"{now:%A}, {now.isoformat(sep=' ', timespec='seconds')}"


def _date(arguments: Json, name: str) -> date:
    try:
        return date.fromisoformat(arguments[name])
    except ValueError:
        raise ToolError(f"`{name}` must be a date such as 2026-07-28") from None


# -- resources: clock://now/ and a time zone --------------------------------------------------------------------------

_PREFIX = "clock://now/"
_TEMPLATE = _PREFIX + "{+timezone}"


@server.method("resources/list")
def list_resources(params: Json) -> Json:
    described = {"description": "The current date and time, in UTC.", "mimeType": "text/plain"}
    return {"resources": [{"uri": f"{_PREFIX}UTC", "name": "Now", **described}]}


@server.method("resources/templates/list")
def list_templates(params: Json) -> Json:
    description = "The current date and time in an IANA time zone, such as Europe/Berlin."
    described = {"name": "Now in a time zone", "description": description, "mimeType": "text/plain"}
    return {"resourceTemplates": [{"uriTemplate": _TEMPLATE, **described}]}


@server.method("resources/read")
def read_resource(params: Json) -> Json:
    uri = params.get("uri")
    if not isinstance(uri, str) or not uri.startswith(_PREFIX):
        raise MethodError(RESOURCE_NOT_FOUND, "Resource not found", {"uri": uri})
    try:
        text = _time_in(uri.removeprefix(_PREFIX))
    except ToolError as error:
        raise MethodError(RESOURCE_NOT_FOUND, str(error), {"uri": uri}) from None
    return {"contents": [{"uri": uri, "mimeType": "text/plain", "text": text}]}


@server.method("completion/complete")
def complete(params: Json) -> Json:
    match params:
        case {"ref": {"type": "ref/resource", "uri": str(uri)}, "argument": {"name": name, **argument}} if (
            uri == _TEMPLATE
        ):
            zones = {"UTC", *available_timezones()} if name == "timezone" else ()
            return completion(sorted(zones), argument.get("value", ""))
        case _:
            raise MethodError(INVALID_PARAMS, "There is no such template")
