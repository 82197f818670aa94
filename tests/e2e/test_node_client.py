"""The TypeScript SDK's client, which most agents are built on, through every frontend."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.support.gateway import TRUNKLINE, Gateway, write_config
from tests.support.peers.programs import HERE, NODE, NODE_PACKAGES, Peer, sdk
from tests.support.waiting import START_WAIT_S

pytestmark = pytest.mark.node
CLIENT = [NODE, str(HERE / "node_client.mjs"), str(NODE_PACKAGES / "sdk")]


class Place:
    """A server on the SDK, and a gateway in front of it."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.peer = stack.enter_context(sdk(folder, "http"))
        self.gateway = stack.enter_context(Gateway(folder, self.peer.entry(), start_wait=START_WAIT_S))

    def target(self, frontend: str, folder: Path) -> list[str]:
        url = f"http://127.0.0.1:{self.gateway.port}/mcp"
        if frontend == "http":
            return [url]
        if frontend == "attached":
            return [TRUNKLINE, "stdio", "--url", url]
        config = write_config(folder, self.peer.entry(), start_wait=START_WAIT_S)
        return [TRUNKLINE, "stdio", "-c", str(config)]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with ExitStack() as stack:
        yield Place(tmp_path_factory.mktemp("place"), stack)


@pytest.mark.parametrize("frontend", ["http", "stdio", "attached"])
async def test_it_can_do_all_it_does_with_a_server_itself(frontend: str, place: Place, tmp_path: Path) -> None:
    """What it holds and what it grows is named after the frontend."""
    report = await run_client(frontend, *place.target(frontend, tmp_path))
    await assert_all_worked(report, frontend, place.peer)


async def run_client(name: str, *target: str) -> dict:
    client = await asyncio.create_subprocess_exec(
        *CLIENT, name, *target, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
    )
    try:
        output, _ = await client.communicate()
    finally:
        if client.returncode is None:
            client.kill()
            await client.wait()
    assert client.returncode == 0
    return json.loads(output)


async def assert_all_worked(report: dict, name: str, peer: Peer) -> None:
    assert report["server"] == "trunkline"
    assert "peer_add" in report["tools"]
    assert report["add"] == {"total": 5, "parts": [2, 3], "note": None}
    assert report["picture"] == "image/png"
    assert report["fail"]["isError"]
    assert report["refuse"] == {"code": 4711, "data": {"retry": False, "ids": [1, "1", 1.5, None]}}
    assert report["work"] == "3 steps"
    assert report["progress"] == [{"progress": 1, "message": "holding"}]
    assert report["held"] == "aborted"
    await peer.journal.wait_for(f"cancelled {name}")
    assert report["ping"] == {}
    assert report["announced"]
    assert report["grown"] == f"grown_{name}"
