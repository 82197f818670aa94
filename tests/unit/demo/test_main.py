from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.mcp_dialogue import talking_to

from trunkline.demo.__main__ import SERVERS, load_server


@pytest.mark.parametrize("name", SERVERS)
async def test_every_server_of_the_table_is_complete(name: str) -> None:
    server = load_server(name)
    assert server.info["name"] == f"trunkline-demo-{name}"
    assert server.info["title"] and server.instructions
    async with talking_to(server) as client:
        tools = (await client.ask("tools/list"))["result"]["tools"]
    for tool in tools:
        assert tool["title"] and tool["description"].endswith(".")
        assert all(schema.get("description") for schema in tool["inputSchema"]["properties"].values())


@pytest.mark.parametrize("name", SERVERS)
@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
async def test_every_version_with_a_handshake_is_spoken(name: str, version: str) -> None:
    async with talking_to(load_server(name), greeted="") as client:
        assert (await client.greet(version))["protocolVersion"] == version


def test_every_server_is_in_the_demo_s_configuration() -> None:
    import trunkline.demo as package

    text = (Path(package.__file__).parent / "trunkline.yaml").read_text()
    assert all(f"\n  {name}:\n" in text for name in SERVERS)
