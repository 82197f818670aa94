from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.answers import Answer
from tests.support.client import CLIENT_INFO, MODERN, HttpClient, encode, modern_headers, modern_meta
from tests.unit.frontends.rig import House, echo, house

from trunkline.core.tool import Snapshot
from trunkline.frontends.mcp import initialize
from trunkline.protocol.mcp.versions import LEGACY

ALWAYS = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "completions": {},
    "logging": {},
}


def opening(version: Any = LEGACY[-1], capabilities: Any = None) -> dict[str, Any]:
    given = {} if capabilities is None else capabilities
    return {"protocolVersion": version, "capabilities": given, "clientInfo": CLIENT_INFO}


async def initialized(here: House, params: dict[str, Any]) -> Answer:
    """What a new client's handshake is answered."""
    client = here.client()
    try:
        return await client.request("initialize", params)
    finally:
        await client.close()


async def test_a_client_is_known_by_the_beginning_of_its_name(tmp_path: Path) -> None:
    async with house(tmp_path) as here, HttpClient(here.port, name="n" * 70_000) as client:
        here.source.on_submit = lambda call: here.source.held.append(call) or echo(call)
        await client.call("s_t")
        assert here.source.held[0].caller.client == "n" * 64


async def test_both_greetings_say_what_we_can_do_and_what_servers_say_of_themselves(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.modern() as modern:
        here.rig.sinks["s"].publish(Snapshot(instructions="Use it well."))
        for version in LEGACY:
            result = (await initialized(here, opening(version))).result
            assert result["protocolVersion"] == version
            assert result["capabilities"] == ALWAYS
            assert result["serverInfo"]["name"] == "trunkline"
            assert result["instructions"] == "Use it well."
        result = (await modern.request("server/discover")).result
        assert result["capabilities"] == ALWAYS
        assert result["instructions"] == "Use it well."
        assert result["supportedVersions"] == [*LEGACY, MODERN]
        assert (result["resultType"], result["ttlMs"], result["cacheScope"]) == ("complete", 0, "private")


async def test_several_servers_are_told_apart_and_silent_ones_left_out(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        for name in ("a", "b"):
            here.rig.add(name, state=None)
            here.rig.sinks[name].publish(Snapshot(instructions=f"I am {name}."))
            here.rig.health(name, "ready")
        result = (await initialized(here, opening())).result["instructions"]
        assert result == "## a\n\nI am a.\n\n## b\n\nI am b."


async def test_extensions_of_servers_are_told_to_modern_clients_alone(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.modern() as modern:
        here.rig.add("a", state=None)
        capabilities = {"extensions": {"example.org/x": {"a": 1}}}
        snapshot = Snapshot(capabilities=json.dumps(capabilities).encode(), protocol_version=MODERN)
        here.rig.sinks["a"].publish(snapshot)
        here.rig.health("a", "ready")
        result = (await modern.request("server/discover")).result
        assert result["capabilities"] == ALWAYS | capabilities
        assert (await initialized(here, opening())).result["capabilities"] == ALWAYS


async def test_a_greeting_waits_a_moment_for_servers_that_start_and_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with house(tmp_path) as here, here.modern() as modern:
        here.rig.add("slow", state=None)
        first = asyncio.ensure_future(initialized(here, opening()))
        second = asyncio.ensure_future(modern.request("server/discover"))
        assert "instructions" not in (await first).result, "it came though nobody was heard"
        assert "instructions" not in (await second).result
        monkeypatch.setattr(initialize, "_INSTRUCTIONS_WAIT_S", 30.0)
        third = asyncio.ensure_future(initialized(here, opening()))
        await modern.request("tools/call", {"name": "nobody"})
        here.rig.sinks["slow"].publish(Snapshot(instructions="Here I am."))
        here.rig.health("slow", "ready")
        assert "Here I am." in (await third).result["instructions"]


@pytest.mark.parametrize("capabilities", [[], "all", 7, None])
async def test_capabilities_that_are_no_object_are_refused(tmp_path: Path, capabilities: Any) -> None:
    async with house(tmp_path) as here, here.modern() as modern:
        params = {**opening(), "capabilities": capabilities}
        answer = await initialized(here, params)
        assert answer.error["code"] == -32602
        assert not here.server.sessions
        meta = {**modern_meta(), "io.modelcontextprotocol/clientCapabilities": capabilities}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}
        reply = await modern.post(encode(message), modern_headers("tools/list", {}))
        assert (reply.status, json.loads(reply.body)["error"]["code"]) == (400, -32602)


async def test_a_handshake_without_a_version_is_refused(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        for version in (None, 7):
            answer = await initialized(here, opening(version))
            assert answer.error["code"] == -32602
        assert (await initialized(here, opening("1999-01-01"))).result["protocolVersion"] == LEGACY[-1]
