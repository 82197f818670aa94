"""The command line: reads arguments, calls, and prints. Data goes to stdout, messages for people to stderr."""

from __future__ import annotations

import sys

from trunkline.cli.interrupts import exit_on_interrupt

__all__ = ["main"]


def main() -> None:
    """The installed script. `mcp-serve`, which an agent waits for, gets by without importing the rest if it can."""
    exit_on_interrupt()
    if sys.argv[1:2] == ["mcp-serve"]:
        from trunkline.runtime.stdio_bridge import run_bridge, socket_path

        path = socket_path(sys.argv[2:])
        if path is not None:
            run_bridge(path)
    from trunkline.runtime.processes import hide_from_other_processes

    hide_from_other_processes()
    from trunkline.cli.main import main as commands

    commands()
