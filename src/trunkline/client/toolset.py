"""The tools of an app. They may be added and removed from any thread, also while the app is running."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from .tool import Tool


class Toolset:
    def __init__(self) -> None:
        self._tools: Mapping[str, Tool] = {}
        self._lock = threading.Lock()
        self.on_change: Callable[[], None] = lambda: None

    def current(self) -> Mapping[str, Tool]:
        """As they are now; never changed, only replaced."""
        return self._tools

    def add(self, tool: Tool) -> None:
        """A tool of a known name takes the place of the old one, as when a notebook's cell is run again."""
        with self._lock:
            self._tools = {**self._tools, tool.name: tool}
        self.on_change()

    def remove(self, name: str) -> None:
        """KeyError where there is none. Calls that run go on to their end."""
        with self._lock:
            if name not in self._tools:
                raise KeyError(name)
            self._tools = {other: tool for other, tool in self._tools.items() if other != name}
        self.on_change()
