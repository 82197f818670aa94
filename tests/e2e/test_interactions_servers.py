"""Servers as people have them, which speak every version at once: an old client can do with them what it always could.

Their libraries refuse to ask a client on a connection of 2026-07-28 in the way these servers do. Directly, an old
client never has such a connection.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, ExitStack
from pathlib import Path

import pytest
from tests.support.gateway import Gateway
from tests.support.interactions.client import Client, Person, text_of
from tests.support.interactions.python_client import python_client
from tests.support.pairs import IN_FULL
from tests.support.peers.programs import ROOT, HttpPeer, Peer, StdioPeer
from tests.support.shared_gateway import shared_gateway
from tests.support.waiting import START_WAIT_S

pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
COMMON = [sys.executable, "-m", "tests.support.interactions.common_server"]
LIBRARIES = ("sdk", "fastmcp")
WIRES = ("http", "stdio")


def common(folder: Path, library: str, wire: str) -> Peer:
    name = f"{library}-{wire}"
    if wire == "http":
        return HttpPeer(folder, name, [*COMMON, library, "http", "{port}"], PYTHONPATH=str(ROOT))
    return StdioPeer(folder, name, [*COMMON, library, "stdio"], PYTHONPATH=str(ROOT))


class House:
    """A server of each library on each wire, and one gateway for all of them."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        servers = [common(folder, library, wire) for library in LIBRARIES for wire in WIRES]
        self.servers = {server.name: stack.enter_context(server) for server in servers}
        entries = [server.entry() for server in servers]
        self.gateway = stack.enter_context(shared_gateway(Gateway(folder, *entries, start_wait=START_WAIT_S)))

    def client(self, log: Path) -> AbstractAsyncContextManager[Client]:
        return old_client(f"http://127.0.0.1:{self.gateway.port}/mcp", log)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with ExitStack() as stack:
        yield House(tmp_path_factory.mktemp("house"), stack)


def old_client(target: str | list[str], log: Path) -> AbstractAsyncContextManager[Client]:
    return python_client("sdk", "legacy", target, log, person=Person(), env={"PYTHONPATH": str(ROOT)})


async def assert_is_asked(client: Client, prefix: str = "") -> None:
    assert text_of(await client.call(f"{prefix}survey")) == "Ada is 36"
    assert text_of(await client.call(f"{prefix}think")) == "thought about engines"


@pytest.mark.parametrize("wire", WIRES if IN_FULL else ["http"])
@pytest.mark.parametrize("library", LIBRARIES)
async def test_without_a_gateway_an_old_client_is_asked(library: str, wire: str, house: House, tmp_path: Path) -> None:
    """The rig is right."""
    server = house.servers[f"{library}-{wire}"]
    target = server.url if isinstance(server, HttpPeer) else server.command
    async with old_client(target, tmp_path / "client.log") as client:
        await assert_is_asked(client)


@pytest.mark.parametrize("library", LIBRARIES)
async def test_an_old_client_is_asked_what_a_server_of_every_version_asks_during_a_call(
    library: str, house: House, tmp_path: Path
) -> None:
    async with house.client(tmp_path / "client.log") as client:
        await assert_is_asked(client, f"{library}-http_")


@pytest.mark.parametrize("library", LIBRARIES)
async def test_two_old_clients_that_can_be_asked_have_a_process_each_as_without_a_gateway(
    library: str, house: House, tmp_path: Path
) -> None:
    async with house.client(tmp_path / "one.log") as first, house.client(tmp_path / "two.log") as second:
        prefix = f"{library}-stdio_"
        for client in (first, second):
            await assert_is_asked(client, prefix)
        processes = [text_of(await client.call(f"{prefix}whoami")) for client in (first, second, first, second)]
        assert processes[0] == processes[2] != processes[1] == processes[3]
