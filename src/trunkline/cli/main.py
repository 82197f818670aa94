"""The `trunkline` command. Each subcommand's module is imported only when it runs, so that all start quickly."""

from __future__ import annotations

import errno
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click

from trunkline.cli.interrupts import INTERRUPTED, raise_keyboard_interrupt
from trunkline.cli.options import CONFIG
from trunkline.cli.terminal import prepare_streams, print_failure, wants_colour
from trunkline.version import __version__

COMMANDS: Final[dict[str, str]] = {
    "add": "trunkline.cli.edit:add",
    "agent": "trunkline.cli.agent:agent",
    "budget": "trunkline.cli.budget:budget",
    "call": "trunkline.cli.call:call",
    "completion": "trunkline.cli.completion:completion",
    "connect": "trunkline.cli.connect:connect",
    "demo": "trunkline.cli.up:demo",
    "explain": "trunkline.cli.explain:explain",
    "mcp-serve": "trunkline.cli.stdio:mcp_serve",
    "protect": "trunkline.cli.protect:protect",
    "remove": "trunkline.cli.edit:remove",
    "run": "trunkline.cli.run:run",
    "servers": "trunkline.cli.servers:servers",
    "stdio": "trunkline.cli.stdio:stdio",
    "tools": "trunkline.cli.tools:tools",
    "trust": "trunkline.cli.trust:trust",
    "up": "trunkline.cli.up:up",
    "validate": "trunkline.cli.run:validate",
}
_CLEANS_UP: Final = frozenset({"add", "connect", "demo", "protect", "remove", "trust"})
"""Commands with something to undo when they are interrupted, such as a half-written file."""


class LazyGroup(click.Group):
    """Imports the module of a command when that command is looked up."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *COMMANDS})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = COMMANDS[cmd_name].partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command), f"{COMMANDS[cmd_name]} is not a command"
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        found = super().resolve_command(ctx, args)
        if found[0] in _CLEANS_UP:
            raise_keyboard_interrupt()
        return found

    def invoke(self, ctx: click.Context) -> Any:
        """Exit in the same way for Ctrl+C and for errors that a command leaves to its group."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo(err=True)
            sys.exit(INTERRUPTED)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            click.echo(f"error: {error.strerror}", err=True)
            os._exit(1)  # a normal exit would try to write the rest again
        except Exception as error:
            from trunkline.core.errors import GatewayError

            if not isinstance(error, GatewayError):
                raise
            sys.exit(print_failure(error))


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
@click.option("--json", "as_json", is_flag=True, help="Print problems as a JSON list on stdout.")
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
