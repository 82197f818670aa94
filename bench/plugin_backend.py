"""The tools behind the peers as a gRPC plugin, in Python: there is nothing smaller to measure plugins with."""

from __future__ import annotations

from trunkline.plugin import Plugin

plugin = Plugin("bench", version="1.0")


@plugin.operation
def echo(text: str) -> str:
    """Gives the text back."""
    return text


@plugin.operation
def blob(kb: int) -> str:
    """Gives that many KiB of text."""
    return "x" * (1024 * kb)


plugin.serve()
