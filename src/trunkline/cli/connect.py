"""`trunkline connect`: the line that connects each client to a gateway, and how such lines look on a screen."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TextIO
from urllib.parse import urlsplit

import click

from trunkline.cli.options import CONFIG
from trunkline.cli.stdio import mcp_url
from trunkline.core.bind_address import BindAddress
from trunkline.core.errors import GatewayError

_PROBE_S: Final = 2.0
_WILDCARDS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}
_DEFAULT: Final = "http://127.0.0.1:4747/mcp"


@click.command()
@click.argument("client", required=False, type=click.Choice(list(CLIENTS)), metavar="[CLIENT]")
@CONFIG
@click.option("--url", help="The gateway to connect to, instead of the one that runs or is configured.")
@click.option("--json", "as_json", is_flag=True, help="As JSON on stdout.")
def connect(client: str | None, config: Path | None, url: str | None, as_json: bool) -> None:
    """Show the line that connects a client to the gateway.

    Where a client has no such line, what to put into which of its files is shown instead.

    CLIENT is one of claude-code, codex, gemini, opencode, vscode, cursor and claude-desktop; without it all are shown.
    """
    address, configured_token = (_checked(url), False) if url is not None else _found(config)
    wants_token = _wants_token(address)
    if wants_token is None:
        _note(f"nothing answers at {address} yet; start it with `trunkline up`")
        wants_token = configured_token
    endpoint = Endpoint(address, wants_token, program_path())
    chosen = steps(endpoint) if client is None else [CLIENTS[client](endpoint)]
    if as_json:
        listed = [step.as_json() for step in chosen]
        click.echo(json.dumps({"url": address, "token": endpoint.needs_token, "clients": listed}, indent=2))
    elif client is None:
        show("\n".join(screen_lines(endpoint, columns_of(sys.stdout))), err=False)
    else:
        _one(chosen[0])


def screen_lines(endpoint: Endpoint, columns: int | None = None) -> list[str]:
    """Every client with what to do for it, for people; the colours are dropped where there is no terminal.

    Beside each other where the screen is wide enough for the lines to run, else below each other.
    """
    listed = steps(endpoint)
    width = max(len(step.title) for step in listed) + 4
    beside = columns is None or all(width + len(step.run) < columns for step in listed)
    lines: list[str] = []
    for step in listed:
        title, (first, *more) = f"  {step.title}", _parts(step)
        if beside:
            lines += [click.style(title.ljust(width), bold=True) + first, *(" " * width + part for part in more)]
        else:
            lines += [click.style(title, bold=True), *(f"    {part}" for part in (first, *more))]
    if endpoint.needs_token:
        lines += ["", f"  Clients take the token from {TOKEN}: export it before you start them."]
    return lines


def columns_of(stream: TextIO) -> int | None:
    """How wide the screen behind this is; None where there is none."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or None
    except (OSError, ValueError):
        return None


def show(text: str, *, err: bool) -> None:
    """Print it; without colours where they are not wanted."""
    click.echo(text, err=err, color=False if os.environ.get("NO_COLOR") else None)


def _parts(step: Step) -> list[str]:
    if step.run:
        return [click.style(step.run, fg="cyan")]
    note = f"   ({step.note})" if step.note else ""
    return [f"in {step.file}:{note}", click.style(step.text, fg="cyan")]


def _one(step: Step) -> None:
    """Exactly what is to be run or pasted on stdout, and where it goes on stderr."""
    if step.run:
        click.echo(step.run)
        return
    _note(f"this goes into {step.file}" + (f"; {step.note}" if step.note else ""))
    click.echo(json.dumps(step.paste, indent=2, ensure_ascii=False))


def _note(text: str) -> None:
    click.echo(f"note: {text}", err=True)


# Which gateway --------------------------------------------------------------------------------------------------------


def _checked(url: str) -> str:
    """The URL of a gateway's `/mcp`; its host alone is enough."""
    try:
        return mcp_url(url)
    except GatewayError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.problem.code.exit)


def _found(config: Path | None) -> tuple[str, bool]:
    """The gateway of the configuration file, running or not, and whether it has a token; without a file what runs."""
    from trunkline.config.config_file import find_config

    file = find_config(config, Path(), Path.home())
    if file is None:
        return _only_running() or _DEFAULT, False
    from trunkline.cli.configuration import settings_of
    from trunkline.config.settings import gateway_folder
    from trunkline.runtime.gateway_records import find_running

    settings = settings_of(file)
    running = find_running(gateway_folder(settings))
    return running.url if running is not None else _dialled(settings.gateway.listen), bool(settings.gateway.token)


def _only_running() -> str:
    from trunkline.config.settings import STATE_DIR
    from trunkline.runtime.gateway_records import all_running

    running = all_running(Path(STATE_DIR).expanduser())
    if len(running) > 1:
        listed = ", ".join(one.url for one in running)
        raise click.UsageError(f"several gateways run here: {listed}; choose one with `--url`")
    return running[0].url if running else ""


def _dialled(listen: BindAddress) -> str:
    """Where a client of this machine finds what listens there."""
    if not listen.port:
        raise click.UsageError("the configured port is 0, any free one: start the gateway first, or name it: `--url`")
    host = _WILDCARDS.get(listen.host, listen.host)
    return f"http://{BindAddress(host, listen.port)}/mcp"


def _wants_token(url: str) -> bool | None:
    """Ask the gateway itself; None when nobody answers."""
    import http.client

    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=_PROBE_S)
    try:
        connection.request("POST", parts.path, b"{}", {"Content-Type": "application/json"})
        return connection.getresponse().status == http.HTTPStatus.UNAUTHORIZED
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


# How each client is told of a gateway: the line to run, or what to put into which of its files.
#
# A token is never written out. Every line names the variable it is in, in the client's own way of doing so, so that the
# client looks it up when it connects.

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
