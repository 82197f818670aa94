"""Common MCP servers as tests start them: a configuration entry, a command, a port."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.ports import free_port
from tests.support.waiting import until, wait_until

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
NODE = str(Path(sys.executable).with_name("node"))
NODE_PACKAGES = ROOT / "tools" / "node" / "node_modules" / "@modelcontextprotocol"
_OTHER_AGENTS = os.environ.get("TEST_AGENTS", "")
AGENTS = Path(_OTHER_AGENTS or ROOT / "tools" / "agents" / "node_modules" / ".bin")
PINNED = not _OTHER_AGENTS
"""Whether the agents that tests run are those that are pinned here."""
SDK = [sys.executable, str(HERE / "sdk_server.py")]
FASTMCP = [sys.executable, str(HERE / "fastmcp_server.py")]
EVERYTHING = [NODE, str(NODE_PACKAGES / "server-everything" / "dist" / "index.js")]
FILESYSTEM = [NODE, str(NODE_PACKAGES / "server-filesystem" / "dist" / "index.js")]
LISTEN_PATIENCE_S = 30


class Journal:
    """What a peer wrote down about itself."""

    def __init__(self, folder: Path, name: str) -> None:
        self.path = folder / f"{name}.journal"

    @property
    def lines(self) -> list[str]:
        return self.path.read_text().splitlines() if self.path.exists() else []

    async def wait_for(self, line: str) -> None:
        await until(lambda: line in self.lines, f"`{line}` in {self.path.name}")


class StdioPeer:
    """A program that the gateway starts."""

    def __init__(self, folder: Path, name: str, command: list[str], **env: str) -> None:
        self.name = name
        self.command = command
        self.journal = Journal(folder, name)
        self.env = {"PEER_JOURNAL": str(self.journal.path), **env}

    def entry(self, **keys: Any) -> dict[str, dict[str, Any]]:
        """This server's part of `sources:`."""
        command, *args = self.command
        return {self.name: {"kind": "mcp_stdio", "command": command, "args": args, "env": self.env, **keys}}

    def __enter__(self) -> StdioPeer:
        return self

    def __exit__(self, *_: object) -> None: ...


class HttpPeer:
    """A program that listens; started here, ended with `with`."""

    def __init__(self, folder: Path, name: str, command: list[str], path: str = "/mcp", **env: str) -> None:
        self.name = name
        self.command = command
        self.path = path
        self.port = free_port()
        self.journal = Journal(folder, name)
        self._log = folder / f"{name}.log"
        self._env = {**os.environ, "PEER_JOURNAL": str(self.journal.path), "PORT": str(self.port), **env}
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self.path}"

    def start(self) -> HttpPeer:
        """Start, or start again: the port stays the same."""
        command = [part.replace("{port}", str(self.port)) for part in self.command]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        wait_until(self._listens, f"`{self.name}` listens", LISTEN_PATIENCE_S)
        return self

    def _listens(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self._log.read_text("utf-8", "replace")
        return self._takes_connections()

    def _takes_connections(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self) -> None:
        """At once, and with it what it may have started: `node` is a launcher here."""
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None
            wait_until(lambda: not self._takes_connections(), f"`{self.name}` is gone")

    __enter__ = start

    def __exit__(self, *_: object) -> None:
        self.stop()

    def entry(self, **keys: Any) -> dict[str, dict[str, Any]]:
        return {self.name: {"kind": "mcp_http", "url": self.url, **keys}}


Peer = StdioPeer | HttpPeer


def sdk(folder: Path, transport: str = "stdio", name: str = "peer", **env: str) -> Peer:
    """A server on the official Python SDK: `stdio`, `http` or `sse`."""
    if transport == "stdio":
        return StdioPeer(folder, name, [*SDK, "stdio"], **env)
    if transport == "http":
        return HttpPeer(folder, name, [*SDK, "streamable-http", "{port}"], **env)
    return HttpPeer(folder, name, [*SDK, "sse", "{port}"], "/sse", **env)


def fastmcp(folder: Path, transport: str = "stdio", name: str = "peer", **env: str) -> Peer:
    """A server on FastMCP: `stdio`, `http` or `sse`."""
    if transport == "stdio":
        return StdioPeer(folder, name, [*FASTMCP, "stdio"], **env)
    return HttpPeer(folder, name, [*FASTMCP, transport, "{port}"], "/sse" if transport == "sse" else "/mcp", **env)


def everything(folder: Path, transport: str = "stdio", name: str = "peer") -> Peer:
    """The reference server of the protocol's authors, on Node: `stdio`, `http` or `sse`."""
    if transport == "stdio":
        return StdioPeer(folder, name, [*EVERYTHING, "stdio"])
    if transport == "http":
        return HttpPeer(folder, name, [*EVERYTHING, "streamableHttp"])
    return HttpPeer(folder, name, [*EVERYTHING, "sse"], "/sse")


def filesystem(folder: Path, root: Path, name: str = "peer") -> StdioPeer:
    """The reference server for files, on Node."""
    return StdioPeer(folder, name, [*FILESYSTEM, str(root)])
