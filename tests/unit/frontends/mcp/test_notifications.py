from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.client import META, encode
from tests.unit.frontends.mcp.talks import legacy, modern
from tests.unit.router.fakes import OK

MESSAGE = "notifications/message"


@pytest.mark.parametrize("level", ["verbose", "", 3, None, "INFO"])
async def test_only_levels_that_exist_can_be_set(tmp_path: Path, level: Any) -> None:
    async with legacy(tmp_path) as talk:
        talk.send({"id": 1, "method": "logging/setLevel", "params": {"level": level}})
        assert (await talk.next())["error"]["code"] == -32602
        talk.send({"id": 2, "method": "logging/setLevel"})
        assert (await talk.next())["error"]["code"] == -32602
        assert talk.session.caller.log_level == ""
    async with modern(tmp_path) as client:
        assert (await client.call(meta={f"{META}logLevel": level})).error["code"] == -32602
        assert not client.source.held


async def test_a_level_holds_for_calls_under_way_and_for_what_is_said_outside_them(tmp_path: Path) -> None:
    async with legacy(tmp_path) as talk:
        call = await talk.call()
        sink = talk.house.rig.sinks["s"]

        def say(level: str) -> None:
            params = encode({"level": level, "data": level})
            call.notify(MESSAGE, params)
            sink.forward_notification("stdio", MESSAGE, params)

        say("debug")
        assert [(await talk.next())["params"]["level"] for _ in range(2)] == ["debug", "debug"]
        talk.send({"id": 2, "method": "logging/setLevel", "params": {"level": "warning"}})
        assert (await talk.next())["result"] == {}
        for level in ("debug", "notice", "warning", "emergency"):
            say(level)
        heard = [(await talk.next())["params"]["level"] for _ in range(4)]
        assert heard == ["warning", "warning", "emergency", "emergency"]
        await talk.ping()


async def test_the_servers_of_a_client_hear_which_level_it_wants(tmp_path: Path) -> None:
    async with legacy(tmp_path) as talk:
        talk.send({"id": 2, "method": "logging/setLevel", "params": {"level": "error", "x": 1}})
        await talk.next()
        ((caller, method, params),) = talk.source.told
        assert (caller.session, caller.log_level, method) == ("stdio", "error", "logging/setLevel")
        assert json.loads(params) == {"level": "error"}
        assert (await talk.call()).caller.log_level == "error"


async def test_a_modern_request_states_its_own_level(tmp_path: Path) -> None:
    async with modern(tmp_path) as client:
        client.source.on_submit = lambda call: client.source.held.append(call) or (call.finish(OK) and None)
        await client.call(meta={f"{META}logLevel": "alert"})
        await client.call()
        assert [call.caller.log_level for call in client.source.held] == ["alert", ""]
