from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.client import HttpClient
from tests.support.http_wire import Reply
from tests.support.waiting import until
from tests.unit.frontends.rig import house
from tests.unit.router.fakes import OK

from trunkline.protocol.jsonrpc import encode

PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
NOTE = {"jsonrpc": "2.0", "method": "notifications/initialized"}


class BatchClient(HttpClient):
    version = "2025-03-26"


def call(request_id: Any, **meta: Any) -> dict[str, Any]:
    params = {"name": "s_t", **({"_meta": meta} if meta else {})}
    return {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}


def by_id(messages: list[dict[str, Any]]) -> dict[Any, dict[str, Any]]:
    return {message["id"]: message for message in messages}


async def test_requests_are_answered_in_one_array_and_the_rest_is_taken(tmp_path: Path) -> None:
    async with house(tmp_path) as here, BatchClient(here.port) as client:
        here.source.on_submit = lambda call: call.finish(OK) and None
        reply = await client.post(encode([PING, NOTE, call("a"), {"jsonrpc": "2.0", "id": 9, "result": {}}, 5]))
        responses = json.loads(reply.body)
        assert reply.status == 200
        assert by_id(responses)[1]["result"] == {}
        assert by_id(responses)["a"]["result"] == {"content": []}
        assert by_id(responses)[None]["error"]["code"] == -32600
        assert len(responses) == 3


async def test_a_batch_that_asks_nothing_is_accepted(tmp_path: Path) -> None:
    async with house(tmp_path) as here, BatchClient(here.port) as client:
        reply = await client.post(encode([NOTE, {"jsonrpc": "2.0", "id": 9, "result": {}}]))
        assert (reply.status, reply.body) == (202, b"")


@pytest.mark.parametrize("body", [b"[]", b"[ ]", encode([PING] * 101), b"[1", b"[" * 100_000])
async def test_what_is_no_batch_is_refused_as_a_whole(tmp_path: Path, body: bytes) -> None:
    async with house(tmp_path) as here, BatchClient(here.port) as client:
        reply = await client.post(body[:90_000])
        assert reply.status == 400
        assert json.loads(reply.body)["error"]["code"] in (-32600, -32700)


@pytest.mark.parametrize("version", ["2024-11-05", "2025-06-18", "2025-11-25"])
async def test_other_versions_have_no_batches(tmp_path: Path, version: str) -> None:
    async with house(tmp_path) as here:
        client = HttpClient(here.port)
        client.version = version
        async with client:
            for headers in ({}, {"MCP-Protocol-Version": "2025-03-26"}):
                reply = await client.post(encode([PING]), headers)
                assert (reply.status, json.loads(reply.body)["error"]["code"]) == (400, -32600)


async def test_a_handshake_is_no_part_of_a_batch(tmp_path: Path) -> None:
    async with house(tmp_path) as here, BatchClient(here.port) as client:
        hello = {"jsonrpc": "2.0", "id": 5, "method": "initialize", "params": {"protocolVersion": "2025-03-26"}}
        responses = by_id(json.loads((await client.post(encode([hello, PING]))).body))
        assert responses[5]["error"]["code"] == -32600
        assert responses[1]["result"] == {}


async def test_something_to_tell_before_makes_it_a_stream_with_every_answer(tmp_path: Path) -> None:
    async with house(tmp_path) as here, BatchClient(here.port) as client:
        posted: asyncio.Future[Reply] = asyncio.ensure_future(
            client.post(encode([PING, call("a", progressToken="p"), call("b")]))
        )
        await until(lambda: len(here.source.held) == 2, "both calls are on their way")
        first, second = here.source.held
        first.notify("notifications/progress", b'{"progressToken":1,"progress":1}')
        second.finish(OK)
        first.finish(OK)
        reply = await posted
        assert reply.streamed
        messages = [json.loads(event) for event in reply.events]
        assert [message.get("id") for message in messages if "method" not in message] == [1, "b", "a"]
        assert [message["params"]["progressToken"] for message in messages if "method" in message] == ["p"]


async def test_one_that_is_taken_back_does_not_lose_the_others(tmp_path: Path) -> None:
    async with house(tmp_path) as here, BatchClient(here.port) as client:
        posted = asyncio.ensure_future(client.post(encode([call("a"), call("b")])))
        await until(lambda: len(here.source.held) == 2, "both calls are on their way")
        await client.cancel("a")
        here.source.held[1].finish(OK)
        responses = json.loads((await posted).body)
        assert [answer["id"] for answer in responses] == ["b"]
