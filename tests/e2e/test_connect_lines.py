"""The very lines that `trunkline connect` shows, run by a shell, and what the clients themselves say afterwards.

Each client has a home of its own and no account; whatever it would ask of the internet ends at a proxy that is not
there. None of this needs a model: the clients connect when they are asked for the state of their servers.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.gateway import TRUNKLINE, Gateway
from tests.support.peers.programs import AGENTS
from tests.support.processes import LASTING
from tests.support.stdio_client import StdioClient
from tests.support.waiting import START_WAIT_S, at_most

pytestmark = [pytest.mark.node, pytest.mark.timeout(240)]

TOKEN = "a-token-that-no-file-may-hold"
STEP_S = at_most(60)
CLIENTS = str(AGENTS)
NOBODY = "http://127.0.0.1:9"
CLOCK = {"clock": {"kind": "mcp_stdio", "command": sys.executable, "args": ["-P", "-m", "trunkline.demo", "clock"]}}


class Workstation:
    """Where a user works in a shell: a home, a project, the clients on the path, and the token in a variable."""

    def __init__(self, folder: Path, gateway: Gateway) -> None:
        self.gateway = gateway
        self.url = f"http://127.0.0.1:{gateway.port}/mcp"
        self.home, self.project, temporary = folder / "home", folder / "home" / "project", folder / "temporary"
        for place in (self.project, temporary):
            place.mkdir(parents=True)
        self.environment = {
            "HOME": str(self.home),
            "TMPDIR": str(temporary),
            "TERM": "dumb",
            "LANG": "C.UTF-8",
            "PATH": os.pathsep.join((CLIENTS, str(Path(sys.executable).parent), "/usr/bin", "/bin")),
            "TRUNKLINE_TOKEN": TOKEN,
            "HTTP_PROXY": NOBODY,
            "HTTPS_PROXY": NOBODY,
            "NO_PROXY": "127.0.0.1,localhost",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
        }

    def shell(self, line: str, *, stdin: str = "") -> str:
        """What a line says, on either channel."""
        done = subprocess.run(
            ["sh", "-c", line],
            cwd=self.project,
            env=self.environment,
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=STEP_S,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}"
        return done.stdout

    def line_for(self, client: str) -> str:
        """As shown by `trunkline connect`, which also asks the gateway whether it wants a token."""
        command = [TRUNKLINE, "connect", client, "--url", self.url]
        done = subprocess.run(command, cwd=self.project, capture_output=True, text=True, timeout=STEP_S)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def settings_with(self, text: str) -> list[str]:
        """Files of the clients that hold this; what they are just removing does not count."""
        found: list[str] = []
        for folder, _, names in os.walk(self.home):  # which passes over folders that are gone
            for path in (Path(folder, name) for name in names):
                with contextlib.suppress(FileNotFoundError):
                    found += [str(path)] if path.is_file() and text.encode() in path.read_bytes() else []
        return found


@pytest.fixture(scope="module")
def gateways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Gateway]]:
    """By the token that each of them wants to see."""
    wide, closed = (
        Gateway(tmp_path_factory.mktemp("gateway"), CLOCK, token=token, start_wait=START_WAIT_S)
        for token in ("", TOKEN)
    )
    with wide, closed:
        pids = {wide.process.pid, closed.process.pid}
        LASTING.update(pids)
        yield {"": wide, TOKEN: closed}
        LASTING.difference_update(pids)


# How to see whether a client is connected -----------------------------------------------------------------------------


def claude_is_connected(workstation: Workstation) -> bool:
    (line,) = [line for line in workstation.shell("claude mcp list").splitlines() if line.startswith("trunkline: ")]
    assert workstation.url in line
    return line.endswith("✔ Connected")


def gemini_is_connected(workstation: Workstation) -> bool:
    (line,) = [line for line in workstation.shell("gemini mcp list").splitlines() if " trunkline: " in line]
    assert workstation.url in line
    return line.endswith("- Connected")


def opencode_is_connected(workstation: Workstation) -> bool:
    shown = workstation.shell("opencode mcp list")
    assert workstation.url in shown
    return "✓ trunkline" in shown


def codex_is_connected(workstation: Workstation) -> bool:
    assert workstation.url in workstation.shell("codex mcp list")
    return "clock_days_between" in codex_tools(workstation)


def codex_tools(workstation: Workstation) -> list[str]:
    """Its list does not connect; the server behind its editors does, when asked for the state of each server."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        ["codex", "app-server"],
        executable=f"{CLIENTS}/codex",
        cwd=workstation.project,
        env=workstation.environment,
        stdin=pipe,
        stdout=pipe,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as server:
        assert server.stdin is not None and server.stdout is not None
        try:
            hello = {"id": 1, "method": "initialize", "params": {"clientInfo": {"name": "test", "version": "1"}}}
            for message in (
                hello,
                {"method": "initialized"},
                {"id": 2, "method": "mcpServerStatus/list", "params": {}},
            ):
                server.stdin.write(json.dumps(message) + "\n")
                server.stdin.flush()
            answer = next(message for line in server.stdout if (message := json.loads(line)).get("id") == 2)
        finally:
            server.stdin.close()
            server.terminate()
    (found,) = [server for server in answer["result"]["data"] if server["name"] == "trunkline"]
    return list(found["tools"] or {})


CONNECTED: dict[str, Callable[[Workstation], bool]] = {
    "claude-code": claude_is_connected,
    "codex": codex_is_connected,
    "gemini": gemini_is_connected,
    "opencode": opencode_is_connected,
}


@pytest.mark.parametrize("client", CONNECTED)
def test_the_line_connects_the_client(client: str, gateways: dict[str, Gateway], tmp_path: Path) -> None:
    workstation = Workstation(tmp_path, gateways[""])
    workstation.shell(workstation.line_for(client))
    assert CONNECTED[client](workstation)
    assert workstation.settings_with(TOKEN) == []


@pytest.mark.law
@pytest.mark.parametrize("client", CONNECTED)
def test_the_line_connects_the_client_that_has_the_token_and_no_other(
    client: str, gateways: dict[str, Gateway], tmp_path: Path
) -> None:
    workstation = Workstation(tmp_path, gateways[TOKEN])
    workstation.shell(workstation.line_for(client))
    assert CONNECTED[client](workstation)
    assert workstation.settings_with(TOKEN) == []
    workstation.environment["TRUNKLINE_TOKEN"] = "another"
    assert not CONNECTED[client](workstation)


@pytest.mark.parametrize("token", ["", TOKEN], ids=["open", "token"])
async def test_what_claude_desktop_would_start_reaches_the_gateway(
    token: str, gateways: dict[str, Gateway], tmp_path: Path
) -> None:
    workstation = Workstation(tmp_path, gateways[token])
    server = json.loads(workstation.line_for("claude-desktop"))["mcpServers"]["trunkline"]
    variables = dict.fromkeys(server.get("env", {}), TOKEN)
    command = ["env", *(f"{name}={value}" for name, value in variables.items()), server["command"], *server["args"]]
    async with StdioClient(command, tmp_path / "desktop.log") as client:
        await client.open()
        assert "clock_days_between" in await client.tool_names()
        days = await client.call("clock_days_between", {"first": "2026-01-01", "last": "2026-07-28"})
        assert days.text == "208 days"
