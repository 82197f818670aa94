"""`trunkline connect`: how each client is connected to a gateway, by a command to run or a file to edit.

A token is never printed. Each command names the variable that holds it, in the client's own syntax, so that the client
looks it up when it connects.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

import click

from trunkline.cli.options import CONFIG, TOKEN_VARIABLE, mcp_url
from trunkline.cli.terminal import terminal_width

if TYPE_CHECKING:
    from trunkline.core.bind_address import BindAddress

NAME: Final = "trunkline"
_PROBE_S: Final = 2.0
_WILDCARDS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}
_DEFAULT_URL: Final = "http://127.0.0.1:4747/mcp"

# -- the clients ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The gateway to connect to: its `/mcp`, whether it wants a token, and our program for clients that start one."""

    url: str
    needs_token: bool
    program: str


@dataclass(frozen=True, slots=True)
class ClientSetup:
    """What to do for one client: `run` a command, or put `paste` into `file`."""

    title: str
    run: str = ""
    file: str = ""
    paste: Mapping[str, Any] | None = None
    note: str = ""

    @property
    def text(self) -> str:
        """The command, or the snippet on one line."""
        return self.run or _compact(self.paste)

    def as_json(self) -> dict[str, Any]:
        action = {"run": self.run} if self.run else {"file": self.file, "paste": self.paste}
        return {"title": self.title, **action} | ({"note": self.note} if self.note else {})


def program_path(argv: str = sys.argv[0]) -> str:
    """The path of our program as it was started, so that a link that survives upgrades is kept."""
    started_as = Path(argv)
    is_ours = started_as.name == NAME and started_as.is_file()
    return str((started_as if is_ours else Path(sys.executable).with_name(NAME)).absolute())


def program_name() -> str:
    """What to type to run our program: its name if the PATH has it, else its whole path."""
    import shutil

    path = program_path()
    return NAME if shutil.which(NAME) == path else shlex.quote(path)


def _command(title: str, add: str, token_option: str) -> Callable[[Endpoint], ClientSetup]:
    """For a client with a command that adds a server: `{}` in it stands for the gateway's URL."""

    def setup(endpoint: Endpoint) -> ClientSetup:
        words = shlex.split(f"{add} {token_option}" if endpoint.needs_token else add)
        return ClientSetup(title, run=shlex.join(endpoint.url if word == "{}" else word for word in words))

    return setup


def _vscode(endpoint: Endpoint) -> ClientSetup:
    server = {"name": NAME, "type": "http", "url": endpoint.url} | _headers(endpoint)
    return ClientSetup("VS Code", run=shlex.join(["code", "--add-mcp", _compact(server)]))


def _cursor(endpoint: Endpoint) -> ClientSetup:
    server = {"url": endpoint.url} | _headers(endpoint)
    return ClientSetup("Cursor", file="~/.cursor/mcp.json", paste={"mcpServers": {NAME: server}})


def _claude_desktop(endpoint: Endpoint) -> ClientSetup:
    """It only starts programs: ours forwards everything to the gateway."""
    server: dict[str, Any] = {"command": endpoint.program, "args": ["stdio", "--url", endpoint.url]}
    note = ""
    if endpoint.needs_token:
        server["env"] = {TOKEN_VARIABLE: f"${TOKEN_VARIABLE}"}
        note = f"replace ${TOKEN_VARIABLE} with the token itself: this file does not expand variables"
    paste = {"mcpServers": {NAME: server}}
    folder = "~/Library/Application Support/Claude" if sys.platform == "darwin" else "~/.config/Claude"
    file = f"{folder}/claude_desktop_config.json"
    return ClientSetup("Claude Desktop", file=file, paste=paste, note=note)


def _headers(endpoint: Endpoint) -> dict[str, Any]:
    """For editors, which expand `${env:NAME}`."""
    return {"headers": {"Authorization": f"Bearer ${{env:{TOKEN_VARIABLE}}}"}} if endpoint.needs_token else {}


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


CLIENTS: Final[Mapping[str, Callable[[Endpoint], ClientSetup]]] = {
    "claude-code": _command(
        "Claude Code", "claude mcp add -s user -t http trunkline {}", "-H 'Authorization: Bearer ${TRUNKLINE_TOKEN}'"
    ),
    "codex": _command("Codex", "codex mcp add trunkline --url {}", "--bearer-token-env-var TRUNKLINE_TOKEN"),
    "gemini": _command(
        "Gemini CLI", "gemini mcp add -s user -t http trunkline {}", "-H 'Authorization: Bearer $TRUNKLINE_TOKEN'"
    ),
    "opencode": _command(
        "OpenCode", "opencode mcp add trunkline --url {}", "--header 'Authorization=Bearer {env:TRUNKLINE_TOKEN}'"
    ),
    "vscode": _vscode,
    "cursor": _cursor,
    "claude-desktop": _claude_desktop,
}


# -- the command ------------------------------------------------------------------------------------------------------


@click.command()
@click.argument("client", required=False, type=click.Choice(list(CLIENTS)), metavar="[CLIENT]")
@CONFIG
@click.option("--url", help="Connect to the gateway at this URL, instead of the running or configured one.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")
def connect(client: str | None, config: Path | None, url: str | None, as_json: bool) -> None:
    """Show how to connect a client to the gateway.

    Depending on the client, this is a command to run or a snippet to paste into a file.

    CLIENT is one of claude-code, codex, gemini, opencode, vscode, cursor and claude-desktop. Without it, all are shown.
    """
    address, configured_token = (mcp_url(url), False) if url is not None else _found(config)
    needs_token = _asks_for_token(address)
    if needs_token is None:
        _note(f"nothing is listening at {address} yet; start the gateway with `trunkline up`")
        needs_token = configured_token
    endpoint = Endpoint(address, needs_token, program_path())
    if as_json:
        shown = CLIENTS if client is None else [client]
        clients = [{"client": name, **CLIENTS[name](endpoint).as_json()} for name in shown]
        click.echo(json.dumps({"url": address, "token": endpoint.needs_token, "clients": clients}, indent=2))
    elif client is None:
        click.echo("\n".join(screen_lines(endpoint, screen_width(sys.stdout))))
    else:
        _show(CLIENTS[client](endpoint))


def _show(setup: ClientSetup) -> None:
    """Print just what to run or paste on stdout, and where to paste it on stderr."""
    if setup.run:
        click.echo(setup.run)
    else:
        _note(f"this goes into {setup.file}" + (f"; {setup.note}" if setup.note else ""))
        click.echo(json.dumps(setup.paste, indent=2, ensure_ascii=False))


def screen_lines(endpoint: Endpoint, columns: int | None = None) -> list[str]:
    """Every client with what to do for it, next to its title if the screen is wide enough for that, else below it."""
    setups = [setup(endpoint) for setup in CLIENTS.values()]
    width = max(len(setup.title) for setup in setups) + 4
    beside = columns is None or all(width + len(setup.run) < columns for setup in setups)
    lines: list[str] = []
    for setup in setups:
        title, parts = f"  {setup.title}", [click.style(setup.text, fg="cyan")]
        if not setup.run:
            parts.insert(0, f"in {setup.file}:" + (f"   ({setup.note})" if setup.note else ""))
        if beside:
            lines += [
                click.style(title.ljust(width), bold=True) + parts[0],
                *(" " * width + part for part in parts[1:]),
            ]
        else:
            lines += [click.style(title, bold=True), *(f"    {part}" for part in parts)]
    if endpoint.needs_token:
        lines += ["", f"  Clients read the token from {TOKEN_VARIABLE}: export it before you start them."]
    return lines


def screen_width(stream: TextIO) -> int | None:
    """The columns of the terminal behind a stream; None if there is none."""
    return terminal_width(stream) if stream.isatty() else None


def _note(text: str) -> None:
    click.echo(f"note: {text}", err=True)


# -- which gateway ----------------------------------------------------------------------------------------------------


def _found(config: Path | None) -> tuple[str, bool]:
    """The URL of the gateway of the configuration file (or, without a file, of the running one), and whether it has a
    token."""
    from trunkline.config.files import find_config
    from trunkline.config.settings import STATE_DIR, gateway_folder
    from trunkline.runtime.gateway_records import all_running, find_running

    file = find_config(config, Path(), Path.home())
    if file is None:
        urls = [record.url for record in all_running(Path(STATE_DIR).expanduser())]
        if len(urls) > 1:
            raise click.UsageError(f"several gateways are running here: {', '.join(urls)}; choose one with `--url`")
        return urls[0] if urls else _DEFAULT_URL, False
    from trunkline.cli.configuration import settings_of

    settings = settings_of(file)
    running = find_running(gateway_folder(settings))
    return running.url if running is not None else _local_url(settings.gateway.listen), bool(settings.gateway.token)


def _local_url(listen: BindAddress) -> str:
    """The URL at which a client on this machine reaches a gateway that listens there."""
    if not listen.port:
        raise click.UsageError("the configured port is 0 (any free port): start the gateway first, or use `--url`")
    from trunkline.core.bind_address import BindAddress

    return f"http://{BindAddress(_WILDCARDS.get(listen.host, listen.host), listen.port)}/mcp"


def _asks_for_token(url: str) -> bool | None:
    """Ask the gateway whether it wants a token; None if nothing answers."""
    import http.client
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    connection_class = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = connection_class(parts.hostname or "", parts.port, timeout=_PROBE_S)
    try:
        connection.request("POST", parts.path, b"{}", {"Content-Type": "application/json"})
        return connection.getresponse().status == http.HTTPStatus.UNAUTHORIZED
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
