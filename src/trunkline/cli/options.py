"""The options that several commands have, written once so that they mean the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import click

from trunkline.core.errors import BAD_VALUE, GatewayError, Problem

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


# How people name a running gateway on the command line, and where its token comes from.

TOKEN_VARIABLE: Final = "TRUNKLINE_TOKEN"
"""The token for clients comes from the file or from here. It is no argument: everybody on a machine can read those."""


def mcp_url(text: str) -> str:
    """The address of a gateway's `/mcp`; `http://` and the path may be left out. Raises GatewayError."""
    try:
        bare = "://" not in text
        parts = urlsplit(f"http://{text}" if bare else text)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        valid = valid and not (bare and parts.port is None)  # a word alone is more likely a slip than a host
        if valid and text.isprintable() and " " not in text:
            return parts.geturl() if parts.path not in ("", "/") else parts._replace(path="/mcp").geturl()
    except ValueError:
        pass
    hint = "write it like `http://127.0.0.1:4747/mcp`"
    raise GatewayError(Problem(code=BAD_VALUE, message=f"`{text}` is not the URL of a gateway", hint=hint))
