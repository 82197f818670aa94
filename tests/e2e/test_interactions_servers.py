"""Servers as people have them, which speak every version at once: an old client can do with them what it always could.

Their libraries refuse to ask a client on a connection of 2026-07-28 in the way these servers do. Directly, an old
client never has such a connection.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.support.gateway import Gateway
from tests.support.interactions.client import Person, text_of
from tests.support.interactions.python_client import python_client
from tests.support.peers.programs import ROOT, HttpPeer, Peer, StdioPeer
from tests.support.waiting import START_WAIT_S

pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
COMMON = [sys.executable, "-m", "tests.support.interactions.common_server"]


def common(folder: Path, library: str, wire: str) -> Peer:
    if wire == "http":
        return HttpPeer(folder, "common", [*COMMON, library, "http", "{port}"], PYTHONPATH=str(ROOT))
    return StdioPeer(folder, "common", [*COMMON, library, "stdio"], PYTHONPATH=str(ROOT))


@pytest.mark.parametrize("wire", ["http", "stdio"])
@pytest.mark.parametrize("library", ["sdk", "fastmcp"])
async def test_without_a_gateway_an_old_client_is_asked(library: str, wire: str, tmp_path: Path) -> None:
    """The rig is right."""
    with common(tmp_path, library, wire) as server:
        target = server.url if isinstance(server, HttpPeer) else server.command
        made = python_client(
            "sdk", "legacy", target, tmp_path / "client.log", person=Person(), env={"PYTHONPATH": str(ROOT)}
        )
        async with made as client:
            assert text_of(await client.call("survey")) == "Ada is 36"
            assert text_of(await client.call("think")) == "thought about engines"


@pytest.mark.parametrize("wire", ["http", "stdio"])
@pytest.mark.parametrize("library", ["sdk", "fastmcp"])
async def test_an_old_client_is_asked_what_a_server_of_every_version_asks_during_a_call(
    library: str, wire: str, tmp_path: Path
) -> None:
    with (
        common(tmp_path, library, wire) as server,
        Gateway(tmp_path, server.entry(), start_wait=START_WAIT_S) as gateway,
    ):
        url = f"http://127.0.0.1:{gateway.port}/mcp"
        async with python_client("sdk", "legacy", url, tmp_path / "client.log", person=Person()) as client:
            assert text_of(await client.call("common_survey")) == "Ada is 36"
            assert text_of(await client.call("common_think")) == "thought about engines"


@pytest.mark.parametrize("library", ["sdk", "fastmcp"])
async def test_two_old_clients_that_can_be_asked_have_a_process_each_as_without_a_gateway(
    library: str, tmp_path: Path
) -> None:
    server = common(tmp_path, library, "stdio")
    with Gateway(tmp_path, server.entry(), start_wait=START_WAIT_S) as gateway:
        url = f"http://127.0.0.1:{gateway.port}/mcp"
        one = python_client("sdk", "legacy", url, tmp_path / "one.log", person=Person())
        two = python_client("sdk", "legacy", url, tmp_path / "two.log", person=Person())
        async with one as first, two as second:
            processes = [text_of(await client.call("common_whoami")) for client in (first, second, first, second)]
            assert processes[0] == processes[2] != processes[1] == processes[3]
