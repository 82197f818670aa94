"""`trunkline up`: the gateway with its HTTP door."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import click

from trunkline.cli.configuration import load_or_exit, reloader, tell_which
from trunkline.cli.options import CONFIG
from trunkline.config.settings import Settings
from trunkline.core.errors import GatewayError


@click.command()
@CONFIG
@click.option("--host", help="Listen on this address instead of the configured one.")
@click.option("--port", type=click.IntRange(0, 65535), help="Listen on this port instead of the configured one.")
def up(config: Path | None, host: str | None, port: int | None) -> None:
    """Run the gateway: MCP over HTTP at /mcp."""
    settings = load_or_exit(config)
    tell_which(settings)

    def as_asked(settings: Settings) -> Settings:
        if host is None and port is None:
            return settings
        from trunkline.config.gateway import with_listen

        return replace(settings, gateway=with_listen(settings.gateway, host=host, port=port))

    try:
        settings = as_asked(settings)
        from trunkline.gateway.serving_http import serve_http
        from trunkline.runtime.own_process import run_event_loop

        status = run_event_loop(lambda: serve_http(settings, reloader(settings, as_asked), _announce))
    except GatewayError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.problem.code.exit)
    sys.exit(status)


def _announce(url: str) -> None:
    """Two lines for people: where it is, and where to read how each client is connected."""
    if sys.stderr.isatty():
        from trunkline.cli.connect_lines import program_name

        # in one write: the log goes to the same terminal by a thread of its own
        connect = f"Connect a client: {program_name()} connect --url {url}"
        click.echo(f"Trunkline is up: {url}\n{connect}", err=True)
