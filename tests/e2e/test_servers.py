"""Servers on the SDK, on FastMCP and from npm, over stdio, HTTP and the old SSE: what goes on during a call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.gateway import Gateway
from tests.support.peers.clients import RealClient, connect
from tests.support.peers.programs import Peer, everything, fastmcp, filesystem, sdk
from tests.support.waiting import PATIENCE_S, START_WAIT_S, until

TRANSPORTS = ["stdio", "http", "sse"]
node = pytest.mark.node


@asynccontextmanager
async def client_of(peer: Peer, folder: Path) -> AsyncIterator[RealClient]:
    """A client of the SDK, and the server behind a gateway."""
    with peer, Gateway(folder, peer.entry(), start_wait=START_WAIT_S) as gateway:
        url = f"http://127.0.0.1:{gateway.port}/mcp"
        async with connect("sdk", "legacy", url, folder / "client.log") as client:
            yield client


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("make", [sdk, fastmcp])
async def test_progress_cancellation_and_changes_of_the_list(make: type[Peer], transport: str, tmp_path: Path) -> None:
    peer = make(tmp_path, transport)
    async with client_of(peer, tmp_path) as client:
        await client.names()

        seen: list[float] = []

        async def on_progress(done: float, total: float | None, message: str | None) -> None:
            seen.append(done)

        assert (await client.call("peer_work", {"steps": 3}, on_progress)).content[0].text == "3 steps"
        await until(lambda: seen == [1, 2, 3], "all three steps were reported")

        call = asyncio.ensure_future(client.call("peer_hold", {"name": "one"}))
        await peer.journal.wait_for("held one")
        call.cancel()
        await peer.journal.wait_for("cancelled one")
        assert not (await client.call("peer_add", {"a": 1, "b": 2})).is_error

        if make is sdk and transport == "sse":
            return  # over the old transport the SDK tells nobody that its tools have changed
        client.news.clear()
        await client.call("peer_grow", {"name": "grown"})
        async with asyncio.timeout(PATIENCE_S):
            await client.news.wait()
        await until(lambda: has_tool(client, "peer_grown"), "the new tool is listed")
        assert (await client.call("peer_grown")).content[0].text == "grown"


async def has_tool(client: RealClient, name: str) -> bool:
    return name in await client.names()


@node
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_the_reference_server_reports_progress(transport: str, tmp_path: Path) -> None:
    seen: list[float] = []

    async def on_progress(done: float, total: float | None, message: str | None) -> None:
        seen.append(done)

    async with client_of(everything(tmp_path, transport), tmp_path) as client:
        result = await client.call("peer_trigger-long-running-operation", {"duration": 0.4, "steps": 4}, on_progress)
        assert "completed" in result.content[0].text
        await until(lambda: seen == [1, 2, 3, 4], "all four steps were reported")


@node
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_the_reference_servers_image_and_structured_result_arrive(transport: str, tmp_path: Path) -> None:
    async with client_of(everything(tmp_path, transport), tmp_path) as client:
        image = (await client.call("peer_get-tiny-image")).content[1]
        assert (image.type, image.mime_type) == ("image", "image/png")
        weather = await client.call("peer_get-structured-content", {"location": "Chicago"})
        assert weather.structured_content["conditions"]


@node
async def test_files_are_written_and_read_through_the_gateway(tmp_path: Path) -> None:
    root = tmp_path / "files"
    root.mkdir()
    async with client_of(filesystem(tmp_path, root), tmp_path) as client:
        written = await client.call("peer_write_file", {"path": str(root / "a.txt"), "content": "größer\n" * 10_000})
        assert not written.is_error
        assert (root / "a.txt").read_text() == "größer\n" * 10_000
        read = await client.call("peer_read_text_file", {"path": str(root / "a.txt")})
        assert read.content[0].text == "größer\n" * 10_000
        outside = await client.call("peer_read_text_file", {"path": "/etc/hostname"})
        assert outside.is_error
