"""The gateway's own tools with real clients, which validate each result against its output schema."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.gateway import TRUNKLINE, Gateway, write_config
from tests.support.http_wire import fetch
from tests.support.peers.clients import MODERN, RealClient, connect
from tests.support.peers.programs import HERE, NODE, NODE_PACKAGES, sdk
from tests.support.waiting import START_WAIT_S, at_most, wait_until

OWN = ["list_servers", "server_health", "list_tools", "find_tool", "registry_summary"]
LOST = {"lost": {"kind": "mcp_stdio", "command": "/no/such/program"}}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("own_tools")
    entry = {"peer": sdk(folder, "stdio").entry()["peer"]}
    with Gateway(folder, entry, LOST, meta_tools=True, start_wait=START_WAIT_S) as gateway:
        wait_until(lambda: "peer is ready" in gateway.log, "the server behind the gateway is up", START_WAIT_S)
        wait_until(lambda: "lost is down" in gateway.log, "the other one is known not to start", START_WAIT_S)
        yield gateway


@pytest.mark.parametrize("era", ["legacy", MODERN])
@pytest.mark.parametrize("kind", ["sdk", "fastmcp"])
async def test_clients_get_structured_answers_that_fit_their_schemas(
    gateway: Gateway, kind: str, era: str, tmp_path: Path
) -> None:
    async with connect(kind, era, f"http://127.0.0.1:{gateway.port}/mcp", tmp_path / "client.log") as client:
        await ask_everything(client)


async def test_they_are_there_over_stdio_too(tmp_path: Path) -> None:
    config = write_config(tmp_path, LOST, meta_tools=True, start_wait=START_WAIT_S)
    async with connect("sdk", "legacy", [TRUNKLINE, "stdio", "-c", str(config)], tmp_path / "client.log") as client:
        assert [tool.name for tool in await client.tools()] == OWN
        (lost,) = (await client.call("list_servers")).structured_content["servers"]
        assert (lost["name"], lost["state"]) == ("lost", "down")
        assert "/no/such/program" in lost["reason"]


async def ask_everything(client: RealClient) -> None:
    tools = await client.tools()
    assert [tool.name for tool in tools[: len(OWN)]] == OWN
    assert all(tool.annotations.read_only_hint and tool.output_schema for tool in tools[: len(OWN)])

    peer, lost = (await client.call("list_servers")).structured_content["servers"]
    assert peer == {"name": "peer", "state": "ready", "tools": len(tools) - len(OWN)}
    assert (lost["name"], lost["state"]) == ("lost", "down")

    (health,) = (await client.call("server_health", {"server": "peer"})).structured_content["servers"]
    assert (health["state"], health["kind"]) == ("ready", "mcp_stdio")

    listed = (await client.call("list_tools", {"limit": 1000})).structured_content
    assert [tool["name"] for tool in listed["tools"]] == [tool.name for tool in tools[len(OWN) :]]
    assert listed["notReady"] == ["lost: down"]

    found = (await client.call("find_tool", {"query": "add numbers"})).structured_content["tools"][0]
    assert (found["name"], found["address"], found["inputSchema"]["required"]) == ("peer_add", "peer.add", ["a", "b"])

    result = await client.call("trunkline.registry_summary")
    assert result.structured_content["serversByState"] == {"ready": 1, "down": 1}
    assert json.loads(result.content[0].text) == result.structured_content

    refused = await client.call("server_health", {"server": "pear"})
    assert refused.is_error
    assert refused.content[0].text == "No server is called `pear`: did you mean `peer`?"


@pytest.mark.node
async def test_the_typescript_client_accepts_the_answers(gateway: Gateway) -> None:
    program = [NODE, str(HERE / "own_tools_client.mjs"), str(NODE_PACKAGES / "sdk")]
    url = f"http://127.0.0.1:{gateway.port}/mcp"
    client = await asyncio.create_subprocess_exec(*program, url, stdout=asyncio.subprocess.PIPE)
    try:
        async with asyncio.timeout(at_most(60)):
            output, _ = await client.communicate()
    finally:
        if client.returncode is None:
            client.kill()
            await client.wait()
    assert client.returncode == 0
    report = json.loads(output)
    assert report["tools"][: len(OWN)] == OWN
    assert all("structuredContent" in report[name] for name in OWN)
    assert report["refused"]["isError"]


async def test_no_page_counts_them_as_a_server(gateway: Gateway) -> None:
    async with connect("sdk", "legacy", f"http://127.0.0.1:{gateway.port}/mcp", Path("/dev/null")) as client:
        await client.call("list_servers")
    ready = await fetch(gateway.port, "GET", "/readyz")
    assert list(json.loads(ready.body)["servers"]) == ["peer", "lost"]
    samples = await gateway.metrics()
    about_us = {name.partition("{")[0] for name in samples if 'source="trunkline"' in name}
    assert all(name.startswith(("trunkline_calls", "trunkline_call_seconds")) for name in about_us), about_us
    assert samples['trunkline_calls_total{source="trunkline",tool="list_servers",outcome="ok"}'] >= 1
    assert "trunkline is ready" not in gateway.log
