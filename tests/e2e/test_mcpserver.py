"""A server made with `trunkline.mcpserver` works for common clients, and behind the gateway."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.conformance.harness import LEGACY, MODERN, Wire, judge_server
from tests.support.conformance.layouts import gateway_of, stdio_entry
from tests.support.gateway import Gateway
from tests.support.peers.clients import connect
from tests.support.waiting import START_WAIT_S, at_most, until

PROGRAM = """
import asyncio, sys
from trunkline.mcpserver import Server, ToolError, image

server = Server("bench", "1.0", "Tools to try a client on.")

async def steps(arguments, context):
    for step in range(1, arguments["steps"] + 1):
        context.progress(step, arguments["steps"], f"step {step}")
    print("noise on stdout")
    return {"steps": arguments["steps"], "client": context.client.name}

async def wait(arguments):
    open(arguments["file"] + ".began", "w").close()
    try:
        await asyncio.sleep(600)
    except asyncio.CancelledError:
        open(arguments["file"] + ".cancelled", "w").close()
        raise

def fail(arguments):
    raise ToolError("not today")

def grow(arguments):
    server.register_tool("grown", {}, lambda arguments: "new")
    return "grew"

server.register_tool("steps", {"properties": {"steps": {"type": "integer"}}, "required": ["steps"]}, steps,
                     description="Some steps", output_schema={"type": "object"})
server.register_tool("wait", {"properties": {"file": {"type": "string"}}}, wait)
server.register_tool("fail", {}, fail)
server.register_tool("grow", {}, grow)
server.register_tool("picture", {}, lambda arguments: ["a dot", image(b"dot")])
server.run()
"""

ERAS = ["legacy", "2026-07-28"]


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    path = tmp_path / "server.py"
    path.write_text(PROGRAM)
    return [sys.executable, str(path)]


@pytest.mark.parametrize("era", [*ERAS, "auto"])
@pytest.mark.parametrize("kind", ["sdk", "fastmcp"])
async def test_the_clients_people_have_can_use_it(kind, era: str, command: list[str], tmp_path: Path) -> None:
    reported: list[tuple[float, float | None, str | None]] = []

    async def progress(*update: Any) -> None:
        reported.append(update)

    async with connect(kind, era, command, tmp_path / "log") as client:
        assert await client.names() == {"steps", "wait", "fail", "grow", "picture"}
        result = await client.call("steps", {"steps": 3}, progress)
        assert result.structured_content is not None
        assert result.structured_content["steps"] == 3
        await until(lambda: len(reported) == 3, "all progress was told")
        assert reported[-1] == (3, 3, "step 3")
        failed = await client.call("fail")
        assert failed.is_error
        assert failed.content[0].text == "not today"
        picture = await client.call("picture")
        assert [block.type for block in picture.content] == ["text", "image"]
        async with client.listening() as changed:
            await client.call("grow")
            await asyncio.wait_for(changed(), at_most(15))
        assert "grown" in await client.names()


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_that_its_client_gives_up_is_cancelled(era: str, command: list[str], tmp_path: Path) -> None:
    file = tmp_path / "call"
    async with connect("sdk", era, command, tmp_path / "log") as client:
        call = asyncio.get_running_loop().create_task(client.call("wait", {"file": str(file)}))
        await until(file.with_suffix(".began").exists, "it runs")
        call.cancel()
        await until(file.with_suffix(".cancelled").exists, "its server hears of it")
        await asyncio.wait([call])
        assert not (await client.call("steps", {"steps": 1})).is_error


async def test_many_calls_at_once_are_all_answered(command: list[str], tmp_path: Path) -> None:
    async with connect("sdk", "2026-07-28", command, tmp_path / "log") as client:
        results = await asyncio.gather(*(client.call("steps", {"steps": number}) for number in range(1, 101)))
    assert [result.structured_content["steps"] for result in results] == list(range(1, 101))


@pytest.mark.parametrize("era", ERAS)
async def test_it_is_a_server_like_any_other_behind_the_gateway(era: str, command: list[str], tmp_path: Path) -> None:
    source = {"own": {"kind": "mcp_stdio", "command": command[0], "args": command[1:]}}
    with Gateway(tmp_path, source, start_wait=START_WAIT_S) as gateway:
        async with connect("sdk", era, f"http://127.0.0.1:{gateway.port}/mcp", tmp_path / "log") as client:
            assert "own_steps" in await client.names()
            result = await client.call("own_steps", {"steps": 2})
            assert result.structured_content["steps"] == 2
            async with client.listening() as changed:
                await client.call("own_grow")
                while "own_grown" not in await client.names():  # the first notification may be that the server came up
                    await asyncio.wait_for(changed(), at_most(15))
                    client.list_changed.clear()
            assert (await client.call("own_grown")).content[0].text == "new"


ABOUT_TOOLS = {
    "json-schema-2020-12",
    "tools-call-audio",
    "tools-call-embedded-resource",
    "tools-call-error",
    "tools-call-image",
    "tools-call-mixed-content",
    "tools-call-simple-text",
    "tools-call-with-progress",
    "tools-list",
}
"""What the harness has about tools that ask their client nothing."""
BESIDE = {LEGACY: {"tools-call-with-logging", "logging-set-level", "ping"}, MODERN: {"caching"}}


@pytest.mark.node
@pytest.mark.timeout(240)
@pytest.mark.parametrize("wire", BESIDE, ids=str)
def test_the_conformance_harness_finds_nothing_wrong_with_its_tools(wire: Wire, tmp_path: Path) -> None:
    """The harness speaks HTTP only, so that the gateway stands between."""
    command = [sys.executable, "-m", "tests.support.conformance.own_server"]
    with gateway_of({"own": stdio_entry(command)}, tmp_path) as url:
        report = judge_server(wire, url, tmp_path / "results")
    wanted = ABOUT_TOOLS | BESIDE[wire]
    assert wanted - report.passed_scenarios == set(), report.explain()
