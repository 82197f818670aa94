"""The gateway's hold on one supervisor process: starts it, talks to it, and cleans up after it if it dies."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from trunkline.runtime.control import Inbox, Outbox, close_all
from trunkline.runtime.own_process import put_back_for
from trunkline.runtime.processes import TAG, kill_run, make_tag

if TYPE_CHECKING:
    from trunkline.runtime.control import Message
    from trunkline.runtime.launch import Launch

_PROGRAM: Final = str(Path(__file__).with_name("supervisor.py"))
_END_LIMIT_S: Final = 10.0
_SWEEP_LIMIT_S: Final = 5.0
_GROUPS_LIMIT_S: Final = 1.0
# Nothing of our environment matters to it, except how its interpreter is loaded and whose child we are ourselves.
_ENVIRONMENT: Final = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", TAG)
LIVING: Final[set[int]] = set()
"""The supervisors that this process has, of all its gateways."""
EXIT_CODE_WHEN_LOST: Final = -9
"""A child's return code when nobody was left to see it end: the kernel killed it together with its supervisor."""


class StartFailure(NamedTuple):
    """How far a start came, and the system's error number there."""

    step: str
    number: int


class Limits(NamedTuple):
    """What a child may use together with everything it started; 0 where there is no bound."""

    memory_bytes: int = 0
    processes: int = 0


class Exceeded(NamedTuple):
    """Of what a child had more than its limits, how much that was, and how much it may have."""

    what: str
    used: int
    allowed: int

    def __str__(self) -> str:
        if self.what == "memory":
            return f"used {_mebibytes(self.used)} MB of memory, and `limits.memory_mb` is {_mebibytes(self.allowed)}"
        return f"had {self.used:,} processes, and `limits.processes` is {self.allowed:,}"


def _mebibytes(count: int) -> str:
    return f"{-(-count >> 20):,}"


class Held(NamedTuple):
    """A folder that the supervisor removes at the end: where it is, and which one it is."""

    path: bytes
    device: int
    inode: int


class Guarded(NamedTuple):
    """A program that is no child of the supervisor: what its environment has to hold, and who looks after it."""

    link: SupervisorLink
    id: int
    tag: str


class Ward:
    """What the supervisor has said about one child so far."""

    __slots__ = ("exceeded", "exited", "gone", "id", "pid", "started", "tag")

    def __init__(self, id: int, tag: str, loop: asyncio.AbstractEventLoop) -> None:  # noqa: A002 (it is the child's id)
        self.id = id
        self.tag = tag
        self.pid = 0
        self.exceeded: Exceeded | None = None
        self.started: asyncio.Future[StartFailure | None] = loop.create_future()
        self.exited: asyncio.Future[int] = loop.create_future()
        self.gone: asyncio.Future[None] = loop.create_future()
        """Its whole tree has ended, not only the program itself."""


class SupervisorLink:
    """One supervisor process and the children it holds. Raises `OSError` when it cannot be started."""

    def __init__(self, *, portable: bool, on_fault: Callable[[str], None]) -> None:
        self.run = secrets.token_hex(8)
        self.wards: dict[int, Ward] = {}
        self.lost = False
        self._portable = portable
        self._on_fault = on_fault
        self._next_id = 1
        self._loop = asyncio.get_running_loop()
        self._socket, self._process = _start(self.run, portable=portable)
        self._fd = self._socket.fileno()
        self._inbox = Inbox(self._socket)
        self._outbox = Outbox(self._socket)
        self._burial: asyncio.Task[None] | None = None
        self._loop.add_reader(self._fd, self._readable)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def buried(self) -> bool:
        return self._burial is not None and self._burial.done()

    def launch(self, program: Launch, descriptors: Sequence[int]) -> Ward:
        """Hand a new child over. The descriptors become the link's to close."""
        ward = Ward(self._next_id, make_tag(self.run, self._next_id), self._loop)
        self._next_id += 1
        self.wards[ward.id] = ward
        argv, environment, *rest = program
        self._send(("spawn", ward.id, (argv, environment | {TAG.encode(): ward.tag.encode()}, *rest)), descriptors)
        return ward

    def stop(self, ward: Ward, *, close_s: float, term_s: float) -> None:
        self._send(("stop", ward.id, (close_s, term_s)))

    def kill(self, ward: Ward) -> None:
        self._send(("kill", ward.id, None))

    def hold(self, folder: Held) -> None:
        """Have the supervisor remove this folder when the channel closes."""
        self._send(("hold", 0, tuple(folder)))

    def release(self, path: bytes) -> None:
        self._send(("release", 0, path))

    def guard(self, group: int) -> Guarded:
        """Have the supervisor kill, when the channel closes, all that carries the tag, though it is not below it.
        `group` is the process group that it shares with others."""
        guarded = Guarded(self, self._next_id, make_tag(self.run, self._next_id))
        self._next_id += 1
        self._send(("guard", guarded.id, group))
        return guarded

    def unguard(self, guarded: Guarded) -> None:
        self._send(("unguard", guarded.id, None))

    async def end(self) -> None:
        """Close the channel, upon which the supervisor kills what it has and ends. Returns when it has ended."""
        self.cut()
        if self._burial is not None:
            await asyncio.shield(self._burial)

    def cut(self) -> None:
        """Close the channel, by our will or because the supervisor died: its children are as good as dead."""
        if self.lost:
            return
        self.lost = True
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)
        self._outbox.close()
        self._inbox.close()
        self._socket.close()
        for ward in self.wards.values():
            _settle(ward.started, StartFailure("supervisor", 0))
            _settle(ward.exited, EXIT_CODE_WHEN_LOST)
        self._burial = self._loop.create_task(self._bury())

    def _send(self, message: Message, descriptors: Sequence[int] = ()) -> None:
        if self.lost:
            close_all(descriptors)
        else:
            self._outbox.put(message, descriptors)
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
        except (EOFError, ValueError) as error:  # ValueError: its last words came garbled
            self._supervisor_died(str(error))
            return
        for verb, child, value, _ in messages:
            if verb == "fault":
                self._on_fault(value)
            elif child in self.wards:
                self._hear(verb, self.wards[child], value)

    def _hear(self, verb: str, ward: Ward, value: Any) -> None:
        if verb == "started":
            ward.pid = value
            _settle(ward.started, None)
        elif verb == "over":
            ward.exceeded = Exceeded(*value)
        elif verb == "exited":
            _settle(ward.exited, value)
        elif verb == "failed":
            _settle(ward.started, StartFailure(*value))
            self._forget(ward)
        elif verb == "gone":
            self._forget(ward)

    def _forget(self, ward: Ward) -> None:
        self.wards.pop(ward.id, None)
        _settle(ward.exited, EXIT_CODE_WHEN_LOST)
        _settle(ward.gone, None)

    def _supervisor_died(self, how: str) -> None:
        self._on_fault(f"the supervisor of child processes died, and {len(self.wards)} with it: {how}")
        self.cut()

    async def _bury(self) -> None:
        leaders = [ward.pid for ward in self.wards.values() if ward.pid]
        await asyncio.to_thread(_bury, self._process, self.run, leaders, self._portable)
        for ward in list(self.wards.values()):
            self._forget(ward)


T = TypeVar("T")


def _settle(future: asyncio.Future[T], value: T) -> None:
    if not future.done():
        future.set_result(value)


def _start(run: str, *, portable: bool) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    ours, theirs = socket.socketpair()
    try:
        ours.setblocking(False)
        arguments = [_PROGRAM, str(theirs.fileno()), run, *(["portable"] if portable else [])]
        process = subprocess.Popen(
            [sys.executable, *_interpreter_flags(), *arguments],
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
    LIVING.add(process.pid)
    put_back_for(process.pid)
    return ours, process


def _interpreter_flags() -> list[str]:
    """Isolated and without site-packages: it needs nothing but the standard library and our own files."""
    return ["-I", "-S", "-B"] if sys.dont_write_bytecode else ["-I", "-S"]


def _bury(process: subprocess.Popen[bytes], run: str, leaders: Sequence[int], portable: bool) -> None:
    """Wait for the supervisor's end, and do its last duty if it did not come to it. Blocks: for a thread."""
    try:
        status = process.wait(_END_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        status = process.wait()
    LIVING.discard(process.pid)
    if status != 0:
        limit_s = _GROUPS_LIMIT_S if portable else _SWEEP_LIMIT_S
        kill_run(run, leaders, portable=portable, limit_s=limit_s)
