"""Files and folders are swapped for links out of the root while tools work on them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support import swapper
from tests.support.builtin_tools import Workbench
from tests.support.pairs import IN_FULL
from tests.support.waiting import PATIENCE_S, at_most

from trunkline.sources.builtin.edit import EditTool
from trunkline.sources.builtin.read import ReadTool
from trunkline.sources.builtin.root import OutsideRoot
from trunkline.sources.builtin.tool import ToolFault
from trunkline.sources.builtin.write import WriteTool

SECRET = "SECRET from outside"
BOTH_WAYS = pytest.mark.parametrize("walk_only", [False, True], ids=["openat2", "walk"])
SECONDS = 60.0 if IN_FULL else 2.0
MANY = 10

pytestmark = pytest.mark.law


class Battlefield:
    """A root whose `folder` and `file` are links to the outside every other moment."""

    def __init__(self, base: Path, walk_only: bool) -> None:
        self.root, self.outside = base / "root", base / "outside"
        self.outside.mkdir()
        (self.outside / "data").write_text(SECRET)
        (self.outside / "sub").mkdir()
        self.bench = Workbench(self.root, walk_only=walk_only)
        self.bench.write("folder/data", "INSIDE\n")
        self.bench.write("file", "INSIDE\n")
        self.bench.write("deep/folder/sub/data", "INSIDE\n")
        (self.root / "twin").symlink_to(self.outside)
        (self.root / "twin-file").symlink_to("../outside/data")
        (self.root / "deep" / "twin").symlink_to("../../outside")
        self.before = self.seen_outside()

    def seen_outside(self) -> dict[str, str]:
        return {
            str(path.relative_to(self.outside)): path.read_text() if path.is_file() else "folder"
            for path in self.outside.rglob("*")
        }

    @contextlib.contextmanager
    def swapping(self) -> Iterator[None]:
        pairs = [("folder", "twin"), ("file", "twin-file"), ("deep/folder", "deep/twin")]
        names = [str(self.root / name) for pair in pairs for name in pair]
        program = [sys.executable, swapper.__file__, *names]
        with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            try:
                yield
            finally:
                rounds = process.communicate(timeout=at_most(30))[0]
        assert process.returncode == 0
        assert int(rounds) >= 100

    async def attempt(self, results: Counter[str], tool: Any, **arguments: Any) -> None:
        try:
            answer = await self.bench.text(tool, **arguments)
        except OutsideRoot:
            results["refused"] += 1
        except ToolFault as fault:
            assert SECRET not in str(fault)
            results["failed"] += 1
        else:
            assert SECRET not in answer
            results["worked"] += 1

    def look_where_it_lies(self, path: str) -> None:
        """What the kernel says of an open file is beyond doubt."""
        with contextlib.suppress(ToolFault):
            fd = self.bench.root.open_file(path)
            try:
                assert os.readlink(f"/proc/self/fd/{fd}").startswith(f"{self.root}/")
                assert SECRET.encode() not in os.read(fd, 1000)
            finally:
                os.close(fd)


async def fight(field: Battlefield, seconds: float, wanted: int = 0) -> dict[str, Counter[str]]:
    """For so long, and then until every tool has worked and been refused more often than wanted."""
    results = {name: Counter[str]() for name in ("Read", "Write", "Edit")}
    paths = ("folder/data", "file", "deep/folder/sub/data", f"{field.root}/folder/data", "deep/../folder/data")
    end = time.monotonic() + seconds
    number = 0

    def is_over() -> bool:
        enough = all(min(counts["worked"], counts["refused"]) > wanted for counts in results.values())
        return time.monotonic() > (end if enough else end + PATIENCE_S)

    with field.swapping():
        while not is_over():
            for path in paths:
                number += 1
                await field.attempt(results["Read"], ReadTool, path=path)
                field.look_where_it_lies(path)
                await field.attempt(results["Write"], WriteTool, path=path, content=f"INSIDE {number}\n")
                await field.attempt(results["Edit"], EditTool, path=path, old_string="INSIDE", new_string="INSIDE+")
                await field.attempt(
                    results["Edit"], EditTool, path=path, old_string="\n", new_string="\n\n", replace_all=True
                )
            await field.attempt(results["Write"], WriteTool, path=f"folder/new/{number % 5}/file", content="INSIDE\n")
            await field.attempt(results["Write"], WriteTool, path=f"deep/folder/sub/{number % 5}", content="INSIDE\n")
            await asyncio.sleep(0)
    return results


@BOTH_WAYS
async def test_no_byte_from_outside_is_shown_and_nothing_outside_is_written(tmp_path: Path, walk_only: bool) -> None:
    field = Battlefield(tmp_path, walk_only)
    results = await fight(field, SECONDS, MANY)
    assert field.seen_outside() == field.before
    for name, counts in results.items():
        assert counts["worked"] > MANY, f"{name} was not just refused: {results}"
        assert counts["refused"] > MANY, f"{name} met the links: {results}"


@BOTH_WAYS
async def test_no_half_written_file_is_left_behind(tmp_path: Path, walk_only: bool) -> None:
    field = Battlefield(tmp_path, walk_only)
    await fight(field, 0.5)
    assert [path for path in field.root.rglob("*.tmp") if not path.is_symlink()] == []


def test_a_root_that_compares_names_would_be_caught(tmp_path: Path) -> None:
    """The swapping is quick enough to matter: looking first and opening then gives the secret away."""
    field = Battlefield(tmp_path, False)

    def read_naively() -> str:
        path = os.path.realpath(field.root / "file")
        if not path.startswith(f"{field.root}/"):
            return ""
        return (field.root / "file").read_text()

    deadline = time.monotonic() + at_most(30)
    with field.swapping():
        while True:
            with contextlib.suppress(OSError):
                if SECRET in read_naively():
                    break
            assert time.monotonic() < deadline
