"""Glob and Grep at work in a folder."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial, wraps
from pathlib import Path
from typing import Any

from tests.support.builtin_tools import Workbench

from trunkline.runtime.children import Children
from trunkline.runtime.source_context import SourceContext, StartSlots


class SearchBench(Workbench):
    """A use has a supervisor of child processes of its own, unless it is inside `lasting`. `ripgrep` is a program to
    run in place of the installed one."""

    def __init__(self, folder: Path, *, ripgrep: Path | None = None, path: str = "/nowhere") -> None:
        super().__init__(folder)
        self.children: Children | None = None
        self._ripgrep = ripgrep
        self._path = path

    @asynccontextmanager
    async def lasting(self) -> AsyncIterator[Children]:
        children = self.children = Children()
        self.place = replace(self.place, gateway=make_source_context(children, self._path))
        try:
            yield children
        finally:
            self.children = None
            await children.close()

    async def use(self, kind: Any, **arguments: Any) -> dict[str, Any]:
        if self._ripgrep is not None:
            kind = partial(kind, find=lambda: str(self._ripgrep))
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


def make_source_context(children: Children, path: str) -> SourceContext:
    return SourceContext(
        children=children,
        environ={"PATH": path},
        message_bytes=1 << 20,
        sessions_per_source=1,
        session_idle_s=1.0,
        start_slots=StartSlots(1),
        redact=lambda text: text,
    )
