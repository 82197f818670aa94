"""HTTP+SSE of 2024-11-05 with common clients, and streams that are resumed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import fastmcp
import mcp
import mcp_types as types
import pytest
from fastmcp.client.transports import SSETransport
from mcp.client.sse import sse_client
from tests.support.client import HttpClient
from tests.support.conformance.eras import LEGACY
from tests.support.conformance.layouts import Layout, standing
from tests.support.http_wire import Reply, Wire, request_bytes, sse_data
from tests.support.pairs import IN_FULL
from tests.support.waiting import PATIENCE_S, until

SSE_FIRST = {"Accept": "text/event-stream, application/json"}


@pytest.fixture(scope="module")
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("old_wires")
    with standing(Layout(f"gateway, {request.param} backend", request.param), folder) as url:
        yield url


async def asked(*_: Any) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"username": "u", "email": "u@example.com"})


@asynccontextmanager
async def sdk_client(url: str) -> AsyncIterator[Any]:
    async with mcp.Client(sse_client(url), mode="legacy", elicitation_callback=asked) as client:
        yield client


@asynccontextmanager
async def fastmcp_client(url: str) -> AsyncIterator[Any]:
    async def accept(*_: Any) -> dict[str, str]:
        return {"username": "u", "email": "u@example.com"}

    async with fastmcp.Client(SSETransport(url), mode="legacy", elicitation_handler=accept) as client:
        yield client


@pytest.mark.parametrize("connected", [sdk_client, fastmcp_client])
@pytest.mark.parametrize("url", ["stdio", "http"], indirect=True)
async def test_a_client_of_http_and_sse_lists_calls_and_is_asked(url: str, connected: Any) -> None:
    progress: list[float] = []

    async def on_progress(done: float, total: float | None, message: str | None) -> None:
        progress.append(done)

    async with connected(url.replace("/mcp", "/sse")) as client:
        tools = await client.list_tools()
        names = {tool.name for tool in (tools if isinstance(tools, list) else tools.tools)}
        assert {"test_simple_text", "test_elicitation"} <= names
        call = client.call_tool if isinstance(client, mcp.Client) else client.call_tool_mcp
        assert not (await call("test_simple_text", {})).is_error
        key = "progress_callback" if isinstance(client, mcp.Client) else "progress_handler"
        assert not (await call("test_tool_with_progress", {}, **{key: on_progress})).is_error
        await until(lambda: len(progress) >= 3, "the progress was told")
        result = await call("test_elicitation", {"message": "who?"})
        assert "accept" in result.content[0].text


class LatestClient(HttpClient):
    version = "2025-11-25"


@pytest.mark.parametrize("url", ["stdio", "http"] if IN_FULL else ["http"], indirect=True)
async def test_a_call_that_was_left_is_finished_by_coming_back(url: str) -> None:
    """As a client polls: a stream that begins with an id, and the answer on another one."""
    async with LatestClient(port_of(url)) as client:
        async with left_alone(client, "test_tool_with_progress") as (wire, reply):
            event_id = event_id_of(await anext(wire.body_parts(reply)))
        assert await fetched(client, event_id) == 1
        await client.delete()  # its own server goes with it


async def test_a_server_that_closes_its_stream_in_the_middle_has_ours_closed_too(tmp_path: Path) -> None:
    with standing(Layout("gateway, legacy HTTP backend", era=LEGACY), tmp_path) as url:
        async with LatestClient(port_of(url)) as client:
            async with left_alone(client, "test_reconnection") as (wire, reply):
                first, *others = [part async for part in wire.body_parts(reply)]
                assert not any(sse_data(part) for part in others)
            assert await fetched(client, event_id_of(first)) == 1


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2].partition("/")[0])


@asynccontextmanager
async def left_alone(client: HttpClient, tool: str) -> AsyncIterator[tuple[Wire, Reply]]:
    """A call whose connection closes when the test is done with it."""
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool}}
    async with await Wire.connect(client.port) as wire:
        await wire.send(client.post_bytes(json.dumps(message).encode(), SSE_FIRST))
        reply = await wire.read_head()
        assert reply.streamed
        yield wire, reply


def event_id_of(priming: bytes) -> str:
    """The id in the empty event that a stream begins with."""
    fields = dict(line.split(":", 1) for line in priming.decode().strip().split("\n"))
    assert fields["data"].strip() == ""
    assert fields["retry"].strip().isdigit()
    return fields["id"].strip()


async def fetched(client: HttpClient, event_id: str) -> Any:
    """The id of the request whose result comes after an event."""
    headers = {**client.headers, "Accept": "text/event-stream", "Last-Event-ID": event_id}
    async with asyncio.timeout(PATIENCE_S), await Wire.connect(client.port) as wire:
        await wire.send(request_bytes("GET", "/mcp", headers))
        (answer,) = [json.loads(data) async for data in wire.events(await wire.read_head())]
    assert "result" in answer
    return answer["id"]
