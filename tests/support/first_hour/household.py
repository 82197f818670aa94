"""Somebody's eight MCP servers: the `.mcp.json` that names them, the two that listen, and a gateway for them all.

The file is as people have it: bare commands that are looked up, a credential from the environment, nothing of ours.
The commands are found in a folder of our own, so that a test can hold back every server for as long as it likes.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.gateway import Gateway
from tests.support.peers.clients import connect
from tests.support.peers.programs import EVERYTHING, FASTMCP, FILESYSTEM, NODE, SDK, HttpPeer, fastmcp, sdk
from tests.support.ports import free_port

TOKEN = "the-team-s-own-token"
GROCERIES = "oat milk\nlentils\n"
CLIENT = "claude-code"
"""What the clients call themselves: one that is shown all tools, however many they are."""
META_TOOLS = frozenset({"list_servers", "list_tools", "server_health", "find_tool", "registry_summary"})
_DEMO = ["-m", "trunkline.demo"]
_WAITS_AT_THE_GATE = """#!/bin/sh
while [ -e {hold} ]; do sleep 0.05; done
exec {program} "$@"
"""


class Household:
    """One folder with everything in it. The file can be changed at any time: change `servers`, then `save`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home, self.project = folder / "home", folder / "project"
        self.config = self.project / ".mcp.json"
        self._bin, self._hold = folder / "bin", folder / "hold"
        for place in (self.home, self.project / "notes", self._bin):
            place.mkdir(parents=True)
        (self.project / "notes" / "groceries.txt").write_text(GROCERIES)
        for name, program in {"node": NODE, "python": sys.executable}.items():
            self._place_command(name, program)
        team, archive = fastmcp(folder, "http", name="team", PEER_TOKEN=TOKEN), sdk(folder, "sse", name="archive")
        assert isinstance(team, HttpPeer) and isinstance(archive, HttpPeer)
        self.team, self.archive = team, archive
        self.servers = self._eight_servers()
        self.save()

    def _place_command(self, name: str, program: str) -> None:
        script = _WAITS_AT_THE_GATE.format(hold=shlex.quote(str(self._hold)), program=shlex.quote(program))
        (self._bin / name).write_text(script)
        (self._bin / name).chmod(0o755)

    def _eight_servers(self) -> dict[str, dict[str, Any]]:
        return {
            "everything": {"type": "stdio", "command": "node", "args": [EVERYTHING[1], "stdio"], "env": {}},
            "files": {"command": "node", "args": [FILESYSTEM[1], str(self.project / "notes")]},
            "calc": {"command": "python", "args": [SDK[1], "stdio"], "timeout": 60000},
            "notes": {"type": "stdio", "command": "python", "args": [FASTMCP[1], "stdio"], "alwaysLoad": True},
            "team": {"type": "http", "url": self.team.url, "headers": {"Authorization": "Bearer ${TEAM_TOKEN}"}},
            "archive": {"type": "sse", "url": self.archive.url},
            "clock": {"command": "python", "args": [*_DEMO, "clock"]},
            "text": {"command": "python", "args": [*_DEMO, "text"]},
        }

    # The file ---------------------------------------------------------------------------------------------------------

    def save(self) -> None:
        """Write the file as editors do: whole, in one step."""
        new = self.config.with_suffix(".new")
        new.write_text(json.dumps({"mcpServers": self.servers}, indent=2))
        new.replace(self.config)

    @contextmanager
    def changed_meanwhile(self) -> Iterator[None]:
        """Whatever happens to the file, afterwards it is as it was."""
        try:
            yield
        finally:
            self.servers = self._eight_servers()
            self.save()

    # Its servers ------------------------------------------------------------------------------------------------------

    @contextmanager
    def listeners(self) -> Iterator[None]:
        """The two servers that listen are up."""
        with self.team, self.archive:
            yield

    @contextmanager
    def held_back(self) -> Iterator[None]:
        """No server that is started by a command gets anywhere."""
        self._hold.touch()
        try:
            yield
        finally:
            self._hold.unlink()

    async def own_tools(self) -> dict[str, set[str]]:
        """The names each server gives its tools, asked of it without a gateway."""
        programs = {
            "everything": [*EVERYTHING, "stdio"],
            "files": [*FILESYSTEM, str(self.project / "notes")],
            "calc": [*SDK, "stdio"],
            "notes": [*FASTMCP, "stdio"],
            "clock": [sys.executable, *_DEMO, "clock"],
            "text": [sys.executable, *_DEMO, "text"],
        }
        listed = await asyncio.gather(*(self._list(program) for program in programs.values()))
        tools = dict(zip(programs, listed, strict=True))
        return {**tools, "team": tools["notes"], "archive": tools["calc"]}

    async def _list(self, program: list[str]) -> set[str]:
        async with connect("sdk", "legacy", program, self.folder / "direct.log") as client:
            return await client.names()

    # Its gateway ------------------------------------------------------------------------------------------------------

    @property
    def environment(self) -> dict[str, str]:
        """What its owner's shell exports."""
        path = f"{self._bin}{os.pathsep}{os.environ['PATH']}"
        return {"HOME": str(self.home), "PATH": path, "TEAM_TOKEN": TOKEN}

    def gateway(self) -> HouseholdGateway:
        return HouseholdGateway(self)


class HouseholdGateway(Gateway):
    """`trunkline up -c .mcp.json`, in the folder of that file."""

    def __init__(self, household: Household) -> None:
        self.port = free_port()
        self.config = household.config
        self.log_path = household.folder / "gateway.log"
        exports = " ".join(f"{name}={shlex.quote(value)}" for name, value in household.environment.items())
        self._prelude = f'cd {shlex.quote(str(household.project))}; export {exports}; set -- "$@" --port {self.port}'

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def events(self) -> list[dict[str, Any]]:
        """What it logged since it began; a household's gateways all write to one log."""
        lines = self.log.rpartition('"event":"started"')[2].splitlines()[1:]
        return [json.loads(line) for line in lines if line.startswith("{")]
