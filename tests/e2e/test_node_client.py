"""The TypeScript SDK's client, which most agents are built on, through every door."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from tests.support.gateway import TRUNKLINE, Gateway, write_config
from tests.support.peers.programs import HERE, NODE, NODE_PACKAGES, Peer, sdk
from tests.support.waiting import START_WAIT_S

pytestmark = pytest.mark.node
CLIENT = [NODE, str(HERE / "node_client.mjs"), str(NODE_PACKAGES / "sdk")]


@pytest.mark.parametrize("door", ["http", "stdio", "attached"])
async def test_it_can_do_all_it_does_with_a_server_itself(door: str, tmp_path: Path) -> None:
    peer = sdk(tmp_path)
    if door != "stdio":
        with Gateway(tmp_path, peer.entry(), start_wait=START_WAIT_S) as gateway:
            url = f"http://127.0.0.1:{gateway.port}/mcp"
            report = await run_client(*([url] if door == "http" else [TRUNKLINE, "stdio", "--url", url]))
            await assert_all_worked(report, peer)
    else:
        config = write_config(tmp_path, peer.entry(), start_wait=START_WAIT_S)
        report = await run_client(TRUNKLINE, "stdio", "-c", str(config))
        await assert_all_worked(report, peer)


async def run_client(*target: str) -> dict:
    client = await asyncio.create_subprocess_exec(
        *CLIENT, *target, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
    )
    try:
        output, _ = await client.communicate()
    finally:
        if client.returncode is None:
            client.kill()
            await client.wait()
    assert client.returncode == 0
    return json.loads(output)


async def assert_all_worked(report: dict, peer: Peer) -> None:
    assert report["server"] == "trunkline"
    assert "peer_add" in report["tools"]
    assert report["add"] == {"total": 5, "parts": [2, 3], "note": None}
    assert report["picture"] == "image/png"
    assert report["fail"]["isError"]
    assert report["refuse"] == {"code": 4711, "data": {"retry": False, "ids": [1, "1", 1.5, None]}}
    assert report["work"] == "3 steps"
    assert report["progress"] == [{"progress": 1, "message": "holding"}]
    assert report["held"] == "aborted"
    await peer.journal.wait_for("cancelled node")
    assert report["ping"] == {}
    assert report["announced"]
    assert report["grown"] == "grown"
