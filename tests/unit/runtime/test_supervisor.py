"""The supervisor as a process, when the gateway or a fork of it ends in any way."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.child_trees import MARK, PLAIN_TREE, PLAIN_TREE_SIZE, WILD_TREE, WILD_TREE_SIZE, new_mark, survivors
from tests.support.pairs import IN_FULL
from tests.support.processes import alive
from tests.support.waiting import at_most, wait_until

from trunkline.runtime import supervisor as supervisor_module
from trunkline.runtime.supervisor_channel import Inbox, Outbox

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks for survivors in /proc"),
    pytest.mark.law,
]

GATEWAY = """
import asyncio, os, sys
from trunkline.runtime.children import Children

PORTABLE = sys.argv[1] == "portable"
SCRIPT = sys.argv[2]

async def spawn(children):
    env = {name: os.environ[name] for name in ("PATH", "TEST_MARK")}
    return await children.spawn(["sh", "-c", SCRIPT], env=env, cwd=None, label="test")

async def main():
    children = Children(portable=PORTABLE)
    await spawn(children)
    print(children.supervisor_pid, flush=True)
"""
WAIT = """
    await asyncio.Event().wait()
asyncio.run(main())
"""
SPAWN_MANY = """
    await asyncio.gather(*(spawn(children) for _ in range(30)))
    await asyncio.Event().wait()
asyncio.run(main())
"""
LEAVE_A_FORK = """
    if os.fork() == 0:
        print("forked", os.getpid(), flush=True)
        import time
        time.sleep(60)
        os._exit(0)
    await asyncio.Event().wait()
asyncio.run(main())
"""
RETURN_WITHOUT_CLOSING = """
import warnings
warnings.simplefilter("ignore", ResourceWarning)
asyncio.run(main())
"""
RAISE = """
    raise RuntimeError("the gateway has a bug")
asyncio.run(main())
"""
BLOCK_ITS_LOOP = """
    import time
    print("blocked", flush=True)
    time.sleep(600)
asyncio.run(main())
"""
WITH_A_NESTED_GATEWAY = """
    import subprocess
    code = os.environ["NESTED"]
    env = {name: os.environ[name] for name in ("PATH", "TEST_MARK")}
    await children.spawn([sys.executable, "-c", code, "linux", SCRIPT], env=env, cwd=None, label="nested")
    await asyncio.Event().wait()
asyncio.run(main())
"""


@contextmanager
def gateway(rest: str, mark: str, *, mode: str = "linux", script: str = WILD_TREE):
    """A process that behaves like a gateway with one child; yields it and the pid of its supervisor."""
    process = subprocess.Popen(
        [sys.executable, "-c", GATEWAY + rest, mode, script],
        env={**os.environ, MARK: mark, "NESTED": GATEWAY + WAIT},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield process, int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def nothing_survives(mark: str, supervisor: int) -> None:
    wait_until(lambda: not alive(supervisor), "the supervisor ends")
    wait_until(lambda: not survivors(mark), "nothing with the mark is left")


ENDS = [signal.SIGKILL, signal.SIGINT]
"""At once, and by an exception in the middle of the loop. The others end a process at once, too."""
if IN_FULL:
    ENDS += [signal.SIGTERM, signal.SIGHUP, signal.SIGSEGV]


@pytest.mark.parametrize("mode", ["linux", "portable"])
@pytest.mark.parametrize("number", ENDS)
def test_nothing_survives_a_killed_gateway(mode, number):
    mark = new_mark()
    script, size = (WILD_TREE, WILD_TREE_SIZE) if mode == "linux" else (PLAIN_TREE, PLAIN_TREE_SIZE)
    with gateway(WAIT, mark, mode=mode, script="trap '' TERM HUP INT;" + script) as (process, supervisor):
        wait_until(lambda: len(survivors(mark)) == size + 1, "the tree is grown")
        os.kill(process.pid, number)
        process.wait(at_most(15))
        nothing_survives(mark, supervisor)


@pytest.mark.parametrize("rest", [RETURN_WITHOUT_CLOSING, RAISE], ids=["returns", "raises"])
def test_nothing_survives_a_gateway_that_ends_without_closing(rest):
    mark = new_mark()
    with gateway(rest, mark) as (process, supervisor):
        process.wait(at_most(15))
        nothing_survives(mark, supervisor)


@pytest.mark.parametrize("started", range(0, 50, 10) if IN_FULL else [10, 30])
def test_nothing_survives_a_gateway_killed_amid_thirty_starts(started):
    mark = new_mark()
    with gateway(SPAWN_MANY, mark) as (process, supervisor):
        wait_until(lambda: len(survivors(mark)) > started, "some are started")
        process.kill()
        process.wait(at_most(15))
        nothing_survives(mark, supervisor)


def test_a_fork_of_the_gateway_does_not_keep_its_children_alive():
    mark = new_mark()
    with gateway(LEAVE_A_FORK, mark) as (process, supervisor):
        fork = int(process.stdout.readline().split()[1])
        process.kill()
        process.wait(at_most(15))
        try:
            wait_until(lambda: not alive(supervisor), "the supervisor ends although the fork holds its channel")
            assert survivors(mark) == [fork]
        finally:
            os.kill(fork, signal.SIGKILL)


def test_nothing_survives_a_nested_gateway_either():
    mark = new_mark()
    with gateway(WITH_A_NESTED_GATEWAY, mark) as (process, supervisor):
        wait_until(lambda: len(survivors(mark)) == 2 * (WILD_TREE_SIZE + 1), "both gateways have their trees")
        process.kill()
        process.wait(at_most(15))
        nothing_survives(mark, supervisor)


def test_the_tree_of_a_leader_that_ends_is_cleared_even_while_the_gateway_is_blocked():
    mark = new_mark()
    with gateway(BLOCK_ITS_LOOP, mark, script=WILD_TREE.replace("exec cat", "exec sleep 0.5")) as (process, _):
        assert process.stdout.readline() == "blocked\n"
        wait_until(lambda: survivors(mark) == [process.pid], "only the gateway is left")


def test_the_supervisor_leads_its_own_session_and_ignores_what_terminals_send():
    mark = new_mark()
    with gateway(WAIT, mark) as (_, supervisor):
        assert os.getsid(supervisor) == supervisor
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(supervisor, number)
        wait_until(lambda: len(survivors(mark)) == WILD_TREE_SIZE + 1, "everything still runs")
        assert alive(supervisor)


def test_the_supervisor_loads_nothing_heavy():
    code = "import sys; from trunkline.runtime import supervisor; print(*sys.modules)"
    ours = str(Path(supervisor_module.__file__).parents[2])
    found = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={"PYTHONPATH": ours},
        capture_output=True,
        text=True,
        timeout=at_most(60),
    )
    heavy = {"asyncio", "subprocess", "typing", "re", "json", "logging", "pathlib", "threading", "trunkline.core"}
    assert found.returncode == 0, found.stderr
    assert heavy & set(found.stdout.split()) == set()


# --- its control channel, spoken by hand


@contextmanager
def bare_supervisor(bug: str = ""):
    """A supervisor, with a bug, and our end of its control channel."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    source = str(Path(supervisor_module.__file__).parents[2])
    begin = f"import sys; sys.path.append({source!r}); from trunkline.runtime import supervisor\n"
    code = ["-c", f"{begin}{BUGS}{bug}\nsupervisor.main(sys.argv[1:])"] if bug else [supervisor_module.__file__]
    program = [sys.executable, "-I", "-S", *code, str(theirs.fileno()), new_mark()]
    with theirs:
        process = subprocess.Popen(program, pass_fds=[theirs.fileno()], start_new_session=True)
    with process, ours:
        yield process, ours


BUGS = """
from trunkline.runtime.resource_limits import LimitWatch
Supervisor = supervisor.Supervisor

def break_for_first(owner, name, where, times):
    sound = getattr(owner, name)
    left = [times]

    def broken(self, *given):
        it = given[where]
        if getattr(it, "id", it) == 1 and left[0]:
            left[0] -= 1
            raise RuntimeError("a bug")
        return sound(self, *given)

    setattr(owner, name, broken)

"""


def launch_sleep(channel: socket.socket) -> tuple[Inbox, int]:
    outbox, inbox = Outbox(channel), Inbox(channel)
    outbox.put(
        ("spawn", 1, ([b"sleep", b"1000"], dict(os.environb), None, None)),
        [os.open(os.devnull, os.O_RDWR) for _ in "012"],
    )
    assert outbox.flush()
    [(verb, child, pid, _)] = wait_until(inbox.read, "it is started")
    assert (verb, child) == ("started", 1)
    return inbox, pid


def test_a_fault_of_the_supervisor_is_reported_and_takes_its_children_along():
    with bare_supervisor() as (process, channel):
        inbox, pid = launch_sleep(channel)
        channel.send((3).to_bytes(4, "big") + b"\xff\xff\xff")
        [(verb, _, text, _)] = wait_until(inbox.read, "the fault is reported")
        assert verb == "fault"
        assert "Traceback" in text
        assert process.wait(at_most(15)) == 1
        assert not alive(pid)


class Bare:
    """What a supervisor said so far."""

    def __init__(self, channel: socket.socket) -> None:
        self.said: list[tuple[str, int]] = []
        self.pids: dict[int, int] = {}
        self._outbox, self._inbox = Outbox(channel), Inbox(channel)

    def ask(self, verb: str, child: int, value: object = None) -> None:
        stdio = [os.open(os.devnull, os.O_RDWR) for _ in "012"] if verb == "spawn" else []
        self._outbox.put((verb, child, value), stdio)
        assert self._outbox.flush()

    def spawn(self, child: int, *argv: bytes, limits: tuple[int, int] | None = None) -> None:
        self.ask("spawn", child, (list(argv) or [b"sleep", b"1000"], dict(os.environb), None, limits))

    def hears(self, verb: str, child: int) -> None:
        def heard() -> bool:
            for word, about, value, _ in self._inbox.read():
                self.said.append((word, about))
                if word == "started":
                    self.pids[about] = value
            return (verb, child) in self.said

        wait_until(heard, f"it says {verb} of {child}")


@pytest.mark.parametrize(
    ("bug", "asked"),
    [
        ("break_for_first(Supervisor, '_advance', 0, 1)", ("stop", (0.0, 5.0))),
        ("break_for_first(Supervisor, '_stop', 0, 1)", ("stop", (0.0, 5.0))),
        ("break_for_first(Supervisor, '_start_killing', 0, 1)", ("kill", None)),
        ("break_for_first(Supervisor, '_leader_ended', 0, 1)", ("kill", None)),
        ("supervisor.Descendants.kill_limit_s = 0.3; break_for_first(Supervisor, '_sweep', 0, -1)", ("kill", None)),
        ("break_for_first(Supervisor, '_end_over_limits', 0, 1)", None),
    ],
    ids=["clock", "stop", "kill", "reap", "always", "limits"],
)
def test_a_fault_with_one_child_is_told_and_costs_no_other_child_anything(bug, asked):
    with bare_supervisor(bug) as (process, channel):
        bare = Bare(channel)
        bare.spawn(2)
        bare.hears("started", 2)
        bare.spawn(1, b"sh", b"-c", b"sleep 1000 & sleep 1000", limits=None if asked else (0, 1))
        bare.hears("started", 1)
        if asked is not None:
            bare.ask(asked[0], 1, asked[1])
        bare.hears("fault", 0)
        bare.hears("gone", 1)
        assert not alive(bare.pids[1])
        assert process.poll() is None
        assert alive(bare.pids[2])
        bare.ask("stop", 2, (0.0, 5.0))
        bare.hears("gone", 2)
        assert bare.said.count(("fault", 0)) <= 3, "the same is not told again and again"


def test_a_child_that_cannot_be_started_for_a_bug_has_failed_and_others_start():
    bug = "sound = supervisor.fork_child\n"
    bug += "def fork(launch, *more):\n    assert launch[0] != [b'bad'], 'a bug'\n    return sound(launch, *more)\n"
    with bare_supervisor(bug + "supervisor.fork_child = fork") as (process, channel):
        bare = Bare(channel)
        bare.spawn(1, b"bad")
        bare.spawn(2)
        bare.hears("started", 2)
        assert bare.said == [("fault", 0), ("failed", 1), ("started", 2)]
        assert process.poll() is None


def test_limits_are_watched_although_one_child_cannot_be_looked_at():
    with bare_supervisor("break_for_first(LimitWatch, '_look_at', 0, -1)") as (process, channel):
        bare = Bare(channel)
        bare.spawn(1, limits=(0, 5))
        bare.spawn(2, b"sh", b"-c", b"sleep 1000 & sleep 1000", limits=(0, 1))
        bare.hears("fault", 0)
        bare.hears("gone", 2)
        assert ("over", 2) in bare.said
        assert process.poll() is None
        assert alive(bare.pids[1])
        assert bare.said.count(("fault", 0)) == 1
