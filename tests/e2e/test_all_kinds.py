"""Every kind of source in one gateway: clients see no difference between them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.contract.kinds.rig import Rig, rig_of
from tests.support.claude_code import run_claude
from tests.support.commands import trunkline
from tests.support.gateway import Gateway
from tests.support.http_wire import fetch
from tests.support.scripted_model import ScriptedModel, Use, calls, in_order, says
from tests.support.shared_gateway import shared_gateway
from tests.support.waiting import wait_until

from trunkline.sources import KINDS


class Town:
    """A gateway with one server of each kind, named after it, and a folder to run commands in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rigs: dict[str, Rig] = {}
        for kind in KINDS:
            place = folder / kind
            place.mkdir()
            self.rigs[kind] = rig_of(kind, place, server=f"my_{kind}")
        self.gateway = Gateway(folder, *(rig.entry() for rig in self.rigs.values()), meta_tools=True)

    def run(self, *args: str) -> str:
        done = trunkline(*args, "-c", str(self.gateway.config), cwd=self.folder)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def states(self) -> dict[str, dict[str, Any]]:
        """Whether or not all are well, which is the command's exit status."""
        done = trunkline("servers", "--json", "-c", str(self.gateway.config), cwd=self.folder)
        return {server["name"]: server for server in json.loads(done.stdout)["servers"]}

    def listed_name(self, kind: str, tool: str) -> str:
        return tool if kind == "builtin" else f"{self.rigs[kind].server}_{tool}"

    def is_ready(self) -> bool:
        states = self.states()
        return all(states.get(rig.server, {}).get("state") == "ready" for rig in self.rigs.values())


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    here = Town(tmp_path_factory.mktemp("town"))
    with contextlib.ExitStack() as stack, shared_gateway(here.gateway):
        for rig in here.rigs.values():
            stack.callback(rig.close)
            rig.start()
        wait_until(here.is_ready, "all kinds are ready", 30)
        yield here


def test_commands_show_all_kinds_alike(town: Town) -> None:
    states = town.states()
    table = town.run("servers").splitlines()
    tools = {tool["name"]: tool for tool in json.loads(town.run("tools", "--json"))["tools"]}
    for kind, rig in town.rigs.items():
        assert states[rig.server]["kind"] == kind
        assert states[rig.server].keys() >= {"state", "tools", "restarts", "inFlight", "queued", "origin", "since"}
        (row,) = (line for line in table if line.startswith(f"{rig.server} "))
        assert row.split()[1] == "ready"
        tool, arguments = rig.echo("hello")
        address = f"{rig.server}.{tool}"
        assert tools[town.listed_name(kind, tool)]["description"]
        assert town.run("call", address, json.dumps(arguments)).strip() == "hello"
        assert f"`{address}`, a tool of server `{rig.server}`" in town.run("explain", "--tool", address)


async def test_meta_tools_and_the_page_show_all_kinds_alike(town: Town) -> None:
    async with town.gateway.client() as client:
        listed = {s["name"]: s for s in (await client.call("list_servers")).structured["servers"]}
        health = {s["name"]: s for s in (await client.call("server_health")).structured["servers"]}
        counted = (await client.call("registry_summary")).structured["toolsByServer"]
        page = (await fetch(town.gateway.port, "GET", "/")).body.decode()
        for kind, rig in town.rigs.items():
            tools = (await client.call("list_tools", {"server": rig.server})).structured
            assert listed[rig.server]["tools"] == health[rig.server]["tools"] == counted[rig.server] == tools["total"]
            assert (health[rig.server]["kind"], health[rig.server]["state"]) == (kind, "ready")
            assert rig.server in page
            tool, _ = rig.echo("")
            found = (await client.call("find_tool", {"query": f"{rig.server} {tool}"})).structured["tools"]
            assert f"{rig.server}.{tool}" in [entry["address"] for entry in found]


@pytest.mark.node
@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_claude_code_calls_a_tool_of_each_kind(town: Town, tmp_path: Path) -> None:
    uses: list[Use] = []
    for kind, rig in town.rigs.items():
        tool, arguments = rig.echo(f"said by {kind}")
        uses.append(Use(f"mcp__trunkline__{town.listed_name(kind, tool)}", arguments))
    async with ScriptedModel(in_order(calls(*uses), says("All done."))) as model:
        entry = {"type": "http", "url": f"http://127.0.0.1:{town.gateway.port}/mcp"}
        finished = await run_claude(model, {"trunkline": entry}, tmp_path / "claude")
    assert (finished.status, finished.said) == (0, "All done."), finished.errors
    heard = json.dumps([event for event in finished.events if event.get("type") == "user"])
    assert [kind for kind in KINDS if f"said by {kind}" not in heard] == []
