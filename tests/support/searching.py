"""Glob and Grep at work in a folder, with ripgrep or without."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.builtin_tools import Workbench
from trunkline.links.children import Children
from trunkline.links.parts import Parts
from trunkline.links.start_queue import StartQueue

RIPGREP = shutil.which("rg", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
ENGINES = [
    pytest.param("ripgrep", marks=pytest.mark.skipif(RIPGREP is None, reason="ripgrep is not installed")),
    "own",
]


@asynccontextmanager
async def searching(folder: Path, engine: str) -> AsyncIterator[Workbench]:
    children = Children()
    path = str(Path(RIPGREP or "/nowhere").parent) if engine == "ripgrep" else "/nowhere"
    parts = Parts(
        children=children,
        environ={"PATH": path},
        message_bytes=1 << 20,
        lanes_per_source=1,
        lane_idle_s=1.0,
        starts=StartQueue(1),
        redact=lambda text: text,
    )
    try:
        yield Workbench(folder, parts=parts)
    finally:
        await children.close()
