"""How each client is told of a gateway: the line to run, or what to put into which of its files.

A token is never written out. Every line names the variable it is in, in the client's own way of doing so, so that the
client looks it up when it connects.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

NAME: Final = "trunkline"
TOKEN: Final = "TRUNKLINE_TOKEN"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The gateway to connect to: its `/mcp`, whether it wants a token, and our program for clients that start one."""

    url: str
    needs_token: bool
    program: str


@dataclass(frozen=True, slots=True)
class Step:
    """What to do for one client: `run` a line, or put `paste` into `file`."""

    client: str
    title: str
    run: str = ""
    file: str = ""
    paste: Mapping[str, Any] | None = None
    note: str = ""

    @property
    def text(self) -> str:
        """What is copied: the line, or the snippet on one line."""
        return self.run or _compact(self.paste)

    def as_json(self) -> dict[str, Any]:
        action = {"run": self.run} if self.run else {"file": self.file, "paste": self.paste}
        return {"client": self.client, "title": self.title, **action} | ({"note": self.note} if self.note else {})


def program_path(argv: str = sys.argv[0]) -> str:
    """Our program for clients without our PATH: as it was called, so that links which survive an upgrade stay."""
    called = Path(argv)
    found = called if called.name == NAME and called.is_file() else Path(sys.executable).with_name(NAME)
    return str(found.absolute())


def program_name() -> str:
    """What to type to run us again: our name where the PATH has us, else the whole path."""
    import shutil

    path = program_path()
    return NAME if shutil.which(NAME) == path else shlex.quote(path)


def _claude_code(endpoint: Endpoint) -> Step:
    line = ["claude", "mcp", "add", "-s", "user", "-t", "http", NAME, endpoint.url]
    if endpoint.needs_token:
        line += ["-H", f"Authorization: Bearer ${{{TOKEN}}}"]
    return Step("claude-code", "Claude Code", run=shlex.join(line))


def _codex(endpoint: Endpoint) -> Step:
    line = ["codex", "mcp", "add", NAME, "--url", endpoint.url]
    if endpoint.needs_token:
        line += ["--bearer-token-env-var", TOKEN]
    return Step("codex", "Codex", run=shlex.join(line))


def _gemini(endpoint: Endpoint) -> Step:
    line = ["gemini", "mcp", "add", "-s", "user", "-t", "http", NAME, endpoint.url]
    if endpoint.needs_token:
        line += ["-H", f"Authorization: Bearer ${TOKEN}"]
    return Step("gemini", "Gemini CLI", run=shlex.join(line))


def _opencode(endpoint: Endpoint) -> Step:
    line = ["opencode", "mcp", "add", NAME, "--url", endpoint.url]
    if endpoint.needs_token:
        line += ["--header", f"Authorization=Bearer {{env:{TOKEN}}}"]
    return Step("opencode", "OpenCode", run=shlex.join(line))


def _vscode(endpoint: Endpoint) -> Step:
    server = {"name": NAME, "type": "http", "url": endpoint.url} | _headers(endpoint)
    return Step("vscode", "VS Code", run=shlex.join(["code", "--add-mcp", _compact(server)]))


def _cursor(endpoint: Endpoint) -> Step:
    server = {"url": endpoint.url} | _headers(endpoint)
    return Step("cursor", "Cursor", file="~/.cursor/mcp.json", paste={"mcpServers": {NAME: server}})


def _claude_desktop(endpoint: Endpoint) -> Step:
    """It starts programs only: ours passes everything on to the gateway."""
    server: dict[str, Any] = {"command": endpoint.program, "args": ["stdio", "--url", endpoint.url]}
    note = ""
    if endpoint.needs_token:
        server["env"] = {TOKEN: f"${TOKEN}"}
        note = f"write the token itself in place of ${TOKEN}: this file knows no variables"
    paste = {"mcpServers": {NAME: server}}
    return Step("claude-desktop", "Claude Desktop", file=_claude_desktop_file(), paste=paste, note=note)


def _claude_desktop_file() -> str:
    folder = "~/Library/Application Support/Claude" if sys.platform == "darwin" else "~/.config/Claude"
    return f"{folder}/claude_desktop_config.json"


def _headers(endpoint: Endpoint) -> dict[str, Any]:
    """For editors, which know `${env:NAME}`."""
    return {"headers": {"Authorization": f"Bearer ${{env:{TOKEN}}}"}} if endpoint.needs_token else {}


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


CLIENTS: Final[Mapping[str, Callable[[Endpoint], Step]]] = {
    "claude-code": _claude_code,
    "codex": _codex,
    "gemini": _gemini,
    "opencode": _opencode,
    "vscode": _vscode,
    "cursor": _cursor,
    "claude-desktop": _claude_desktop,
}


def steps(endpoint: Endpoint) -> list[Step]:
    return [step(endpoint) for step in CLIENTS.values()]
