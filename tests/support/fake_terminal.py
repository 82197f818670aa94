"""A standard stream that claims to be a terminal and records what is written to it."""

from __future__ import annotations

import io
import re
import sys

import pytest

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True

    @property
    def text(self) -> str:
        """What it shows, without colours."""
        return ANSI.sub("", self.getvalue())


def screen(monkeypatch: pytest.MonkeyPatch, name: str, *, columns: int = 80) -> Screen:
    """Put one in the place of `stdout` or `stderr`."""
    made = Screen()
    monkeypatch.setattr(sys, name, made)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return made
