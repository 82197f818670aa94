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
