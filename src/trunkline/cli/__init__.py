"""The command line. Thin: it reads arguments, calls, and prints; stdout is data, stderr is for people."""

from __future__ import annotations

from trunkline.cli.main import main

__all__ = ["main"]
