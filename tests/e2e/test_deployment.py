"""Five servers with twenty tools, four on stdio and one on HTTP: every one of them runs, under all of its names."""

from __future__ import annotations

import base64
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.client import Client
from tests.support.gateway import TRUNKLINE, Gateway
from tests.support.pairs import IN_FULL
from tests.support.peers.clients import MODERN, connect
from tests.support.peers.deployment_server import TOOLS
from tests.support.peers.programs import HERE, HttpPeer, StdioPeer
from tests.support.shared_gateway import shared_gateway
from tests.support.stdio_client import StdioClient
from tests.support.waiting import START_WAIT_S, wait_until

pytestmark = pytest.mark.slow
OVER_HTTP = "decisions-server"
PROGRAM = [sys.executable, str(HERE / "deployment_server.py")]
ADDRESSES = [f"{server}.{tool}" for server, tools in TOOLS.items() for tool in tools]
SPELLINGS = {
    "address": lambda address: address,
    "exposed name": lambda address: address.replace(".", "_"),
    "the gateway's name before it": lambda address: f"toolhive-gateway.{address}",
}


@pytest.fixture(scope="module")
def decisions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpPeer]:
    with HttpPeer(tmp_path_factory.mktemp("decisions"), OVER_HTTP, [*PROGRAM, OVER_HTTP, "{port}"]) as server:
        yield server


def entries(folder: Path, decisions: HttpPeer) -> list[dict]:
    """In the order of the table, as an operator would write them."""
    return [
        decisions.entry() if name == OVER_HTTP else StdioPeer(folder, name, [*PROGRAM, name]).entry() for name in TOOLS
    ]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, decisions: HttpPeer) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("deployment")
    with shared_gateway(Gateway(folder, *entries(folder, decisions), start_wait=START_WAIT_S)) as gateway:
        wait_until(lambda: all(f"{name} is ready" in gateway.log for name in TOOLS), "all five are up", START_WAIT_S)
        yield gateway


def test_the_deployment_is_the_one_described() -> None:
    assert len(TOOLS) == 5
    assert len(ADDRESSES) == 20


async def test_all_twenty_tools_are_listed_in_the_order_of_the_file(gateway: Gateway) -> None:
    async with gateway.client() as client:
        assert [tool["name"] for tool in await client.tools()] == [address.replace(".", "_") for address in ADDRESSES]


async def test_all_twenty_tools_run_by_each_of_their_names(gateway: Gateway) -> None:
    async with gateway.client() as client:
        for spell in SPELLINGS.values():
            for address in ADDRESSES:
                await assert_runs(client, address, spell(address))


@pytest.mark.parametrize("alone", [False, True] if IN_FULL else [False], ids=["joined", "alone"][: 1 + IN_FULL])
async def test_all_twenty_tools_run_through_the_stdio_frontend(gateway: Gateway, alone: bool, tmp_path: Path) -> None:
    """It finds the gateway that runs, or starts all servers anew."""
    command = [TRUNKLINE, "stdio", "-c", str(gateway.config), *(["--alone"] if alone else [])]
    async with StdioClient(command, tmp_path / "gateway.log") as client:
        await client.open()
        for address in ADDRESSES:
            await assert_runs(client, address, address)


async def assert_runs(client: Client, address: str, name: str) -> None:
    server, _, tool = address.partition(".")
    if tool == "capture_screenshot":
        (image,) = (await client.call(name)).result["content"]
        assert image["type"] == "image"
        assert base64.b64decode(image["data"]).startswith(b"\x89PNG")
    else:
        answer = await client.call(name, {"subject": name})
        assert answer.structured == {"server": server, "tool": tool, "subject": name}


async def test_a_real_client_gets_the_screenshot(gateway: Gateway, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{gateway.port}/mcp"
    async with connect("sdk", MODERN, url, tmp_path / "client.log") as client:
        (image,) = (await client.call("foureyes-mcp_capture_screenshot")).content
        assert (image.type, image.mime_type) == ("image", "image/png")


async def test_a_name_that_means_nothing_or_too_much_is_refused_by_name(gateway: Gateway) -> None:
    """`check_health` alone could be any of five."""
    async with gateway.client() as client:
        for name in ("foureyes-mcp.nonsense", "nobody.check_health", "check_health", "toolhive-gateway."):
            error = (await client.call(name)).error
            assert error["code"] == -32602, name
            assert name in error["message"]


async def test_a_tool_that_only_one_server_has_needs_no_prefix(gateway: Gateway) -> None:
    async with gateway.client() as client:
        answer = await client.call("query_credentials")
        assert answer.structured["server"] == "p4nth30n-mcp"
