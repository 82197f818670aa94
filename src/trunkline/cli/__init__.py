"""The command line. Thin: it reads arguments, calls, and prints; stdout is data, stderr is for people."""

from __future__ import annotations

import sys

from trunkline.cli.interrupts import end_at_once

__all__ = ["main"]

_PUMP = "mcp-serve"


def main() -> None:
    """The installed script. An agent waits for its MCP server, so that one gets by without the rest where it can."""
    end_at_once()
    if sys.argv[1:2] == [_PUMP]:
        from trunkline.runtime.stdio_bridge import join, socket_of

        path = socket_of(sys.argv[2:])
        if path is not None:
            join(path)
    from trunkline.runtime.processes import hide_from_others

    hide_from_others()
    from trunkline.cli.main import main as commands

    commands()
