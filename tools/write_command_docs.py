"""Writes what each command takes into docs/commands.md, from its `--help`; with `--check`, says if it is current."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from tools.docs_regions import DOCS, main

from trunkline.cli.main import main as trunkline

PAGE = DOCS / "commands.md"
_WIDTH = 100


def commands() -> dict[str, click.Command]:
    context = click.Context(trunkline, info_name="trunkline")
    found = {name: trunkline.get_command(context, name) for name in trunkline.list_commands(context)}
    return {name: command for name, command in found.items() if command is not None and not command.hidden}


def help_of(name: str, command: click.Command) -> str:
    parent = click.Context(trunkline, info_name="trunkline", **trunkline.context_settings)
    context = click.Context(command, info_name=name, parent=parent, terminal_width=_WIDTH, max_content_width=_WIDTH)
    return f"```text\n{command.get_help(context)}\n```"


def pages() -> dict[Path, dict[str, str]]:
    return {PAGE: {name: help_of(name, command) for name, command in commands().items()}}


if __name__ == "__main__":
    sys.exit(main("tools.write_command_docs", pages(), sys.argv[1:]))
