from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from tests.support.waiting import PATIENCE_S, until

from trunkline.config.sandbox import SandboxSettings
from trunkline.core.errors import PART_MISSING, GatewayError
from trunkline.runtime.commands import CommandRunner
from trunkline.sources.builtin import sandbox_provider as module
from trunkline.sources.builtin.sandbox_provider import SandboxProvider
from trunkline.sources.builtin.tool import ToolFault

WORKING = '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift\nexec "$@"\n'
"""What looks like bubblewrap from outside, wherever the tests run."""


class Scene:
    def __init__(self, folder: Path, wanted: str) -> None:
        self.programs = folder / "programs"
        self.programs.mkdir()
        self.root = folder / "root"
        self.root.mkdir()
        self.commands = CommandRunner()
        settings = SandboxSettings(mode=wanted)
        self.choice = SandboxProvider(settings, str(self.root), {"PATH": str(self.programs)}, self.commands)

    def install(self, script: str = WORKING) -> None:
        program = self.programs / "bwrap"
        program.write_text(script)
        program.chmod(0o755)


@contextlib.asynccontextmanager
async def scene_with(folder: Path, wanted: str) -> AsyncIterator[Scene]:
    scene = Scene(folder, wanted)
    try:
        yield scene
    finally:
        await scene.commands.close()
        await scene.choice.close()


async def test_switched_off_it_is_not_even_looked_for(tmp_path: Path) -> None:
    async with scene_with(tmp_path, "off") as scene:
        scene.install("#!/bin/sh\nexit 1\n")
        assert await scene.choice.get() is None
        assert await scene.choice.note() is None
        assert scene.commands.supervisor_pid is None


async def test_where_it_works_it_is_used_and_nothing_is_said(tmp_path: Path) -> None:
    for wanted in ("auto", "required"):
        (tmp_path / wanted).mkdir()
        async with scene_with(tmp_path / wanted, wanted) as scene:
            scene.install()
            assert await scene.choice.note() is None
            sandbox = await scene.choice.get()
            assert sandbox is not None
            assert await scene.choice.get() is sandbox


async def test_without_bubblewrap_commands_run_without_and_people_are_told(tmp_path: Path) -> None:
    async with scene_with(tmp_path, "auto") as scene:
        assert await scene.choice.get() is None
        note = await scene.choice.note()
    assert note is not None
    assert note.usable
    assert note.reason.startswith("Bash runs without a sandbox, and commands can do whatever this user can")
    assert note.reason.endswith("(`bwrap`) is not installed")
    assert "apt install bubblewrap" in note.hint
    assert '`sandbox: "off"`' in note.hint


async def test_where_one_is_required_and_there_is_none_commands_are_refused(tmp_path: Path) -> None:
    async with scene_with(tmp_path, "required") as scene:
        with pytest.raises(GatewayError) as refused:
            await scene.choice.get()
        note = await scene.choice.note()
    assert refused.value.problem.code is PART_MISSING
    assert "sandbox: required" in refused.value.problem.message
    assert "apt install bubblewrap" in refused.value.problem.hint
    assert note is not None
    assert not note.usable
    assert note.reason == "Bash is refused without a sandbox: bubblewrap (`bwrap`) is not installed"


async def test_one_that_does_not_work_here_is_not_used_and_its_words_are_told(tmp_path: Path) -> None:
    async with scene_with(tmp_path, "auto") as scene:
        scene.install("#!/bin/sh\necho first\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n")
        assert await scene.choice.get() is None
        note = await scene.choice.note()
    assert note is not None
    assert note.reason.endswith("`bwrap` does not work here: bwrap: setting up uid map: Permission denied")
    assert "docs" in note.hint


async def test_one_that_hangs_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PROBE_S", 0.3)
    async with scene_with(tmp_path, "auto") as scene:
        scene.install("#!/bin/sh\nexec /bin/sleep 1000\n")
        assert await scene.choice.get() is None
        note = await scene.choice.note()
    assert note is not None
    assert "did not end within" in note.reason


async def test_one_in_which_the_root_cannot_be_written_to_is_not_used(tmp_path: Path) -> None:
    async with scene_with(tmp_path, "required") as scene:
        scene.install("#!/bin/sh\nexit 77\n")
        note = await scene.choice.note()
    assert note is not None
    assert "could not be written to" in note.reason


async def test_what_failed_is_tried_again_only_when_something_changed(tmp_path: Path) -> None:
    async with scene_with(tmp_path, "auto") as scene:
        tried = tmp_path / "tried"
        scene.install(f"#!/bin/sh\necho x >> {tried}\nexit 1\n")
        for _ in range(3):
            await scene.choice.note()
        assert tried.read_text() == "x\n"
        scene.install()
        os.utime(scene.programs / "bwrap", ns=(1, 1))
        assert await scene.choice.note() is None
        assert await scene.choice.get() is not None


async def test_one_that_is_installed_later_is_used_from_then_on(tmp_path: Path) -> None:
    async with scene_with(tmp_path, "required") as scene:
        assert await scene.choice.note() is not None
        scene.install()
        assert await scene.choice.note() is None
        assert await scene.choice.get() is not None


async def test_without_a_root_folder_nothing_is_found_out_and_nothing_runs(tmp_path: Path) -> None:
    async with scene_with(tmp_path, "auto") as scene:
        scene.install()
        scene.root.rmdir()
        assert await scene.choice.note() is None
        with pytest.raises(ToolFault):
            await scene.choice.get()
        scene.root.mkdir()
        assert await scene.choice.get() is not None


async def test_when_nothing_can_be_started_nothing_is_said_and_nothing_runs_without(tmp_path: Path) -> None:
    async with scene_with(tmp_path, "auto") as scene:
        scene.install()
        await scene.commands.close()
        assert await scene.choice.note() is None
        with pytest.raises(GatewayError):
            await scene.choice.get()


async def test_when_what_looks_after_commands_dies_meanwhile_it_is_tried_again(tmp_path: Path) -> None:
    async with scene_with(tmp_path, "auto") as scene:
        died = tmp_path / "died"
        scene.install(WORKING.replace("while", f"[ -e {died} ] || {{ >{died}; kill -9 $PPID; exit 1; }}\nwhile", 1))
        with pytest.raises(GatewayError):
            await scene.choice.get()
        assert await scene.choice.get() is not None


async def test_its_private_folders_go_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    async with scene_with(tmp_path, "auto") as scene:
        scene.install()
        assert await scene.choice.get() is not None
        assert list(scratch.iterdir())
    await until(lambda: not list(scratch.iterdir()), "the private folders are gone")


async def test_what_is_given_up_while_it_is_made_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    making, go_on = threading.Event(), threading.Event()

    def slow_folder(**keys: Any) -> str:
        making.set()
        assert go_on.wait(PATIENCE_S)
        return mkdtemp(dir=temporary, **keys)

    monkeypatch.setattr("trunkline.sources.builtin.sandbox.tempfile.mkdtemp", slow_folder)
    async with scene_with(tmp_path, "auto") as scene:
        scene.install()
        looking = asyncio.ensure_future(scene.choice.note())
        await until(making.is_set, "a folder is being made")
        for _ in range(3):
            looking.cancel()
            await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await looking
    assert list(temporary.iterdir()) == []


BUSY = """#!/bin/sh
trap '' TERM
cd {}/trunkline-bash-*
echo begun > begun
while :; do i=$((i + 1)); : > "$i"; done 2> /dev/null
"""


async def test_a_folder_in_which_bwrap_still_works_when_it_is_given_up_goes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    async with scene_with(tmp_path, "auto") as scene:
        scene.install(BUSY.format(temporary))
        looking = asyncio.ensure_future(scene.choice.note())
        await until(lambda: list(temporary.glob("*/begun")), "it works in the folder")
        looking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await looking
    await until(lambda: not list(temporary.iterdir()), "the folder is gone")
