"""Limits where the kernel enforces them: for a run of the tests in a cgroup that is delegated, which few machines give.

systemd-run --user --scope --property=Delegate=yes .venv/bin/python -m pytest tests/faults/test_cgroups.py
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest
from tests.support import prying_server
from tests.support.child_trees import children_of, close_pipes, marked, new_mark, read_line, survivors
from tests.support.client import Client
from tests.support.gateway import Gateway
from tests.support.processes import alive
from tests.support.shared_gateway import visiting
from tests.support.waiting import at_most, until, wait_until

from trunkline.runtime.children import Children
from trunkline.runtime.resource_limits import find_delegated
from trunkline.runtime.supervisor_client import Child, Limits

MOUNT = "/sys/fs/cgroup"
MEMBERSHIP = Path("/proc/self/cgroup")
DELEGATED = find_delegated(MOUNT, MEMBERSHIP.read_bytes())[0] if sys.platform == "linux" else ""
pytestmark = [pytest.mark.optional, pytest.mark.skipif(not DELEGATED, reason="needs a cgroup that is delegated to it")]
MIB = 1 << 20
EATS = "import os; print('ready', flush=True); input(); kept = [os.urandom(1 << 20) for _ in range(200)]; input()"
THREADS = """
import threading
for _ in range(50):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
print(threading.active_count(), flush=True)
input()
"""
READS = """
import sys
with open(sys.argv[1], "rb") as file:
    while file.read(1 << 20):
        pass
print("read", flush=True)
input()
"""
FORKS = "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass"


def runs() -> list[str]:
    return [name for name in os.listdir(DELEGATED) if name.startswith("trunkline-run-")]


def cgroup_of(pid: int | str) -> str:
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    return MOUNT + next(line[3:] for line in lines if line.startswith("0::"))


def write_uncached(path: Path, mb: int) -> Path:
    """A file that whoever reads it gets from the disk, unless it lies in memory for good."""
    with path.open("wb") as file:
        file.write(os.urandom(1 << 20) * mb)
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return path


def below_a_run(pid: int | str) -> bool:
    return cgroup_of(pid).startswith(f"{DELEGATED}/trunkline-run-")


async def start(children: Children, mark: str, code: str, *arguments: str, **limits: int) -> Child:
    argv = [sys.executable, "-c", code, *arguments]
    return await children.spawn(argv, env=marked(mark), cwd=None, label="greedy", limits=Limits(**limits))


async def end_of(child: Child) -> int:
    async with asyncio.timeout(at_most(30)):
        return await child.exited


async def stop(child: Child) -> None:
    close_pipes(child)
    await child.stop()


async def test_the_kernel_ends_what_takes_too_much_memory_and_it_is_told_before_its_end():
    async with children_of() as children:
        child = await start(children, new_mark(), EATS, memory_bytes=100 * MIB)
        assert await read_line(child.stdout) == b"ready\n"
        own = cgroup_of(child.pid)
        assert below_a_run(child.pid)
        assert int(Path(own, "memory.max").read_text()) == 100 * MIB
        os.write(child.stdin, b"\n")
        assert await end_of(child) == -9
        assert child.exceeded is not None
        assert (child.exceeded.what, child.exceeded.used) == ("memory", 100 * MIB), "never more than that"
        await until(lambda: not os.path.exists(own), "its cgroup is gone")
        close_pipes(child)
    assert runs() == []


async def test_all_of_a_tree_that_forks_without_end_is_ended():
    mark = new_mark()
    async with children_of() as children:
        child = await start(children, mark, FORKS, processes=20)
        assert await end_of(child) == -9
        assert child.exceeded is not None
        assert (child.exceeded.what, child.exceeded.allowed) == ("processes", 20)
        await until(lambda: not survivors(mark), "nothing of it is left", 60)
        close_pipes(child)
    assert runs() == []


async def test_threads_are_no_processes_and_what_was_read_of_files_makes_room(tmp_path: Path):
    async with children_of() as children:
        child = await start(children, new_mark(), THREADS, processes=1)
        assert await read_line(child.stdout) == b"51\n"
        large = write_uncached(tmp_path / "large", 200)
        reader = await start(children, new_mark(), READS, str(large), memory_bytes=100 * MIB)
        assert await asyncio.wait_for(read_line(reader.stdout), at_most(60)) == b"read\n"
        await asyncio.sleep(0.6)  # for the watch to look
        assert (child.exited.done(), child.exceeded, reader.exceeded) == (False, None, None)
        assert below_a_run(child.pid)
        await stop(child)
        await stop(reader)


async def test_a_child_without_limits_stays_with_the_gateway():
    async with children_of() as children:
        child = await children.spawn(["cat"], env=marked(new_mark()), cwd=None, label="free")
        assert cgroup_of(child.pid) == cgroup_of("self")
        await stop(child)


async def test_what_a_killed_supervisor_left_is_gone_with_the_next_start():
    faults: list[str] = []
    children = Children(on_fault=faults.append)
    try:
        child = await start(children, new_mark(), "input()", processes=5)
        assert len(before := runs()) == 1
        assert children.supervisor_pid is not None
        os.kill(children.supervisor_pid, signal.SIGKILL)
        await end_of(child)
        await until(lambda: children.supervisor_pid is None, "its death is seen")
        close_pipes(child)
        await until(lambda: not alive(child.pid), "it is gone")
        other = await start(children, new_mark(), "input()", processes=5)
        assert below_a_run(other.pid)
        assert set(runs()).isdisjoint(before)
        await stop(other)
    finally:
        await children.close()
    assert runs() == []
    assert len(faults) == 1


async def pid_of(client: Client) -> str:
    answer = await client.call("greedy_eat", {"mb": 1})
    return "" if answer.failed else answer.text


async def test_a_gateway_tells_what_the_kernel_ended_and_starts_it_again(tmp_path: Path):
    arguments = [prying_server.__file__, new_mark()]
    limits = {"memory_mb": 150, "processes": 8}
    source = {"kind": "mcp_stdio", "command": sys.executable, "args": arguments, "sessions": "shared", "limits": limits}
    with Gateway(tmp_path, {"greedy": source}) as gateway:
        async with visiting(gateway) as client:
            before = await pid_of(client)
            assert below_a_run(before)
            lost = await client.call("greedy_eat", {"mb": 300, "then_s": 600})
            assert lost.error["data"]["code"] == "TL208"
            assert "`limits.memory_mb` is 150" in lost.error["message"]
            after = await until(lambda: pid_of(client), "it is up again")
            assert after != before
            assert below_a_run(after)
            lost = await client.call("greedy_spread", {"processes": 30, "then_s": 600})
            assert "`limits.processes` is 8" in lost.error["message"]
            gone = await until(lambda: pid_of(client), "it is up again")
            assert gone not in (before, after)
    wait_until(lambda: runs() == [], "nothing is left of its cgroups")
