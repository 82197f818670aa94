"""The tasks of 2025-11-25 between a client and servers of that version: they pass, under ids of ours."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.client import CLIENT_INFO, Client, HttpClient, ModernClient, encode
from tests.support.gateway import TRUNKLINE, Gateway, stdio_gateway
from tests.support.peers.programs import HERE, NODE, NODE_PACKAGES, everything
from tests.support.tasks import over_stdio
from tests.support.waiting import at_most

RELATED = "io.modelcontextprotocol/related-task"
OFFERED = {"requests": {"tools": {"call": {}}}, "cancel": {}}


def entry(name: str) -> dict[str, Any]:
    return over_stdio(name, "legacy_task_server.py")


async def follow(client: Client) -> None:
    tools = {tool["name"]: tool for tool in await client.tools()}
    assert tools["a_long"]["execution"] == {"taskSupport": "required"}
    assert (await client.request("tools/call", {"name": "a_long"})).error["code"] == -32601
    ids = {}
    for name in "ab":
        made = (await client.request("tools/call", {"name": f"{name}_long", "task": {"ttl": 60_000}})).result
        assert (made["task"]["status"], made["task"]["ttl"]) == ("working", 60_000)
        ids[name] = made["task"]["taskId"]
    assert len({"task-1", *ids.values()}) == 3
    got = (await client.request("tasks/get", {"taskId": ids["a"]})).result
    assert (got["taskId"], got["status"]) == (ids["a"], "working")
    result = (await client.request("tasks/result", {"taskId": ids["b"]})).result
    assert (result["content"][0]["text"], result["_meta"][RELATED]) == ("b", {"taskId": ids["b"]})
    cancelled = (await client.request("tasks/cancel", {"taskId": ids["a"]})).result
    assert (cancelled["taskId"], cancelled["status"]) == (ids["a"], "cancelled")
    assert (await client.request("tasks/get", {"taskId": "task-1"})).error["code"] == -32602
    assert (await client.request("tasks/list")).error["code"] == -32601


async def test_they_are_followed_over_http_and_belong_to_one_session(tmp_path: Path) -> None:
    with Gateway(tmp_path, entry("a"), entry("b"), start_wait=30) as gateway:
        async with HttpClient(gateway.port) as client, HttpClient(gateway.port) as other:
            await follow(client)
            made = (await client.request("tools/call", {"name": "a_long", "task": {"ttl": 1}})).result
            answer = await other.request("tasks/get", {"taskId": made["task"]["taskId"]})
            assert answer.error["code"] == -32602


async def test_they_are_followed_over_stdio(tmp_path: Path) -> None:
    async with stdio_gateway(tmp_path, entry("a"), entry("b"), start_wait=30) as client:
        await client.open()
        await follow(client)


async def test_news_of_a_task_have_the_id_that_the_client_knows(tmp_path: Path) -> None:
    with Gateway(tmp_path, entry("a"), start_wait=30) as gateway:
        async with HttpClient(gateway.port) as client, client.listen() as stream:
            made = (await client.request("tools/call", {"name": "a_long", "task": {"ttl": 1}})).result
            while (news := json.loads(await anext(stream)))["method"] != "notifications/tasks/status":
                pass
            assert news["params"]["taskId"] == made["task"]["taskId"]


@pytest.mark.parametrize(
    ("server", "version", "offered"),
    [
        ("legacy_task_server.py", "2025-11-25", OFFERED),
        ("legacy_task_server.py", "2025-06-18", None),
        ("task_server.py", "2025-11-25", None),
    ],
)
async def test_they_are_offered_where_a_server_has_them_and_the_client_may_know_them(
    tmp_path: Path, server: str, version: str, offered: dict[str, Any] | None
) -> None:
    with Gateway(tmp_path, over_stdio("a", server), start_wait=30) as gateway:
        async with HttpClient(gateway.port) as first, ModernClient(gateway.port) as other:
            assert await first.tools(), "the server was heard of"
            other.headers["MCP-Protocol-Version"] = version
            params = {"protocolVersion": version, "capabilities": {}, "clientInfo": CLIENT_INFO}
            message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
            greeting = other.answer(await other.post(encode(message)), 1)
            assert greeting.result["capabilities"].get("tasks") == offered


@pytest.mark.node
@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("door", ["joined", "http"])
async def test_the_typescript_sdk_follows_a_task_of_the_reference_server_that_asks_something(
    tmp_path: Path, transport: str, door: str
) -> None:
    with (
        everything(tmp_path, transport) as peer,
        Gateway(tmp_path, peer.entry(), entry("a"), start_wait=30) as gateway,
    ):
        async with HttpClient(gateway.port) as first:
            assert await first.tools(), "the servers were heard of"
        url = f"http://127.0.0.1:{gateway.port}/mcp"
        report = await run_client(*([url] if door == "http" else [TRUNKLINE, "stdio", "--url", url]))
    assert report["offered"] == OFFERED
    assert "error" not in report
    [task_id] = set(report["ids"])
    assert report["states"][0] == "working"
    [asked] = report["asked"]
    assert asked["message"].startswith('[peer] The research query "python"')
    assert asked["related"] == task_id
    assert report["text"].startswith("# Research Report: python (snake)")
    assert report["after"] == "completed"


async def run_client(*target: str) -> dict[str, Any]:
    program = [NODE, str(HERE / "task_client.mjs"), str(NODE_PACKAGES / "sdk"), "peer_simulate-research-query"]
    pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    client = await asyncio.create_subprocess_exec(*program, *target, stdin=nothing, stdout=pipe)
    try:
        async with asyncio.timeout(at_most(60)):
            output, _ = await client.communicate()
    finally:
        if client.returncode is None:
            client.kill()
            await client.wait()
    return json.loads(output)
