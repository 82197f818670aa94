"""A relay in front of the real HTTP server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.attached import modern_meta
from tests.support.waiting import until
from tests.unit.frontends.relay.test_relay import stage
from tests.unit.frontends.rig import House, echo, house
from tests.unit.router.fakes import OK

from trunkline.core.server_request import ServerRequest
from trunkline.core.tool import Snapshot, ToolDefinition
from trunkline.frontends.http.exchange import HttpExchange

DEFINITION = {
    "name": "m",
    "inputSchema": {
        "type": "object",
        "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
    },
}


def url(here: House) -> str:
    return f"http://127.0.0.1:{here.port}/mcp"


def hello(version: str, **capabilities: Any) -> dict[str, Any]:
    params = {"protocolVersion": version, "capabilities": capabilities, "clientInfo": {"name": "c", "version": "1"}}
    return {"id": 0, "method": "initialize", "params": params}


async def test_arguments_that_headers_repeat_are_found_out_and_sent(tmp_path: Path) -> None:
    async with house(tmp_path) as here, stage(url(here)) as on:
        here.rig.sinks["s"].publish(Snapshot(tools=(ToolDefinition("s", "m", json.dumps(DEFINITION).encode()),)))
        here.source.on_submit = echo
        for number, region in ((1, "Hello"), (2, "Grüße"), (3, None)):
            arguments = {} if region is None else {"region": region}
            params = {"name": "s_m", "arguments": arguments, "_meta": modern_meta()}
            answer = await on.ask({"id": number, "method": "tools/call", "params": params})
            assert answer["result"]["arguments"] == arguments


async def test_a_server_request_reaches_the_client_and_its_response_the_server(tmp_path: Path) -> None:
    async with house(tmp_path) as here, stage(url(here)) as on:
        await on.ask(hello("2025-11-25", roots={}))
        on.pipes.send({"method": "notifications/initialized"})
        on.pipes.send({"id": 1, "method": "tools/call", "params": {"name": "s_t"}})
        await until(lambda: here.source.held, "the call is on its way")
        (running,) = here.source.held
        answers: list[tuple[str, Any]] = []
        assert running.on_server_request is not None
        running.on_server_request(
            ServerRequest("s", "roots/list", b"{}", lambda how, raw: answers.append((how, json.loads(raw))), (running,))
        )
        asked = await on.pipes.next()
        assert asked["method"] == "roots/list"
        on.pipes.send({"id": asked["id"], "result": {"roots": []}})
        await until(lambda: answers, "the answer came")
        assert answers == [("result", {"roots": []})]
        running.finish(OK)
        assert (await on.pipes.next())["id"] == 1


async def test_a_stream_that_the_gateway_closes_or_loses_is_asked_for_again(tmp_path: Path) -> None:
    async with house(tmp_path) as here, stage(url(here)) as on:
        await on.ask(hello("2025-11-25"))
        exchanges: list[HttpExchange] = []
        handle = here.server.legacy_request
        here.server.legacy_request = lambda *asked: (exchanges.append(asked[2]), handle(*asked))[1]  # type: ignore[method-assign]
        on.pipes.send({"id": 1, "method": "tools/call", "params": {"name": "s_t", "_meta": {"progressToken": "p"}}})
        await until(lambda: here.source.held, "the call is on its way")
        (running,) = here.source.held
        running.notify("notifications/progress", b'{"progressToken":1,"progress":1}')
        assert (await on.pipes.next())["method"] == "notifications/progress"
        exchanges[-1].pause_stream()
        running.notify("notifications/progress", b'{"progressToken":1,"progress":2}')
        assert (await on.pipes.next())["params"]["progress"] == 2
        here.break_connections()
        running.finish(OK)
        assert (await on.pipes.next())["result"] == {"content": []}


async def test_a_batch_of_2025_03_26_is_answered_together(tmp_path: Path) -> None:
    async with house(tmp_path) as here, stage(url(here)) as on:
        await on.ask(hello("2025-03-26"))
        here.source.on_submit = echo
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "s_t"}}
        ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
        on.pipes.send(json.dumps([call, ping, 7, {"jsonrpc": "2.0", "method": "notifications/x"}]).encode())
        answers: Any = await on.pipes.next()
        assert {answer["id"] for answer in answers} == {None, 1, 2}
        on.pipes.send(b"[]")
        assert (await on.pipes.next())["error"]["code"] == -32600


async def test_batches_of_other_versions_are_refused(tmp_path: Path) -> None:
    async with house(tmp_path) as here, stage(url(here)) as on:
        await on.ask(hello("2025-11-25"))
        on.pipes.send(b'[{"jsonrpc":"2.0","id":2,"method":"ping"}]')
        assert (await on.pipes.next())["error"]["code"] == -32600


async def test_notifications_that_a_broken_stream_lost_come_again(tmp_path: Path) -> None:
    async with house(tmp_path) as here, stage(url(here)) as on:
        await on.ask(hello("2025-11-25"))
        on.pipes.send({"method": "notifications/initialized"})
        session = here.session()
        await until(lambda: session.stream is not None, "it listens")
        stream = session.stream
        assert stream is not None
        here.break_connections()
        session.push(b'{"jsonrpc":"2.0","method":"notifications/lost"}')
        assert (await on.pipes.next())["method"] == "notifications/lost"
        assert session.stream is not stream


@pytest.mark.law
async def test_what_a_gateway_has_begun_and_forgotten_is_never_asked_again(tmp_path: Path) -> None:
    async with house(tmp_path) as here, stage(url(here)) as on:
        await on.ask(hello("2025-11-25"))
        on.pipes.send({"id": 1, "method": "tools/call", "params": {"name": "s_t", "_meta": {"progressToken": "p"}}})
        await until(lambda: here.source.held, "the call is on its way")
        here.source.held[0].notify("notifications/progress", b'{"progressToken":1,"progress":1}')
        await on.pipes.next()
        session = here.session()
        here.break_connections()
        here.sessions.end(session, "the test wants it")
        answer = await on.pipes.next()
        assert answer["error"]["data"]["executed"] == "unknown"
        assert len(here.source.held) == 1
