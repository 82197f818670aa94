"""Querying a program for its output; nothing is left of it, however it ends."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest
from tests.support.child_trees import MARK, children_of, new_mark, survivors
from tests.support.stopping import StoppingLoop, running
from tests.support.waiting import START_WAIT_S, at_most, until
from tests.unit.runtime.scripted_server import run_on

from trunkline.agents.installed_agent import ProgramOutput, query_program
from trunkline.runtime.children import Children

HANGS = "import subprocess, sys, time; subprocess.Popen(['sleep', '1000']); print('up', flush=True); time.sleep(1000)"


async def ask(children: Children, script: str, mark: str, *, timeout_s: float = START_WAIT_S) -> ProgramOutput:
    env = {"PATH": os.environ["PATH"], MARK: mark}
    return await query_program(children, [sys.executable, "-c", script], env=env, cwd="/", timeout_s=timeout_s)


async def test_what_it_printed_and_how_it_ended_is_known() -> None:
    script = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"
    async with children_of() as children:
        assert await ask(children, script, new_mark()) == ProgramOutput(status=3, stdout="out\n", stderr="err\n")


@pytest.mark.law
async def test_what_it_writes_into_its_folders_is_gone() -> None:
    names = ("CODEX_HOME", "GEMINI_CLI_HOME", "TMPDIR")
    script = f"import os\nfor name in {names}: print(os.environ[name]); open(os.environ[name] + '/left', 'w')"
    async with children_of() as children:
        folders = (await ask(children, script, new_mark())).stdout.split()
    assert len(folders) == len(names)
    assert not any(map(os.path.exists, folders))


async def test_it_has_no_input_to_wait_for() -> None:
    async with children_of() as children:
        printed = await ask(children, "import sys; print(repr(sys.stdin.read()))", new_mark())
    assert printed.stdout == "''\n"


@pytest.mark.law
async def test_one_that_does_not_end_in_time_is_ended_with_all_it_started() -> None:
    mark = new_mark()
    async with children_of() as children:
        printed = await ask(children, HANGS, mark, timeout_s=1.0)
        assert survivors(mark) == []
    assert printed.status is None


@pytest.mark.law
async def test_one_that_nobody_waits_for_any_more_is_ended(tmp_path: Path) -> None:
    mark, up = new_mark(), tmp_path / "up"
    async with children_of() as children:
        asking = asyncio.ensure_future(ask(children, f"open({str(up)!r}, 'w').close(); {HANGS}", mark))
        await until(up.exists, "it runs")
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await until(lambda: survivors(mark) == [], "it is gone")


def test_one_that_ended_while_we_were_stopped_was_in_time(tmp_path: Path) -> None:
    async def main() -> None:
        timeout_s = at_most(2)
        begun, ended = tmp_path / "begun", tmp_path / "ended"
        async with children_of() as children:
            argv = ["/bin/sh", "-c", f"touch {begun}; sleep 0.2; echo 1.2.3; touch {ended}"]
            env = {"PATH": os.environ["PATH"]}
            asking = asyncio.ensure_future(query_program(children, argv, env=env, cwd="/", timeout_s=timeout_s))
            await until(begun.exists, "it runs")
            running().stop_for(timeout_s + 0.5)
            printed = await asking
        assert printed == ProgramOutput(status=0, stdout="1.2.3\n", stderr="")
        assert ended.exists()

    run_on(StoppingLoop, main())
