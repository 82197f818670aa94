"""The operator token that a gateway generates if the configuration has none, in a private file."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Final

from trunkline.core.events import Events
from trunkline.runtime.state_files import make_private_folder, read_private, write_private

_FILE: Final = "operator_token"
_BYTES: Final = 4096


def token_file(folder: Path, own_name: str = "") -> Path:
    """The token's file. `own_name` distinguishes several gateways of one configuration file."""
    return folder / (f"{_FILE}-{own_name}" if own_name else _FILE)


def make_operator_token(folder: Path, events: Events, own_name: str = "") -> str:
    """Generate a token and write it to its file. Returns an empty one if that fails, so that nobody is the operator."""
    path, token = token_file(folder, own_name), secrets.token_urlsafe(32)
    try:
        make_private_folder(folder)
        write_private(path, token.encode())
    except OSError as error:
        message = f"There is no operator: the token cannot be written to `{path}`: {error.strerror or error}"
        events.note("warning", "operator", message)
        return ""
    events.note("info", "operator", f"The operator's token is in `{path}`")
    return token


def read_operator_token(folder: Path) -> str:
    """The token of the gateway that uses this folder; empty if it cannot be read."""
    data = read_private(token_file(folder), _BYTES)
    return "" if data is None else data.decode("ascii", "replace").strip()
