from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from itertools import product

import pytest
import uvloop
from tests.support.child_trees import (
    PLAIN_TREE,
    PLAIN_TREE_SIZE,
    WILD_TREE,
    WILD_TREE_SIZE,
    children_of,
    close_pipes,
    marked,
    new_mark,
    output_of,
    read_all,
    read_line,
    run_on,
    survivors,
)
from tests.support.pairs import IN_FULL
from tests.support.processes import descendants, open_files
from tests.support.waiting import at_most, until

from trunkline.core.errors import DRAINING, GatewayError
from trunkline.runtime.children import Children
from trunkline.runtime.supervisor_client import Child

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks for survivors in /proc"),
    pytest.mark.law,
]
LINUX, PORTABLE = False, True
TREES = {LINUX: (WILD_TREE, WILD_TREE_SIZE), PORTABLE: (PLAIN_TREE, PLAIN_TREE_SIZE)}


# The first loop of uvloop makes a pipe for signals that stays with the process.
uvloop.new_event_loop().close()


LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]
WAYS = [LINUX, PORTABLE]
on_both_loops = pytest.mark.parametrize("loop_factory", LOOPS)
in_both_ways = pytest.mark.parametrize("portable", WAYS)
on_both_loops_and_in_both_ways = pytest.mark.parametrize(("loop_factory", "portable"), list(product(LOOPS, WAYS)))


async def shell(children: Children, script: str, mark: str) -> Child:
    return await children.spawn(["sh", "-c", script], env=marked(mark), cwd=None, label="test")


async def grow(children: Children, script: str, mark: str, size: int) -> Child:
    """A child whose tree is fully grown."""
    before = len(survivors(mark))
    child = await shell(children, script, mark)
    assert await read_line(child.stdout) == b"ready\n"
    await until(lambda: len(survivors(mark)) == before + size, f"{size} processes more")
    return child


async def none_left(mark: str) -> None:
    await until(lambda: not survivors(mark), "no process with the mark is left")


# --- a running child


@on_both_loops_and_in_both_ways
def test_a_child_talks_over_its_three_pipes(loop_factory, portable):
    async def main():
        async with children_of(portable) as children:
            child = await shell(children, "read line; echo out $line; echo err $line >&2; exit 7", "")
            os.write(child.stdin, b"hello\n")
            assert await read_all(child.stdout) == b"out hello\n"
            assert await read_all(child.stderr) == b"err hello\n"
            assert await child.exited == 7
            close_pipes(child)

    run_on(loop_factory, main())


OF_THE_C_LIBRARY = 1 << 31 | 1 << 32
"""Signals 32 and 33: glibc keeps programs from setting them, and what `make` starts has the first ignored."""


@in_both_ways
def test_a_child_starts_with_default_signals_and_nothing_blocked(portable):
    async def main():
        async with children_of(portable) as children:
            status = await output_of(children, ["cat", "/proc/self/status"])
        masks = dict(line.split(":\t") for line in status.splitlines() if line.startswith("Sig"))
        assert int(masks["SigIgn"], 16) & ~OF_THE_C_LIBRARY == 0
        assert int(masks["SigBlk"], 16) == 0

    asyncio.run(main())


@in_both_ways
def test_a_child_gets_no_descriptor_of_the_gateway(portable):
    async def main():
        reader, writer = os.pipe()
        os.set_inheritable(reader, True)
        os.set_inheritable(writer, True)
        async with children_of(portable) as children:
            neighbour = await shell(children, "exec cat", "")
            listed = await output_of(children, ["ls", "/proc/self/fd"])
            assert listed.split() == ["0", "1", "2", "3"], "3 is the folder that ls reads"
            close_pipes(neighbour)
        os.close(reader)
        os.close(writer)

    asyncio.run(main())


@in_both_ways
def test_a_child_leads_a_session_of_its_own(portable):
    async def main():
        async with children_of(portable) as children:
            child = await shell(children, "exec cat", "")
            assert os.getsid(child.pid) == os.getpgid(child.pid) == child.pid
            close_pipes(child)

    asyncio.run(main())


def test_arguments_arrive_verbatim_and_no_shell_sees_them(tmp_path):
    arguments = [";", "$(touch canary)", "`touch canary`", "a\nb", "", "| touch canary", "ünï", "\udcff", "'\"\\", "*"]

    async def main():
        async with children_of() as children:
            program = [sys.executable, "-c", "import json, sys; print(json.dumps(sys.argv[1:]))", *arguments]
            output = await output_of(children, program, cwd=str(tmp_path))
        assert json.loads(output) == arguments
        assert list(tmp_path.iterdir()) == []

    asyncio.run(main())


def test_the_environment_is_what_was_given_and_nothing_of_ours(monkeypatch):
    monkeypatch.setenv("TRUNKLINE_TOKEN", "secret")

    async def main():
        async with children_of() as children:
            output = await output_of(children, ["/usr/bin/env"], env={"ONE": "1", "TWO": "a=b\nc"})
        lines = [line for line in output.splitlines() if not line.startswith("TRUNKLINE_CHILD=")]
        assert lines == ["ONE=1", "TWO=a=b", "c"]

    asyncio.run(main())


def test_the_supervisor_holds_no_secret_of_the_gateway(monkeypatch):
    monkeypatch.setenv("TRUNKLINE_TOKEN", "the-canary")

    async def main():
        async with children_of() as children:
            await output_of(children, ["true"])
            for file in ("environ", "cmdline"):
                with contextlib.suppress(PermissionError), open(f"/proc/{children.supervisor_pid}/{file}", "rb") as it:
                    assert b"the-canary" not in it.read()

    asyncio.run(main())


def test_the_command_is_found_in_the_path_of_the_childs_environment(tmp_path):
    program = tmp_path / "only-here"
    program.write_text("#!/bin/sh\necho found\n")
    program.chmod(0o755)

    async def main():
        async with children_of() as children:
            assert await output_of(children, ["only-here"], env={"PATH": f"/nowhere:{tmp_path}"}) == "found\n"

    asyncio.run(main())


def test_the_working_directory_is_set_and_relative_commands_start_from_it(tmp_path):
    program = tmp_path / "here"
    program.write_text("#!/bin/sh\npwd\n")
    program.chmod(0o755)

    async def main():
        async with children_of() as children:
            assert await output_of(children, ["./here"], cwd=str(tmp_path)) == f"{tmp_path}\n"

    asyncio.run(main())


@on_both_loops
def test_a_request_larger_than_the_socket_arrives_whole(loop_factory):
    async def main():
        async with children_of() as children:
            env = marked("") | {f"BIG_{n}": "x" * 100_000 for n in range(12)}
            assert await output_of(children, ["sh", "-c", "echo ${#BIG_0} ${#BIG_11}"], env=env) == "100000 100000\n"

    run_on(loop_factory, main())


# --- how a child ends


STOPPED = {
    "exec cat": 0,
    "cat; exit 5": 5,
    "exec sleep 1000": -signal.SIGTERM,
    "trap '' TERM; exec sleep 1000": -signal.SIGKILL,
    "kill -STOP $$; exec sleep 1000": -signal.SIGKILL,
}


@in_both_ways
def test_stop_ends_a_child_as_gently_as_it_allows(portable):
    async def main():
        async with children_of(portable) as children:

            async def stopped(script: str, code: int) -> list[int]:
                child = await shell(children, f"echo ready; {script}", "")
                await read_line(child.stdout)
                close_pipes(child)
                grace_s = 0.3 if code == -signal.SIGKILL else at_most(2)  # as long for its input, and for SIGTERM
                return [await child.stop(grace_s=grace_s), await child.stop()]

            codes = await asyncio.gather(*(stopped(script, code) for script, code in STOPPED.items()))
            assert dict(zip(STOPPED, codes, strict=True)) == {script: [code] * 2 for script, code in STOPPED.items()}

    asyncio.run(main())


@pytest.mark.slow
@on_both_loops_and_in_both_ways
def test_stop_ends_the_whole_tree_and_nothing_of_another(loop_factory, portable):
    script, size = TREES[portable]

    async def main():
        mark, other_mark = new_mark(), new_mark()
        async with children_of(portable) as children:
            other = await grow(children, script, other_mark, size)
            child = await grow(children, script, mark, size)
            close_pipes(child)
            assert await child.stop(grace_s=at_most(10)) == 0
            assert survivors(mark) == []
            assert len(survivors(other_mark)) == size
            close_pipes(other)
        await none_left(other_mark)

    run_on(loop_factory, main())


@pytest.mark.slow
@in_both_ways
def test_a_tree_that_ignores_sigterm_is_killed(portable):
    script, size = TREES[portable]

    async def main():
        mark = new_mark()
        async with children_of(portable) as children:
            child = await grow(children, "trap '' TERM HUP INT;" + script, mark, size)
            close_pipes(child)
            assert await child.stop(grace_s=at_most(10)) == 0
            await none_left(mark)

    asyncio.run(main())


@pytest.mark.slow
@on_both_loops_and_in_both_ways
def test_when_the_leader_ends_by_itself_its_tree_follows(loop_factory, portable):
    script, size = TREES[portable]

    async def main():
        mark = new_mark()
        async with children_of(portable) as children:
            child = await grow(children, script, mark, size)
            os.kill(child.pid, signal.SIGKILL)
            assert await child.exited == -signal.SIGKILL
            await none_left(mark)
            assert await child.stop() == -signal.SIGKILL
            close_pipes(child)

    run_on(loop_factory, main())


@on_both_loops_and_in_both_ways
def test_kill_takes_the_whole_tree(loop_factory, portable):
    script, size = TREES[portable]

    async def main():
        mark = new_mark()
        async with children_of(portable) as children:
            child = await grow(children, "trap '' TERM;" + script, mark, size)
            child.kill()
            assert await child.exited == -signal.SIGKILL
            await none_left(mark)
            child.kill()
            close_pipes(child)

    run_on(loop_factory, main())


def test_a_daemon_that_wiped_its_environment_goes_with_the_last_child():
    async def main():
        mark = new_mark()
        script = f"(setsid env -i sh -c 'sleep 1000; true' {mark} &); echo ready; exec cat"
        async with children_of() as children:
            child = await shell(children, script, mark)
            await read_line(child.stdout)
            await until(lambda: len(survivors(mark)) == 2, "the leader and the daemon run")
            close_pipes(child)
            await child.stop()
            assert survivors(mark) == []

    asyncio.run(main())


@pytest.mark.parametrize("escape", ["pass", "os.setsid()"])
def test_a_process_that_keeps_forking_away_is_caught(tmp_path, escape):
    trail = tmp_path / "trail"
    comet = f"""
import os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork():
    sys.stdin.read()
    os._exit(0)
while True:
    if os.fork():
        os._exit(0)
    {escape}
    fd = os.open({str(trail)!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(fd, b".")
    os.close(fd)
"""

    async def main():
        mark = new_mark()
        async with children_of() as children:
            neighbour = await shell(children, "exec cat", "")
            child = await children.spawn([sys.executable, "-c", comet], env=marked(mark), cwd=None, label="comet")
            await until(trail.exists, "it is on its way")
            close_pipes(child)
            await child.stop()
            length = trail.stat().st_size
            for _ in range(10):
                assert survivors(mark) == []
            assert trail.stat().st_size == length
            assert not neighbour.exited.done()
            close_pipes(neighbour)

    asyncio.run(main())


def test_orphans_are_reaped_while_their_tree_lives_on():
    async def main():
        async with children_of() as children:
            child = await shell(
                children, "for n in 1 2 3 4 5; do (sh -c 'true & true' &); done; echo ready; exec cat", ""
            )
            await read_line(child.stdout)
            left = [child.pid]
            await until(
                lambda: [p.pid for p in descendants(children.supervisor_pid)] == left, "only the leader is left"
            )
            close_pipes(child)

    asyncio.run(main())


def test_asking_again_with_less_patience_is_the_one_that_counts():
    async def main():
        async with children_of() as children:
            child = await shell(children, "trap '' TERM; echo ready; exec sleep 1000", "")
            await read_line(child.stdout)
            patient = asyncio.ensure_future(child.stop(grace_s=1000))
            await asyncio.sleep(0)
            assert await asyncio.wait_for(child.stop(grace_s=0), at_most(15)) == -signal.SIGKILL
            assert await patient == -signal.SIGKILL
            close_pipes(child)

    asyncio.run(main())


def test_cancelling_the_wait_does_not_stop_the_stopping():
    async def main():
        async with children_of() as children:
            child = await shell(children, "exec sleep 1000", "")
            stopping = asyncio.ensure_future(child.stop(grace_s=at_most(0.5)))
            await asyncio.sleep(0)
            stopping.cancel()
            assert await asyncio.wait_for(child.exited, at_most(15)) == -signal.SIGTERM
            close_pipes(child)

    asyncio.run(main())


# --- many


@on_both_loops
def test_fifty_children_start_at_once(loop_factory):
    async def main():
        mark = new_mark()
        async with children_of() as children:
            started = await asyncio.gather(*(shell(children, "echo $$; exec cat", mark) for _ in range(50)))
            for child in started:
                assert await read_line(child.stdout) == f"{child.pid}\n".encode()
            assert len(survivors(mark)) == 50
            for child in started:
                close_pipes(child)
            assert await asyncio.gather(*(child.stop(grace_s=at_most(10)) for child in started)) == [0] * 50
        assert survivors(mark) == []

    run_on(loop_factory, main())


def lasting_files(pid: int) -> dict[int, str]:
    """What a process holds open, without the process table it may be reading."""
    return {fd: target for fd, target in open_files(pid).items() if not target.startswith("/proc")}


def test_life_after_life_leaves_nothing_behind():
    async def main():
        mark = new_mark()
        async with children_of() as children:
            await output_of(children, ["true"])
            ours, theirs = len(open_files()), lasting_files(children.supervisor_pid)
            for _ in range(200 if IN_FULL else 40):
                child = await shell(children, "exec cat", mark)
                close_pipes(child)
                assert await child.stop(grace_s=at_most(10)) == 0
            assert survivors(mark) == []
            assert len(open_files()) == ours
            assert lasting_files(children.supervisor_pid) == theirs
            await until(lambda: not descendants(children.supervisor_pid), "every child is reaped")

    run_on(uvloop.new_event_loop, main())


@on_both_loops
@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8])
def test_a_cancelled_spawn_leaves_nothing_behind(loop_factory, turns):
    async def main():
        mark = new_mark()
        async with children_of() as children:
            await output_of(children, ["true"])
            files = len(open_files())
            spawning = asyncio.ensure_future(shell(children, "exec cat", mark))
            for _ in range(turns):
                await asyncio.sleep(0)
            spawning.cancel()
            try:
                close_pipes(await spawning)  # it was through already: then it is ours
            except asyncio.CancelledError:
                await none_left(mark)
            assert len(open_files()) == files

    run_on(loop_factory, main())


# --- the end of all


@pytest.mark.slow
@on_both_loops_and_in_both_ways
def test_close_ends_every_tree_and_the_supervisor(loop_factory, portable):
    script, size = TREES[portable]

    async def main():
        mark = new_mark()
        before = len(open_files())
        children = Children(portable=portable)
        trees = [await grow(children, script, mark, size) for _ in range(3)]
        supervisor = children.supervisor_pid
        await asyncio.gather(children.close(), children.close())
        assert survivors(mark) == []
        assert not os.path.exists(f"/proc/{supervisor}")
        for child in trees:
            assert await child.exited == -signal.SIGTERM
            close_pipes(child)
        assert len(open_files()) == before
        await children.close()

    run_on(loop_factory, main())


def test_nothing_starts_after_close():
    async def main():
        children = Children()
        await children.close()
        with pytest.raises(GatewayError) as caught:
            await shell(children, "true", "")
        assert caught.value.problem.code is DRAINING

    asyncio.run(main())


@on_both_loops
def test_a_spawn_overtaken_by_close_leaves_nothing_behind(loop_factory):
    async def main():
        mark = new_mark()
        before = len(open_files())
        children = Children()
        spawning = [asyncio.ensure_future(shell(children, "exec cat", mark)) for _ in range(20)]
        await asyncio.sleep(0)
        await children.close()
        for outcome in await asyncio.gather(*spawning, return_exceptions=True):
            if isinstance(outcome, Child):
                close_pipes(outcome)
            else:
                assert isinstance(outcome, GatewayError)
        assert survivors(mark) == []
        assert len(open_files()) == before

    run_on(loop_factory, main())


@on_both_loops_and_in_both_ways
def test_a_killed_supervisor_takes_its_children_along_and_is_replaced(loop_factory, portable):
    script, size = TREES[portable]

    async def main():
        mark = new_mark()
        faults: list[str] = []
        children = Children(portable=portable, on_fault=faults.append)
        first, second = [await grow(children, "trap '' TERM;" + script, mark, size) for _ in range(2)]
        supervisor = children.supervisor_pid
        os.kill(supervisor, signal.SIGKILL)
        assert await asyncio.wait_for(first.exited, at_most(15)) == -signal.SIGKILL
        assert await second.stop() == -signal.SIGKILL
        await none_left(mark)
        assert len(faults) == 1
        assert await output_of(children, ["echo", "again"]) == "again\n"
        assert children.supervisor_pid != supervisor
        close_pipes(first)
        close_pipes(second)
        await children.close()

    run_on(loop_factory, main())


@on_both_loops
def test_a_spawn_during_which_the_supervisor_dies_fails_and_leaves_nothing(loop_factory):
    async def main():
        mark = new_mark()
        children = Children()
        await output_of(children, ["true"])
        files = len(open_files())
        os.kill(children.supervisor_pid, signal.SIGKILL)
        with pytest.raises(GatewayError, match="supervisor died"):
            await shell(children, "exec cat", mark)
        await none_left(mark)
        await children.close()
        assert len(open_files()) == files - 1, "the control channel is closed too"

    run_on(loop_factory, main())
