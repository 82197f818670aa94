"""`trunkline stdio`: one client on standard input and output, served here or by a gateway that already runs."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from trunkline.cli.configuration import load_or_exit, load_quietly, reloader, tell_which
from trunkline.cli.options import CONFIG, TOKEN_VARIABLE, mcp_url
from trunkline.config.config_file import find_config
from trunkline.config.settings import Settings
from trunkline.core.errors import GatewayError

if TYPE_CHECKING:
    from trunkline.runtime.gateway_records import RunningGateway
    from trunkline.runtime.http_client import HttpTarget

_SOCKET_URL: Final = "http://localhost/mcp"


@click.command(short_help="Serve one client over standard input and output.")
@CONFIG
@click.option("--url", help="Join the gateway that runs at this URL instead of starting servers.")
@click.option("--socket", type=click.Path(path_type=Path), help="Join the gateway that listens on this Unix socket.")
@click.option("--alone", is_flag=True, help="Start servers of our own even where a gateway runs for the same file.")
def stdio(config: Path | None, url: str | None, socket: Path | None, alone: bool) -> None:
    """Serve one client over standard input and output, for programs that start their MCP servers.

    Where a gateway runs for the same configuration file, or at the address that is given, the client joins that one:
    its servers are shared, and none is started here.
    """
    if (url is not None) + (socket is not None) + alone > 1:
        raise click.UsageError("`--url`, `--socket` and `--alone` exclude each other")
    try:
        if url is not None or socket is not None:
            status = _join(url, socket, config)
        else:
            status = _join_or_serve(load_or_exit(config), alone=alone)
    except GatewayError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.problem.code.exit)
    sys.exit(status)


def _join(url: str | None, socket: Path | None, config: Path | None) -> int:
    """The gateway that was named. A configuration file is not needed for that; one that is named is read."""
    from trunkline.frontends.relay.relay import attach
    from trunkline.runtime.http_client import HttpTarget
    from trunkline.runtime.own_process import run_event_loop

    named = config is not None
    settings = load_or_exit(config) if named else _found_settings()
    target = (
        HttpTarget(_SOCKET_URL, socket=str(socket.absolute())) if socket is not None else HttpTarget(mcp_url(url or ""))
    )
    token = client_token(settings if named or belongs_to(target, settings) else None)
    return run_event_loop(lambda: attach(target, token=token, settings=settings if named else None))


def _join_or_serve(settings: Settings, *, alone: bool) -> int:
    if not alone:
        from trunkline.config.settings import gateway_folder
        from trunkline.runtime.gateway_records import find_running

        running = find_running(gateway_folder(settings))
        if running is not None:
            from trunkline.frontends.relay.relay import attach
            from trunkline.runtime.own_process import run_event_loop

            how = f", which runs for the same file as process {running.pid} (`--alone` starts servers of our own)"
            return run_event_loop(
                lambda: attach(_target(running), token=client_token(settings), settings=settings, how=how)
            )
    return serve_alone(settings)


def serve_alone(settings: Settings) -> int:
    """With servers of our own, until the client leaves; the exit status."""
    tell_which(settings)
    from trunkline.gateway.serving import serve_stdio
    from trunkline.runtime.own_process import run_event_loop

    return run_event_loop(lambda: serve_stdio(settings, reloader(settings, lambda same: same)))


def _target(running: RunningGateway) -> HttpTarget:
    from trunkline.runtime.http_client import HttpTarget

    by_socket = bool(running.socket) and Path(running.socket).is_socket()
    return HttpTarget(_SOCKET_URL, socket=running.socket) if by_socket else HttpTarget(running.url)


def belongs_to(target: HttpTarget, settings: Settings | None) -> bool:
    """Whether this is the address of the file's own gateway: its token is shown to nobody else."""
    if settings is None:
        return False
    gateway = settings.gateway
    if target.socket:
        return target.socket == str(gateway.socket)
    return not target.tls and gateway.listen.is_at(target.host, target.port)


def client_token(settings: Settings | None) -> str:
    """The token to show to a gateway: the configured one, else that of the environment."""
    configured = "" if settings is None else settings.gateway.token
    return configured or os.environ.get(TOKEN_VARIABLE, "")


def _found_settings() -> Settings | None:
    """Those of the file in the usual places, for the token. Whether it is a good one is not our question here."""
    file = find_config(None, Path(), Path.home())
    return None if file is None else load_quietly(file)


# `trunkline mcp-serve`: what an agent that we run starts as its MCP server. Hidden, because people use `stdio`.


@click.command("mcp-serve", hidden=True, short_help="Serve the agent of a run.")
@click.option(
    "-c", "--config", required=True, type=click.Path(path_type=Path), help='`{"socket": PATH}`, or a configuration.'
)
def mcp_serve(config: Path) -> None:
    """Join the router of the run whose socket the file names, or serve the sources that it describes."""
    from trunkline.runtime.stdio_bridge import run_bridge, socket_path

    socket = socket_path(["--config", str(config)])
    if socket is not None:
        run_bridge(socket)
    from trunkline.cli.configuration import load_or_exit
    # REFAC

    try:
        status = serve_alone(load_or_exit(config))
    except GatewayError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.problem.code.exit)
    sys.exit(status)
