"""The gateway's client of one supervisor process: starts it, talks to it, and cleans up after it if it dies."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from trunkline.runtime.deadlines import settle
from trunkline.runtime.process_setup import restore_open_file_limit
from trunkline.runtime.processes import TAG, kill_run, make_tag
from trunkline.runtime.supervisor_channel import Inbox, Outbox, close_all

if TYPE_CHECKING:
    from trunkline.runtime.launch import Launch

_PROGRAM: Final = str(Path(__file__).with_name("supervisor.py"))
_END_LIMIT_S: Final = 10.0
_KILL_LIMIT_S: Final = 12.0  # the supervisor gives up on a process after ten
_SWEEP_LIMIT_S: Final = 5.0
_GROUPS_LIMIT_S: Final = 1.0
# The supervisor needs nothing of our environment but what loads its interpreter and an outer gateway's tag.
_ENVIRONMENT: Final = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", TAG)
SUPERVISOR_PIDS: Final[set[int]] = set()
"""The pids of all supervisors that this process has started."""
EXIT_CODE_WHEN_LOST: Final = -9
"""The return code of a child whose end nobody saw: the kernel killed it together with its supervisor."""


class StartFailure(NamedTuple):
    """The step at which a start failed, and the system's error number."""

    step: str
    number: int


class Limits(NamedTuple):
    """What a child may use together with everything it started; 0 for no limit."""

    memory_bytes: int = 0
    processes: int = 0


class Exceeded(NamedTuple):
    """The limit that a child exceeded, its usage, and the limit's value."""

    what: str
    used: int
    allowed: int

    def __str__(self) -> str:
        if self.what == "memory":
            used, allowed = -(-self.used >> 20), -(-self.allowed >> 20)  # rounded up
            return f"used {used:,} MB of memory, and `limits.memory_mb` is {allowed:,}"
        return f"had {self.used:,} processes, and `limits.processes` is {self.allowed:,}"


class CleanupFolder(NamedTuple):
    """A folder that the supervisor removes at the end, identified by device and inode."""

    path: bytes
    device: int
    inode: int


class GuardedProgram(NamedTuple):
    """A program that is not the supervisor's child, but killed by it if the gateway dies. Its environment must have
    `tag` as TAG."""

    client: SupervisorClient
    id: int
    tag: str


class Child:
    """One child process: what the supervisor reported about it, and our ends of its pipes, which the caller closes."""

    __slots__ = ("_client", "exceeded", "exited", "gone", "id", "pid", "started", "stderr", "stdin", "stdout", "tag")

    def __init__(self, client: SupervisorClient, id: int, pipes: Sequence[int]) -> None:  # noqa: A002 (the child's id)
        loop = asyncio.get_running_loop()
        self._client = client
        self.id = id
        self.tag = make_tag(client.run, id)
        self.pid = 0
        self.stdin, self.stdout, self.stderr = pipes
        self.exceeded: Exceeded | None = None
        """The limit for which it was ended, if any."""
        self.started: asyncio.Future[StartFailure | None] = loop.create_future()
        self.exited: asyncio.Future[int] = loop.create_future()
        """The return code, negative for a signal, when the program has ended; what it started may still run."""
        self.gone: asyncio.Future[None] = loop.create_future()
        """Done when everything that it started has ended too."""

    def others(self) -> dict[str, int]:
        """The pids of its supervisor's other children by tag, including those that are starting or ending."""
        return {child.tag: child.pid for child in self._client.children.values() if child is not self}

    @property
    def lost(self) -> bool:
        """Whether its supervisor died first, so that it is unknown how it ended."""
        return self._client.lost

    async def stop(self, *, grace_s: float = 2.0) -> int:
        """End it and everything it started; its stdin should be closed already. Returns its return code.

        It gets `grace_s` to exit by itself, the same time after SIGTERM, then SIGKILL. This goes on if the wait is
        cancelled.
        """
        self._client.send("stop", self.id, (grace_s, grace_s))
        await asyncio.wait([self.gone], timeout=2 * grace_s + _KILL_LIMIT_S)
        return self.exited.result() if self.exited.done() else EXIT_CODE_WHEN_LOST

    def terminate(self, *, term_s: float) -> None:
        """Send SIGTERM now and SIGKILL after `term_s`, to it and everything it started. Does not wait."""
        self._client.send("stop", self.id, (0.0, term_s))

    def kill(self) -> None:
        """Send SIGKILL to it and everything it started."""
        self._client.send("kill", self.id, None)


class SupervisorClient:
    """One supervisor process and its children. Raises `OSError` when it cannot be started."""

    def __init__(self, *, portable: bool, on_fault: Callable[[str], None]) -> None:
        self.run = secrets.token_hex(8)
        self.children: dict[int, Child] = {}
        self.lost = False
        self._portable = portable
        self._on_fault = on_fault
        self._next_id = 1
        self._loop = asyncio.get_running_loop()
        self._socket, self._process = _start(self.run, portable=portable)
        self._fd = self._socket.fileno()
        self._inbox = Inbox(self._socket)
        self._outbox = Outbox(self._socket)
        self._cleanup: asyncio.Task[None] | None = None
        self._loop.add_reader(self._fd, self._readable)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> bool:
        return self._cleanup is not None and self._cleanup.done()

    def launch(self, program: Launch, descriptors: Sequence[int], pipes: Sequence[int]) -> Child:
        """Start a new child with these descriptors, which the client closes, and our ends of the pipes."""
        child = Child(self, self._next_id, pipes)
        self._next_id += 1
        self.children[child.id] = child
        argv, environment, *rest = program
        self.send("spawn", child.id, (argv, environment | {TAG.encode(): child.tag.encode()}, *rest), descriptors)
        return child

    def hold(self, folder: CleanupFolder) -> None:
        """Have the supervisor remove this folder when the channel closes."""
        self.send("hold", 0, tuple(folder))

    def release(self, path: bytes) -> None:
        self.send("release", 0, path)

    def guard(self, group: int) -> GuardedProgram:
        """Have the supervisor kill every process with the returned tag when the channel closes. `group` is the process
        group that they share with others."""
        guarded = GuardedProgram(self, self._next_id, make_tag(self.run, self._next_id))
        self._next_id += 1
        self.send("guard", guarded.id, group)
        return guarded

    def unguard(self, guarded: GuardedProgram) -> None:
        self.send("unguard", guarded.id, None)

    async def end(self) -> None:
        """Close the channel, so that the supervisor kills its children and exits; returns when it has."""
        self.cut()
        if self._cleanup is not None:
            await asyncio.shield(self._cleanup)

    def cut(self) -> None:
        """Close the channel, to end the supervisor or because it died: its children count as dead from now on."""
        if self.lost:
            return
        self.lost = True
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)
        self._outbox.close()
        self._inbox.close()
        self._socket.close()
        for child in self.children.values():
            settle(child.started, StartFailure("supervisor", 0))
            settle(child.exited, EXIT_CODE_WHEN_LOST)
        self._cleanup = self._loop.create_task(self._clean_up())

    def send(self, verb: str, child: int, value: Any, descriptors: Sequence[int] = ()) -> None:
        if self.lost:
            close_all(descriptors)
        else:
            self._outbox.put((verb, child, value), descriptors)
            self._flush()

    def _flush(self) -> None:
        try:
            done = self._outbox.flush()
        except OSError as error:
            self._supervisor_died(str(error))
            return
        if done:
            self._loop.remove_writer(self._fd)
        else:
            self._loop.add_writer(self._fd, self._flush)

    def _readable(self) -> None:
        try:
            messages = self._inbox.read()
        except (EOFError, ValueError) as error:  # ValueError: a message that cannot be decoded
            self._supervisor_died(str(error))
            return
        for verb, child_id, value, _ in messages:
            if verb == "fault":
                self._on_fault(value)
            elif child_id in self.children:
                self._handle_event(verb, self.children[child_id], value)

    def _handle_event(self, verb: str, child: Child, value: Any) -> None:
        if verb == "started":
            child.pid = value
            settle(child.started, None)
        elif verb == "over":
            child.exceeded = Exceeded(*value)
        elif verb == "exited":
            settle(child.exited, value)
        elif verb == "failed":
            settle(child.started, StartFailure(*value))
            self._forget(child)
        elif verb == "gone":
            self._forget(child)

    def _forget(self, child: Child) -> None:
        self.children.pop(child.id, None)
        settle(child.exited, EXIT_CODE_WHEN_LOST)
        settle(child.gone, None)

    def _supervisor_died(self, how: str) -> None:
        self._on_fault(f"the supervisor of child processes died, and {len(self.children)} of them with it: {how}")
        self.cut()

    async def _clean_up(self) -> None:
        leaders = [child.pid for child in self.children.values() if child.pid]
        await asyncio.to_thread(_clean_up, self._process, self.run, leaders, self._portable)
        for child in list(self.children.values()):
            self._forget(child)


def _start(run: str, *, portable: bool) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    ours, theirs = socket.socketpair()
    try:
        ours.setblocking(False)
        # Isolated and without site-packages: it needs nothing but the standard library and our own files.
        flags = ["-I", "-S", "-B"] if sys.dont_write_bytecode else ["-I", "-S"]
        arguments = [_PROGRAM, str(theirs.fileno()), run, *(["portable"] if portable else [])]
        process = subprocess.Popen(
            [sys.executable, *flags, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,  # a terminal's Ctrl-C is for the gateway
            env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
        )
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    SUPERVISOR_PIDS.add(process.pid)
    restore_open_file_limit(process.pid)
    return ours, process


def _clean_up(process: subprocess.Popen[bytes], run: str, leaders: Sequence[int], portable: bool) -> None:
    """Wait for the supervisor to exit, and kill what it left behind if it failed. Blocks: runs in a thread."""
    try:
        status = process.wait(_END_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        status = process.wait()
    SUPERVISOR_PIDS.discard(process.pid)
    if status != 0:
        limit_s = _GROUPS_LIMIT_S if portable else _SWEEP_LIMIT_S
        kill_run(run, leaders, portable=portable, limit_s=limit_s)
