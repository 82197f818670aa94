"""Claude Code as a test runs it: headless, with a home of its own, its model scripted, and only the MCP servers given.

It has no tools of its own but those that a test names, and may call every tool of the servers. Nothing it does leaves
the machine: whatever it would ask of anyone else goes to the scripted model, which writes that down.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.peers.programs import AGENTS
from tests.support.scripted_model import ScriptedModel
from tests.support.waiting import at_most

CLAUDE = str(AGENTS / "claude")
_CONNECT_MS = str(int(at_most(30) * 1000))
_RUN_S = at_most(60)


@dataclass(frozen=True)
class Finished:
    """How a run ended, and what Claude Code told about it on the way."""

    status: int
    events: list[dict[str, Any]]
    errors: str

    @property
    def servers(self) -> dict[str, str]:
        """The state of each MCP server when the first turn began."""
        (start,) = (event for event in self.events if event.get("subtype") == "init")
        return {server["name"]: server["status"] for server in start["mcp_servers"]}

    @property
    def commands(self) -> set[str]:
        """What can be asked of it with a slash, prompts of MCP servers among them."""
        (start,) = (event for event in self.events if event.get("subtype") == "init")
        return set(start["slash_commands"])

    @property
    def said(self) -> str:
        """Its last words."""
        return self.events[-1]["result"]


async def run_claude(
    model: ScriptedModel,
    servers: dict[str, dict[str, Any]],
    folder: Path,
    *,
    prompt: str = "Do as planned",
    own_tools: tuple[str, ...] = (),
) -> Finished:
    """Ask once, with these servers as its only ones (`mcpServers`, the way Claude Code writes them)."""
    home, project = folder / "home", folder / "project"
    for place in (home, project):
        place.mkdir(parents=True, exist_ok=True)
    config = folder / "mcp.json"
    config.write_text(json.dumps({"mcpServers": servers}, indent=2))
    process = await asyncio.create_subprocess_exec(
        *_command(prompt, config, list(servers), own_tools),
        cwd=project,
        env=_environment(model, home),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(_RUN_S):
            output, errors = await process.communicate()
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    assert process.returncode is not None
    return Finished(process.returncode, [json.loads(line) for line in output.splitlines()], errors.decode())


def _command(prompt: str, config: Path, servers: list[str], own_tools: tuple[str, ...]) -> list[str]:
    allowed = [*own_tools, *(f"mcp__{name}" for name in servers)]
    return [
        *(CLAUDE, "-p", prompt, "--output-format", "stream-json", "--verbose"),
        *("--mcp-config", str(config), "--strict-mcp-config", "--setting-sources", ""),
        *("--tools", ",".join(own_tools), "--allowedTools", ",".join(allowed)),
    ]


def _environment(model: ScriptedModel, home: Path) -> dict[str, str]:
    """Nothing of the caller's but its PATH: a developer's own settings and keys must not count here."""
    return {
        "HOME": str(home),
        "PATH": os.environ["PATH"],
        "ANTHROPIC_BASE_URL": model.url,
        "ANTHROPIC_API_KEY": "not-a-key",
        "HTTP_PROXY": model.url,
        "HTTPS_PROXY": model.url,
        "NO_PROXY": "127.0.0.1,localhost",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "DISABLE_TELEMETRY": "1",
        "MCP_CONNECTION_NONBLOCKING": "0",  # it would begin without a server that takes more than a moment
        "MCP_CONNECT_TIMEOUT_MS": _CONNECT_MS,
    }
