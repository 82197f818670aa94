"""`trunkline mcp-serve`: what an agent that we run starts as its MCP server. Hidden, because people use `stdio`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from trunkline.core.errors import GatewayError


@click.command("mcp-serve", hidden=True, short_help="Serve the agent of a run.")
@click.option(
    "-c", "--config", required=True, type=click.Path(path_type=Path), help='`{"socket": PATH}`, or a configuration.'
)
def mcp_serve(config: Path) -> None:
    """Join the router of the run whose socket the file names, or serve the sources that it describes."""
    from trunkline.runtime.stdio_bridge import join, socket_of

    socket = socket_of(["--config", str(config)])
    if socket is not None:
        join(socket)
    from trunkline.cli.configuration import load_or_exit
    from trunkline.cli.stdio import serve_alone

    try:
        status = serve_alone(load_or_exit(config))
    except GatewayError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.problem.code.exit)
    sys.exit(status)
