"""What the demo servers can do."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DemoTool:
    definition: dict[str, Any]
    run: Callable[[Arguments], str]


@dataclass(frozen=True, slots=True)
class Toolbox:
    name: str
    tools: Mapping[str, DemoTool]


def _tool(name: str, description: str, run: Callable[[Arguments], str], **properties: dict[str, Any]) -> DemoTool:
    required = [key for key, schema in properties.items() if "default" not in schema]
    schema = {"type": "object", "properties": properties, "required": required}
    definition = {
        "name": name,
        "description": description,
        "inputSchema": schema,
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
    }
    return DemoTool(definition, run)


def _toolbox(name: str, *tools: DemoTool) -> Toolbox:
    return Toolbox(name, {tool.definition["name"]: tool for tool in tools})


def _now(arguments: Arguments) -> str:
    zone = arguments.get("timezone", "UTC")
    return datetime.now(UTC).astimezone(UTC if zone == "UTC" else ZoneInfo(zone)).isoformat(timespec="seconds")


def _days_between(arguments: Arguments) -> str:
    first, last = (datetime.fromisoformat(arguments[key]).date() for key in ("first", "last"))
    return str((last - first).days)


def _roll(arguments: Arguments) -> str:
    sides, times = int(arguments.get("sides", 6)), int(arguments.get("times", 1))
    if not (2 <= sides <= 1000 and 1 <= times <= 100):
        raise ValueError("2 to 1000 sides, 1 to 100 times")
    return ", ".join(str(secrets.randbelow(sides) + 1) for _ in range(times))


def _count(arguments: Arguments) -> str:
    text = str(arguments["text"])
    return f"{len(text)} characters, {len(text.split())} words, {len(text.splitlines())} lines"


def _reverse(arguments: Arguments) -> str:
    return str(arguments["text"])[::-1]


_TEXT = {"type": "string", "description": "Any text"}
_DATE = {"type": "string", "format": "date", "description": "A date such as 2026-07-28"}
_ZONE = {"type": "string", "default": "UTC", "description": "A time zone such as Europe/Berlin"}

TOOLBOXES: Mapping[str, Toolbox] = {
    toolbox.name: toolbox
    for toolbox in (
        _toolbox(
            "clock",
            _tool("now", "The date and time", _now, timezone=_ZONE),
            _tool("days_between", "Days from one date to another", _days_between, first=_DATE, last=_DATE),
            _tool(
                "roll_dice",
                "Roll dice",
                _roll,
                sides={"type": "integer", "default": 6},
                times={"type": "integer", "default": 1},
            ),
        ),
        _toolbox(
            "text",
            _tool("count", "Count the characters, words and lines of a text", _count, text=_TEXT),
            _tool("reverse", "A text backwards", _reverse, text=_TEXT),
        ),
    )
}
