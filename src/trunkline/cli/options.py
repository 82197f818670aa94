"""The options that several commands have, written once so that they mean the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

CONFIG: Final = click.option(
    "-c",
    "--config",
    "config",
    type=click.Path(path_type=Path),
    help="The configuration file; without it `trunkline.yaml` here, then in `~/.config/trunkline`.",
)

URL: Final = click.option("--url", help="Ask the gateway at this address; without it the one that runs for the file.")

JSON: Final = click.option("--json", "as_json", is_flag=True, help="For programs: JSON on stdout.")

SHOW_COMMANDS: Final = click.option(
    "--show-commands", is_flag=True, help="Show what Bash is told to run, without the secrets in it."
)
LOG_COMMANDS: Final = click.option(
    "--show-commands", is_flag=True, help="Add what Bash is told to run to the log, without the secrets in it."
)
"""The same where calls are told of in the log alone: the screen is the agent's."""
