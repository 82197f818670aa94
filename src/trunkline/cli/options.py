"""The options that several commands share, so that they mean the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

CONFIG: Final = click.option(
    "-c",
    "--config",
    "config",
    type=click.Path(path_type=Path),
    help="The configuration file. Default: `trunkline.yaml` in this folder, then in `~/.config/trunkline`.",
)
URL: Final = click.option("--url", help="Use the gateway at this URL. Default: the one running for the file.")
JSON: Final = click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout, for programs.")
SHOW_COMMANDS: Final = click.option(
    "--show-commands",
    is_flag=True,
    help="Show the commands that Bash runs wherever calls are shown or logged, with secrets removed.",
)

TOKEN_VARIABLE: Final = "TRUNKLINE_TOKEN"
"""The token for clients comes from the file or from this variable: everybody on a machine can read arguments."""


def mcp_url(text: str) -> str:
    """The URL of a gateway's `/mcp`; `http://` and the path may be left out. Raises GatewayError."""
    from urllib.parse import urlsplit

    from trunkline.core.errors import BAD_VALUE, GatewayError, Problem

    try:
        bare = "://" not in text
        parts = urlsplit(f"http://{text}" if bare else text)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        valid = valid and not (bare and parts.port is None)  # a single word is more likely a typo than a host
        if valid and text.isprintable() and " " not in text:
            return parts.geturl() if parts.path not in ("", "/") else parts._replace(path="/mcp").geturl()
    except ValueError:
        pass
    hint = "write it like `http://127.0.0.1:4747/mcp`"
    raise GatewayError(Problem(code=BAD_VALUE, message=f"`{text}` is not the URL of a gateway", hint=hint))
