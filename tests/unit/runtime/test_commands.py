from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.child_trees import marked, new_mark, survivors
from tests.support.processes import descendants, open_files
from tests.support.waiting import at_most, until, wait_until
from tests.unit.runtime.scripted_server import both_loops, run_on

from trunkline.core.errors import DRAINING, GatewayError
from trunkline.runtime.commands import HEAD_BYTES, TAIL_BYTES, Command, Commands, Ended

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks for survivors in /proc"),
    pytest.mark.law,
    pytest.mark.needs("bash"),
]


@asynccontextmanager
async def commands_of(**keys: Any) -> AsyncIterator[Commands]:
    commands = Commands(**keys)
    try:
        yield commands
    finally:
        await commands.close()


def shell(
    script: str, *, mark: str = "", timeout_s: float = at_most(30), folder: str | int = "/", shell: str = "bash"
) -> Command:
    return Command(argv=[shell, "-c", script], env=marked(mark), folder=folder, timeout_s=timeout_s, label="test")


async def begin(commands: Commands, command: Command) -> asyncio.Future[Ended]:
    """A command that certainly runs, and is looked after."""
    looked = asyncio.Event()
    running = asyncio.ensure_future(commands.run(command, lambda _: looked.set()))
    await asyncio.wait_for(looked.wait(), at_most(15))
    return running


def words(ended: Ended) -> str:
    return (ended.output.head + ended.output.tail).decode()


# -- what comes of it --------------------------------------------------------------------------------------------------


@both_loops
def test_output_and_errors_come_together_in_their_order(loop_factory: Any) -> None:
    async def main() -> None:
        script = "for n in 1 2 3; do echo out $n; echo err $n >&2; done; exit 3"
        async with commands_of() as commands:
            ended = await commands.run(shell(script))
        assert (ended.how, ended.code) == ("exited", 3)
        assert words(ended).split("\n") == ["out 1", "err 1", "out 2", "err 2", "out 3", "err 3", ""]

    run_on(loop_factory, main())


async def test_there_is_no_input_and_it_is_no_pipe() -> None:
    async with commands_of() as commands:
        ended = await commands.run(shell("cat; [ -p /dev/stdin ] || echo no pipe"))
    assert words(ended) == "no pipe\n"


async def test_a_command_that_a_signal_ends_says_which() -> None:
    async with commands_of() as commands:
        ended = await commands.run(shell("kill -SEGV $$"))
    assert (ended.how, ended.code) == ("exited", -signal.SIGSEGV)


async def test_no_core_file_is_written_and_the_kernel_ends_it_before_the_gateway() -> None:
    async with commands_of() as commands:
        ended = await commands.run(shell("ulimit -c; cat /proc/self/oom_score_adj"))
    assert words(ended) == "0\n500\n"


async def test_it_runs_in_the_very_folder_that_was_opened(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    folder = os.open(before, os.O_RDONLY)
    try:
        before.rename(after)
        before.symlink_to("/etc")
        async with commands_of() as commands:
            ended = await commands.run(shell("pwd -P; touch here", folder=folder))
    finally:
        os.close(folder)
    assert words(ended) == f"{after}\n"
    assert (after / "here").exists()


async def test_what_is_looked_at_while_it_runs_is_its_output_so_far() -> None:
    seen: list[int] = []
    async with commands_of() as commands:
        running = asyncio.ensure_future(
            commands.run(shell("echo one; sleep 1000"), lambda output: seen.append(output.total_lines))
        )
        await until(lambda: 1 in seen, "its first line is seen")
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


async def test_one_that_ended_while_nobody_looked_has_not_timed_out(tmp_path: Path) -> None:
    """As where the gateway is stopped: its end lies in the pipe when its deadline is seen to be over."""
    timeout_s = at_most(2)
    begun, gate, ended = (tmp_path / name for name in ("begun", "gate", "ended"))
    stopped: list[bool] = []

    def stop(_: object) -> None:
        if not stopped and begun.exists():
            stopped.append(True)
            gate.touch()
            wait_until(ended.exists, "it ends")
            time.sleep(timeout_s + 0.5)

    async with commands_of() as commands:
        script = f"touch {begun}; until [ -e {gate} ]; do sleep 0.02; done; touch {ended}; echo done"
        command = shell(script, timeout_s=timeout_s)
        result = await commands.run(command, stop)
    assert stopped
    assert (result.how, result.code, words(result)) == ("exited", 0, "done\n")


# -- floods ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@both_loops
def test_a_flood_is_kept_within_bounds_and_leaves_room_for_others(loop_factory: Any) -> None:
    async def main() -> None:
        mark = new_mark()
        async with commands_of() as commands:
            flood = asyncio.ensure_future(commands.run(shell("yes", mark=mark, timeout_s=at_most(2))))
            beside = await commands.run(shell("echo beside"))
            ended = await flood
        assert words(beside) == "beside\n"
        assert ended.how == "timed_out"
        assert ended.output.total_bytes > HEAD_BYTES + TAIL_BYTES
        assert len(ended.output.head) + len(ended.output.tail) == HEAD_BYTES + TAIL_BYTES
        await until(lambda: not survivors(mark), "nothing of it is left")

    run_on(loop_factory, main())


async def test_the_end_of_a_long_output_is_there() -> None:
    async with commands_of() as commands:
        ended = await commands.run(shell("seq 1 400000; echo the end"))
    assert ended.output.head.startswith(b"1\n2\n3\n")
    assert ended.output.tail.endswith(b"399999\n400000\nthe end\n")
    assert ended.output.total_lines == 400_001


# -- nothing is left ---------------------------------------------------------------------------------------------------

STAYING = {
    "in the background": "sleep 1000 & sleep 1000 & echo ready",
    "without a terminal": "nohup sleep 1000 >/dev/null 2>&1 & echo ready",
    "in a session of its own": "setsid sleep 1000 & echo ready",
    "forked twice": "(setsid sh -c 'sleep 1000 & sleep 1000' &); echo ready",
    "deaf to signals": "trap '' TERM HUP INT; sleep 1000 & echo ready",
    "disowned": "sleep 1000 & disown -a; echo ready",
    "without an environment": "(setsid env -i sleep 1000 &); echo ready",
}


async def test_what_stays_behind_ends_with_the_command_and_holds_nobody_up() -> None:
    async with commands_of() as commands:
        for how, script in STAYING.items():
            mark = new_mark()
            ended = await commands.run(shell(script, mark=mark))
            assert (ended.how, ended.code, words(ended)) == ("exited", 0, "ready\n"), how
            await until(lambda mark=mark: not survivors(mark), f"nothing of it is left: {how}")
            await none_below(commands)


@pytest.mark.slow
async def test_at_the_deadline_everything_ends_and_the_output_so_far_is_there() -> None:
    mark = new_mark()
    async with commands_of() as commands:

        async def late(how: str) -> None:
            script = f"echo begun; {STAYING[how]}; sleep 1000"
            ended = await commands.run(shell(script, mark=mark, timeout_s=at_most(1.5)))
            assert ended.how == "timed_out", how
            assert words(ended).startswith("begun\n"), how

        await asyncio.gather(*(late(how) for how in STAYING))
        await until(lambda: not survivors(mark), "nothing of them is left")
        await none_below(commands)


async def none_below(commands: Commands) -> None:
    """Nor a process that hides, once the supervisor has had the time to look."""
    supervisor = commands.supervisor_pid
    assert supervisor is not None
    await until(
        lambda: not [process for process in descendants(supervisor) if not process.zombie],
        "nothing is below the supervisor",
    )


async def test_a_cancelled_command_leaves_nothing() -> None:
    mark = new_mark()
    async with commands_of() as commands:
        await commands.run(shell("true"))
        files = len(open_files())
        running = [await begin(commands, shell(f"{script}; sleep 1000", mark=mark)) for script in STAYING.values()]
        for command in running:
            command.cancel()
        ends = await asyncio.gather(*running, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in ends)
        assert len(open_files()) == files
        await until(lambda: not survivors(mark), "nothing of them is left")
        await none_below(commands)


async def test_closing_ends_what_runs() -> None:
    mark = new_mark()
    commands = Commands()
    running = await begin(commands, shell("sleep 1000", mark=mark))
    await commands.close()
    assert (await running).how in ("exited", "lost")
    assert survivors(mark) == []
    with pytest.raises(GatewayError) as refused:
        await commands.run(shell("true"))
    assert refused.value.problem.code is DRAINING


# -- processes without end ---------------------------------------------------------------------------------------------

BOMBS = {
    "a fork bomb": "bomb() { sleep 5 & bomb & wait; }; bomb",
    "one process after another": "while :; do sleep 1000 & done",
    "in sessions of their own": "while :; do setsid sleep 1000 & done",
}


@pytest.mark.parametrize("script", BOMBS.values(), ids=BOMBS)
async def test_a_command_that_starts_processes_without_end_is_ended(script: str) -> None:
    mark = new_mark()
    async with commands_of(process_limit=60) as commands:
        neighbour = await begin(commands, shell("sleep 1000"))
        ended = await commands.run(shell(script, mark=mark))
        assert ended.how == "too_many_processes"
        await until(lambda: not survivors(mark), "nothing of it is left")
        assert not neighbour.done(), "the command beside it has nothing to do with that"
        neighbour.cancel()
        with pytest.raises(asyncio.CancelledError):
            await neighbour


# -- the supervisor ----------------------------------------------------------------------------------------------------


async def test_a_command_whose_supervisor_is_killed_is_lost_and_the_next_one_works() -> None:
    mark = new_mark()
    faults: list[str] = []
    async with commands_of(on_fault=faults.append) as commands:
        running = await begin(commands, shell("sleep 1000 & wait", mark=mark))
        assert commands.supervisor_pid is not None
        os.kill(commands.supervisor_pid, signal.SIGKILL)
        assert (await running).how == "lost"
        await until(lambda: not survivors(mark), "nothing of it is left")
        assert (await commands.run(shell("echo again"))).code == 0
    assert len(faults) == 1


@pytest.mark.slow
async def test_on_a_portable_system_a_command_and_its_group_end() -> None:
    mark = new_mark()
    async with commands_of(portable=True) as commands:
        ended = await commands.run(shell("sleep 1000 & echo ready", mark=mark))
        assert (ended.code, words(ended)) == (0, "ready\n")
        await until(lambda: not survivors(mark), "nothing of it is left")
