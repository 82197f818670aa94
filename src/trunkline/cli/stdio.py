"""`trunkline stdio` and `mcp-serve`: one client on standard input and output, served here or by a running gateway."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from trunkline.cli.options import CONFIG, TOKEN_VARIABLE, mcp_url

if TYPE_CHECKING:
    from trunkline.config.settings import Settings
    from trunkline.runtime.http_client import HttpTarget

_SOCKET_URL: Final = "http://localhost/mcp"


@click.command(short_help="Serve one client over standard input and output.")
@CONFIG
@click.option("--url", help="Attach to the gateway at this URL instead of starting servers.")
@click.option("--socket", type=click.Path(path_type=Path), help="Attach to the gateway at this Unix socket.")
@click.option("--alone", is_flag=True, help="Start separate servers even if a gateway is running for the same file.")
def stdio(config: Path | None, url: str | None, socket: Path | None, alone: bool) -> None:
    """Serve one client over standard input and output, for clients that start their MCP servers themselves.

    If a gateway is running for the same configuration file, or at the given URL or socket, the client is attached to
    it: its servers are shared, and none are started here.
    """
    if (url is not None) + (socket is not None) + alone > 1:
        raise click.UsageError("`--url`, `--socket` and `--alone` cannot be combined")
    from trunkline.cli.configuration import load_or_exit

    if url is not None or socket is not None:
        sys.exit(_attach_to_named(url, socket, config))
    sys.exit(_attach_or_serve(load_or_exit(config), alone=alone))


@click.command("mcp-serve", hidden=True, short_help="Serve the agent of a run.")
@click.option(
    "-c", "--config", required=True, type=click.Path(path_type=Path), help='`{"socket": PATH}`, or a configuration.'
)
def mcp_serve(config: Path) -> None:
    """Serve an agent that Trunkline runs: attach it to the run's router, or serve the sources the file describes."""
    from trunkline.runtime.stdio_bridge import run_bridge, socket_path

    socket = socket_path(["--config", str(config)])
    if socket is not None:
        run_bridge(socket)
    from trunkline.cli.configuration import load_or_exit

    sys.exit(_serve(load_or_exit(config)))


def _attach_to_named(url: str | None, socket: Path | None, config: Path | None) -> int:
    """Attach to the gateway that was named. That needs no configuration file, but one that is named is read."""
    from trunkline.cli.configuration import found_settings, load_or_exit
    from trunkline.frontends.relay.relay import attach
    from trunkline.runtime.http_client import HttpTarget
    from trunkline.runtime.process_setup import run_event_loop

    named = config is not None
    settings = load_or_exit(config) if named else found_settings()
    target = (
        HttpTarget(_SOCKET_URL, socket=str(socket.absolute())) if socket is not None else HttpTarget(mcp_url(url or ""))
    )
    token = client_token(settings if named or belongs_to(target, settings) else None)
    return run_event_loop(lambda: attach(target, token=token, settings=settings if named else None))


def _attach_or_serve(settings: Settings, *, alone: bool) -> int:
    from trunkline.config.settings import gateway_folder
    from trunkline.runtime.gateway_records import find_running

    running = None if alone else find_running(gateway_folder(settings))
    if running is None:
        return _serve(settings)
    from trunkline.frontends.relay.relay import attach
    from trunkline.runtime.http_client import HttpTarget
    from trunkline.runtime.process_setup import run_event_loop

    by_socket = bool(running.socket) and Path(running.socket).is_socket()
    target = HttpTarget(_SOCKET_URL, socket=running.socket) if by_socket else HttpTarget(running.url)
    how = f", which runs for the same file as process {running.pid} (`--alone` starts separate servers)"
    return run_event_loop(lambda: attach(target, token=client_token(settings), settings=settings, how=how))


def _serve(settings: Settings) -> int:
    """Serve with servers of its own until the client leaves. Returns the exit status."""
    from trunkline.cli.configuration import announce_config, reloader
    from trunkline.gateway.serving import serve_stdio
    from trunkline.runtime.process_setup import run_event_loop

    announce_config(settings)
    return run_event_loop(lambda: serve_stdio(settings, reloader(settings)))


def belongs_to(target: HttpTarget, settings: Settings | None) -> bool:
    """Whether this is the address of the file's own gateway, the only one that its token is sent to."""
    if settings is None:
        return False
    gateway = settings.gateway
    if target.socket:
        return target.socket == str(gateway.socket)
    return not target.tls and gateway.listen.is_at(target.host, target.port)


def client_token(settings: Settings | None) -> str:
    """The token to send to a gateway: the configured one, else that of the environment."""
    return (settings.gateway.token if settings else "") or os.environ.get(TOKEN_VARIABLE, "")
