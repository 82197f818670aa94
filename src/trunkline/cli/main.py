"""`trunkline`: the commands."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from trunkline.cli.lazy import LazyGroup
from trunkline.cli.options import CONFIG
from trunkline.cli.terminal import prepare_streams, wants_colour
from trunkline.version import __version__


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="trunkline", message="%(prog)s %(version)s")
@click.pass_context
def main(ctx: click.Context) -> None:
    """One line from an AI agent to every tool it may call."""
    prepare_streams()
    if not wants_colour(os.environ):
        ctx.color = False


@main.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@CONFIG
@click.option("--json", "as_json", is_flag=True, help="Problems as a JSON list on stdout.")
def check(file: Path | None, config: Path | None, as_json: bool) -> None:
    """Check a configuration file and report every problem in it."""
    if file is not None and config is not None:
        raise click.UsageError("Give FILE or `-c`, not both")
    from trunkline.cli.configuration import report_problems

    sys.exit(report_problems(file or config, as_json=as_json))


@main.command()
def version() -> None:
    """Print the version."""
    click.echo(__version__)
