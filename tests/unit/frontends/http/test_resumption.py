from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.client import HttpClient
from tests.support.http_wire import Reply, Wire, fetch, request_bytes
from tests.support.waiting import until
from tests.unit.frontends.rig import House, house
from tests.unit.router.fakes import OK

from trunkline.core.call import Result
from trunkline.core.server_request import ServerRequest
from trunkline.frontends.http.exchange import HttpExchange

STREAM = {"Accept": "text/event-stream, application/json"}
NOTIFICATION = b'{"jsonrpc":"2.0","method":"notifications/x"}'
SERVER_REQUEST = b'{"jsonrpc":"2.0","id":"q1","method":"roots/list"}'


class LatestClient(HttpClient):
    version = "2025-11-25"


class FirstClient(HttpClient):
    version = "2025-03-26"


def call(request_id: int = 7) -> bytes:
    message = {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": {"name": "s_t"}}
    return json.dumps(message).encode()


class Events:
    """A stream, event by event: its fields as they came."""

    def __init__(self, wire: Wire, reply: Reply) -> None:
        assert reply.streamed, reply
        self._parts = wire.body_parts(reply)
        self._pending = b""

    async def next(self) -> dict[str, str]:
        while b"\n\n" not in self._pending:
            self._pending += await anext(self._parts)
        block, _, self._pending = self._pending.partition(b"\n\n")
        pairs = (line.partition(":") for line in block.decode().split("\n"))
        return {name: value.removeprefix(" ") for name, _, value in pairs}

    async def rest(self) -> list[dict[str, str]]:
        events: list[dict[str, str]] = []
        while True:
            try:
                events.append(await self.next())
            except StopAsyncIteration:
                return events


async def ask(client: HttpClient, body: bytes, **headers: str) -> tuple[Wire, Events]:
    wire = await Wire.connect(client.port)
    await wire.send(client.post_bytes(body, {**STREAM, **headers}))
    return wire, Events(wire, await wire.read_head())


async def resume(client: HttpClient, event_id: str | None = None) -> tuple[Wire, Events]:
    wire = await Wire.connect(client.port)
    headers = {**client.headers, "Accept": "text/event-stream"}
    if event_id is not None:
        headers["Last-Event-ID"] = event_id
    await wire.send(request_bytes("GET", "/mcp", headers))
    return wire, Events(wire, await wire.read_head())


async def held(here: House, count: int = 1) -> Any:
    await until(lambda: len(here.source.held) == count, "the call is on its way")
    return here.source.held[-1]


@pytest.mark.law
async def test_a_dropped_call_goes_on_and_its_answer_waits(tmp_path: Path) -> None:
    async with house(tmp_path) as here, LatestClient(here.port) as client:
        wire, events = await ask(client, call())
        first = await events.next()
        assert first["data"] == ""
        assert first["id"]
        assert first["retry"].isdigit()
        running = await held(here)
        await wire.abort()
        await until(lambda: len(here.http_server) <= 1, "the connection is gone")
        assert not running.done
        running.finish(Result(b'{"content":[]}'))
        wire, events = await resume(client, first["id"])
        primed, answer = await events.rest()
        assert primed["data"] == ""
        assert json.loads(answer["data"]) == {"jsonrpc": "2.0", "id": 7, "result": {"content": []}}
        await wire.close()


async def test_a_client_that_comes_back_early_stays_until_the_answer(tmp_path: Path) -> None:
    async with house(tmp_path) as here, LatestClient(here.port) as client:
        wire, events = await ask(client, call())
        first = await events.next()
        running = await held(here)
        await wire.abort()
        wire, events = await resume(client, first["id"])
        await events.next()
        running.finish(OK)
        (answer,) = await events.rest()
        assert json.loads(answer["data"])["id"] == 7
        await wire.close()


async def test_a_stream_that_is_paused_ends_without_the_answer_which_is_fetched_later(tmp_path: Path) -> None:
    async with house(tmp_path) as here, LatestClient(here.port) as client:
        exchanges: list[HttpExchange] = []
        handle = here.server.legacy_request
        here.server.legacy_request = lambda *asked: (exchanges.append(asked[2]), handle(*asked))[1]  # type: ignore[method-assign]
        wire, events = await ask(client, call())
        first = await events.next()
        running = await held(here)
        exchanges[-1].pause_stream()
        assert await events.rest() == []
        again, events = await resume(client, first["id"])
        await events.next()
        running.finish(OK)
        (answer,) = await events.rest()
        assert json.loads(answer["data"])["id"] == 7
        await wire.close()
        await again.close()


@pytest.mark.parametrize("kind", [FirstClient, HttpClient])
async def test_before_2025_11_25_events_have_ids_and_streams_no_empty_first_event(
    tmp_path: Path, kind: type[HttpClient]
) -> None:
    async with house(tmp_path) as here, kind(here.port) as client:
        wire, events = await ask(client, call())
        (await held(here)).finish(OK)
        (answer,) = await events.rest()
        assert answer["id"]
        assert json.loads(answer["data"])["id"] == 7
        await wire.close()


async def test_who_lists_json_first_gets_json_and_nothing_is_kept(tmp_path: Path) -> None:
    async with house(tmp_path) as here, LatestClient(here.port) as client:
        here.source.on_submit = lambda call: call.finish(OK) and None
        reply = await client.post(call())
        assert not reply.streamed
        assert here.sessions.replay_budget.size_bytes == 0


async def test_notifications_that_a_broken_stream_lost_come_again(tmp_path: Path) -> None:
    async with house(tmp_path) as here, LatestClient(here.port) as client:
        wire, events = await resume(client)
        first = await events.next()
        session = here.session()
        session.push(NOTIFICATION)
        assert (await events.next())["data"] == NOTIFICATION.decode()
        await wire.abort()
        await until(lambda: session.stream is None, "the stream is gone")
        session.push(SERVER_REQUEST)
        wire, events = await resume(client, first["id"])
        received = [(await events.next())["data"] for _ in range(3)]
        assert received == ["", NOTIFICATION.decode(), SERVER_REQUEST.decode()]
        await wire.close()


async def test_a_stream_that_the_gateway_thinks_open_is_taken_over(tmp_path: Path) -> None:
    async with house(tmp_path) as here, LatestClient(here.port) as client:
        old, old_events = await resume(client)
        first = await old_events.next()
        new, new_events = await resume(client, first["id"])
        assert await old_events.rest() == []
        await new_events.next()
        session = here.session()
        session.push(NOTIFICATION)
        assert (await new_events.next())["data"] == NOTIFICATION.decode()
        await old.close()
        await new.close()


@pytest.mark.parametrize("event_id", ["nonsense", "7", "7-1", "0-", "-1", "a-b", "0-1-1", "9" * 30 + "-1", "0- 1"])
async def test_an_id_nobody_knows_opens_the_stream_of_the_session(tmp_path: Path, event_id: str) -> None:
    async with house(tmp_path) as here, LatestClient(here.port) as client:
        wire, events = await resume(client, event_id)
        assert (await events.next())["data"] == ""
        session = here.session()
        await until(lambda: session.stream is not None, "it is the session's own")
        await wire.close()


async def test_a_server_request_of_no_call_takes_the_stream_of_a_call_where_the_session_has_none(
    tmp_path: Path,
) -> None:
    async with house(tmp_path) as here, LatestClient(here.port) as client:
        wire, events = await ask(client, call())
        await events.next()
        session = here.session()
        session.push(SERVER_REQUEST)
        assert (await events.next())["data"] == SERVER_REQUEST.decode()
        session.push(NOTIFICATION)
        (await held(here)).finish(OK)
        (answer,) = await events.rest()
        assert json.loads(answer["data"])["id"] == 7
        await wire.close()


async def test_a_server_request_also_takes_the_stream_of_a_call_that_was_come_back_to(tmp_path: Path) -> None:
    async with house(tmp_path) as here, LatestClient(here.port) as client:
        wire, events = await ask(client, call())
        first = await events.next()
        running = await held(here)
        again, more = await resume(client, first["id"])
        assert await events.rest() == []
        await more.next()
        session = here.session()
        session.push(SERVER_REQUEST)
        assert (await more.next())["data"] == SERVER_REQUEST.decode()
        running.finish(OK)
        assert len(await more.rest()) == 1
        await wire.close()
        await again.close()


async def test_a_server_request_that_outlives_the_stream_of_its_call_is_taken_back_on_the_sessions_own(
    tmp_path: Path,
) -> None:
    async with house(tmp_path) as here:
        client = await LatestClient(here.port).open({"roots": {}})
        own, own_events = await resume(client)
        await own_events.next()
        wire, events = await ask(client, call())
        await events.next()
        running = await held(here)
        server_request = ServerRequest("s", "roots/list", b"{}", lambda *_: None, (running,))
        running.on_server_request(server_request)
        asked = json.loads((await events.next())["data"])
        running.finish(OK)
        assert len(await events.rest()) == 1
        server_request.withdraw()
        taken = json.loads((await own_events.next())["data"])
        assert (taken["method"], taken["params"]["requestId"]) == ("notifications/cancelled", asked["id"])
        for one in (own, wire, client):
            await one.close()


@pytest.mark.law
async def test_ids_of_one_session_mean_nothing_in_another(tmp_path: Path) -> None:
    async with house(tmp_path) as here, LatestClient(here.port) as client, LatestClient(here.port) as other:
        wire, events = await ask(client, call())
        first = await events.next()
        theirs, their_events = await resume(other, first["id"])
        await their_events.next()
        (await held(here)).finish(OK)
        assert len(await events.rest()) == 1
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await their_events.next()
        await wire.close()
        await theirs.close()


async def test_what_a_session_kept_goes_with_it(tmp_path: Path) -> None:
    async with house(tmp_path) as here, LatestClient(here.port) as client:
        wire, events = await ask(client, call())
        (await held(here)).finish(OK)
        await events.rest()
        assert here.sessions.replay_budget.size_bytes > 0
        assert (await fetch(here.port, "DELETE", "/mcp", client.headers)).status == 200
        assert here.sessions.replay_budget.size_bytes == 0
        await wire.close()
