"""How people name a running gateway on the command line, and where its token comes from."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from trunkline.core.errors import BAD_VALUE, GatewayError, Problem

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
