"""`trunkline`: the commands."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import click

from trunkline.cli.configuration import load_or_exit, report_problems
from trunkline.cli.options import CONFIG
from trunkline.core.errors import GatewayError
from trunkline.version import __version__


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="trunkline", message="%(prog)s %(version)s")
def main() -> None:
    """One line from an AI agent to every tool it may call."""


@main.command()
@CONFIG
@click.option("--host", help="Listen on this address instead of the configured one.")
@click.option("--port", type=click.IntRange(0, 65535), help="Listen on this port instead of the configured one.")
def up(config: Path | None, host: str | None, port: int | None) -> None:
    """Run the gateway: MCP over HTTP at /mcp."""
    settings = load_or_exit(config)
    try:
        if host is not None or port is not None:
            from trunkline.config.gateway import with_listen

            settings = replace(settings, gateway=with_listen(settings.gateway, host=host, port=port))
        from trunkline.serve import run, serve_http

        status = run(lambda: serve_http(settings, _announce))
    except GatewayError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.problem.code.exit)
    sys.exit(status)


def _announce(url: str) -> None:
    if sys.stderr.isatty():
        click.echo(f"Trunkline is up: {url}", err=True)


@main.command()
@CONFIG
def stdio(config: Path | None) -> None:
    """Serve one client over standard input and output, for programs that start their MCP servers."""
    settings = load_or_exit(config)
    from trunkline.serve import run, serve_stdio

    sys.exit(run(lambda: serve_stdio(settings)))


@main.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@CONFIG
@click.option("--json", "as_json", is_flag=True, help="Problems as a JSON list on stdout.")
def check(file: Path | None, config: Path | None, as_json: bool) -> None:
    """Check a configuration file and report every problem in it."""
    sys.exit(report_problems(file or config, as_json=as_json))


@main.command()
def version() -> None:
    """Print the version."""
    click.echo(__version__)
