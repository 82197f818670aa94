from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.support.mcp_dialogue import talking_to

from trunkline.demo.clock import server

ZONES = {"type": "ref/resource", "uri": "clock://now/{+timezone}"}


async def clock(tool: str, **arguments: object) -> str:
    async with talking_to(server) as client:
        result = await client.call(tool, arguments)
    assert not result.get("isError"), result
    return result["content"][0]["text"]


async def refusal(tool: str, **arguments: object) -> str:
    async with talking_to(server) as client:
        result = await client.call(tool, arguments)
    assert result["isError"]
    return result["content"][0]["text"]


async def ask(method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
    async with talking_to(server) as client:
        return await client.ask(method, params)


# Tools ----------------------------------------------------------------------------------------------------------------


async def test_now_is_now() -> None:
    weekday, shown = (await clock("now")).split(", ")
    moment = datetime.fromisoformat(shown)
    assert abs(datetime.now(UTC) - moment) < timedelta(minutes=5)
    assert weekday == f"{moment:%A}"


async def test_now_can_be_asked_for_elsewhere() -> None:
    assert (await clock("now", timezone="Asia/Tokyo")).endswith("+09:00")


@pytest.mark.parametrize("zone", ["Atlantis/Capital", "../../etc/passwd", "", "\0"])
async def test_a_zone_that_there_is_not_is_refused(zone: str) -> None:
    assert "time zone" in await refusal("now", timezone=zone)


async def test_days_are_counted_in_both_directions() -> None:
    assert await clock("days_between", first="2026-01-01", last="2026-07-28") == "208 days"
    assert await clock("days_between", first="2024-03-01", last="2024-02-28") == "-2 days"


async def test_days_are_added_over_leap_days() -> None:
    assert await clock("add_days", date="2024-02-28", days=2) == "2024-03-01 (Friday)"
    assert await clock("add_days", date="2026-01-01", days=-1.0) == "2025-12-31 (Wednesday)"


@pytest.mark.parametrize("text", ["yesterday", "2026-02-30", "", "2026-1-1"])
async def test_what_is_no_date_is_refused(text: str) -> None:
    assert "`date`" in await refusal("add_days", date=text, days=1)


async def test_the_end_of_the_calendar_is_said_to_be_one() -> None:
    assert "9999" in await refusal("add_days", date="9999-12-31", days=1)


@pytest.mark.parametrize(("level", "logged"), [("debug", 1), ("warning", 0)])
async def test_progress_goes_to_who_asked_for_it_and_logs_from_a_level_on(level: str, logged: int) -> None:
    async with talking_to(server) as client:
        await client.ask("logging/setLevel", {"level": level})
        result = await client.call("count_down", {"seconds": 1.0}, _meta={"progressToken": 7})
    assert result["content"][0]["text"] == "1 seconds are over"
    assert len(client.notices("notifications/message")) == logged
    progress = client.notices("notifications/progress")
    assert [(params["progressToken"], params["progress"], params["total"]) for params in progress] == [
        (7, 0, 1),
        (7, 1, 1),
    ]


# Resources ------------------------------------------------------------------------------------------------------------


async def test_what_there_is_is_declared_and_listed() -> None:
    async with talking_to(server, greeted="") as client:
        capabilities = (await client.greet())["capabilities"]
        (resource,) = (await client.ask("resources/list"))["result"]["resources"]
        (template,) = (await client.ask("resources/templates/list", {}))["result"]["resourceTemplates"]
    assert capabilities.keys() == {"tools", "logging", "resources", "completions"}
    assert (resource["uri"], template["uriTemplate"]) == ("clock://now/UTC", "clock://now/{+timezone}")


@pytest.mark.parametrize(("zone", "offset"), [("UTC", "+00:00"), ("Asia/Tokyo", "+09:00")])
async def test_a_resource_and_those_of_a_template_are_read(zone: str, offset: str) -> None:
    uri = f"clock://now/{zone}"
    (content,) = (await ask("resources/read", {"uri": uri}))["result"]["contents"]
    assert content["uri"] == uri and content["text"].endswith(offset)


@pytest.mark.parametrize("uri", ["clock://now/Nowhere", "clock://then", None])
async def test_a_resource_that_there_is_not_is_named_in_the_error(uri: str | None) -> None:
    error = (await ask("resources/read", {"uri": uri}))["error"]
    assert (error["code"], error["data"]) == (-32002, {"uri": uri})


async def test_zones_are_proposed() -> None:
    async def proposed(name: str, value: str) -> list[str]:
        params = {"ref": ZONES, "argument": {"name": name, "value": value}}
        return (await ask("completion/complete", params))["result"]["completion"]["values"]

    assert "Europe/Berlin" in await proposed("timezone", "europe/b")
    assert len(await proposed("timezone", "")) == 100
    assert await proposed("other", "") == []


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("completion/complete", {"ref": {**ZONES, "uri": "x"}, "argument": {"name": "timezone"}}, -32602),
        ("completion/complete", {"ref": 1}, -32602),
        ("resources/read", [], -32602),
        ("prompts/list", {}, -32601),
        ("resources/subscribe", {"uri": "x"}, -32601),
    ],
)
async def test_what_cannot_be_answered_is_refused(method: str, params: Any, code: int) -> None:
    assert (await ask(method, params))["error"]["code"] == code
