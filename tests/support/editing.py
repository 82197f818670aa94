"""Editing configuration text in tests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.support.config_files import KINDS

from trunkline.config.edit.config_text import ConfigText
from trunkline.config.edit.new_server import NewServer
from trunkline.config.edit.servers import add_server, remove_server

SERVER = NewServer(name="new", command=("npx", "-y", "@a/b"))
REMOTE = NewServer(name="web", url="https://x.example/mcp")


def config(text: str, name: str = "trunkline.yaml", environ: Mapping[str, str] | None = None) -> ConfigText:
    """The text as that of a file which nobody ever reads."""
    return ConfigText(Path("/nowhere", name), text, environ or {"HOME": "/home/me"}, KINDS)


def added(text: str, server: NewServer = SERVER, *, name: str = "trunkline.yaml", force: bool = False) -> str:
    return add_server(config(text, name), server, force=force).text


def removed(text: str, server: str, *, name: str = "trunkline.yaml") -> str:
    return remove_server(config(text, name), server).text
