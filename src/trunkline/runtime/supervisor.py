"""The process that owns every child process of one gateway. A program of its own, started by `children.py`.

It exists because only a parent that outlives the gateway can promise that nothing else does: when the control channel
closes, for whatever reason, it kills everything below it, does what else it was told to do then, and ends. It is one
thread around one `poll`, and imports as little as it can, because it runs beside every gateway.

    supervisor.py CONTROL_FD RUN [portable]
"""

from __future__ import annotations

import errno
import marshal
import os
import select
import signal
import socket
import sys
import time

if __name__ == "__main__":  # started by its path, without site-packages
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from trunkline.runtime.control import Inbox, Outbox, close_all
from trunkline.runtime.launch import fork_child
from trunkline.runtime.process_trees import NEVER, Descendants, Groups, Tree
from trunkline.runtime.processes import Prctl, kill_run, signal_group
from trunkline.runtime.resource_limits import Cgroups, LimitWatch
from trunkline.runtime.tree_removal import is_folder_of_ours, remove_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from trunkline.runtime.control import Received
    from trunkline.runtime.launch import Launch
    from trunkline.runtime.resource_limits import Exceeded

LINGER_S = 0.5  # what is left of a tree after its leader ended: SIGTERM, and this long until SIGKILL
LOOK_PAUSE_S = 0.05  # meanwhile, between two looks at what is left
SWEEP_PAUSE_S = 0.01  # between two rounds of SIGKILL
END_LIMIT_S = 30.0
GUARDED_LIMIT_S = 5.0
FAULT_AGAIN_S = 60.0  # one and the same fault is told once in so long
FAULTS_KNOWN = 100


class Supervisor:
    def __init__(self, control: socket.socket, run: str, *, portable: bool) -> None:
        self._control = control
        self._run = run
        self._inbox = Inbox(control)
        self._outbox = Outbox(control)
        self._trees: dict[int, Tree] = {}
        self._leaders: dict[int, Tree] = {}
        self._folders: dict[bytes, tuple[int, int]] = {}
        self._guarded: dict[int, int] = {}
        self._poll = select.poll()
        self._handlers: dict[int, Callable[[], None]] = {}
        self._prctl = None if portable else Prctl()
        self._census = Groups(self._trees) if portable else Descendants(run, self._trees)
        self._cgroups = Cgroups(run, self._tell_notice)
        self._limits = LimitWatch(
            self._census,
            self._cgroups,
            self._trees,
            lambda tree, exceeded: self._tend(tree, self._end_over_limits, exceeded),
            self._tell_notice,
        )
        self._faults: dict[str, float] = {}  # those told, and when
        self._ended = False

    # --- the loop

    def run(self) -> None:
        if self._prctl is not None:
            self._prctl.hide()  # all that children are started with passes through here
            self._prctl.become_subreaper()
            self._prctl.set_name()
        self._watch(self._control.fileno(), self._read_requests)
        self._watch_deaths()
        self._watch_gateway()
        while not self._ended:
            self._turn()

    def _turn(self) -> None:
        for fd, _ in self._poll.poll(self._timeout_ms()):
            handler = self._handlers.get(fd)
            if handler is not None:
                handler()
        now = time.monotonic()
        for tree in list(self._trees.values()):
            if tree.due <= now:
                self._tend(tree, self._advance, now)
        if self._limits.due <= now:
            try:
                self._limits.look()
            except Exception:
                self._tell_fault()

    def _tend(self, tree: Tree, step: Callable[..., None], *more: Any) -> None:
        """Whatever goes wrong with one child is told, and costs it its life, and no other anything."""
        try:
            step(tree, *more)
        except Exception:
            self._tell_fault()
            self._abandon(tree, time.monotonic())

    def _abandon(self, tree: Tree, now: float) -> None:
        if tree.id not in self._trees:
            return
        if tree.leader_alive:
            signal_group(tree.leader, signal.SIGKILL)
        if tree.phase != "killing":
            tree.phase, tree.give_up_at = "killing", now + self._census.kill_limit_s
        elif now >= tree.give_up_at:
            self._gone(tree)
        tree.due = now + LOOK_PAUSE_S

    def _tell_fault(self) -> None:
        """What is being handled is a bug of ours: it goes to the gateway's log. This program writes nowhere else."""
        fault, now = _fault_text(), time.monotonic()
        if now - self._faults.get(fault, -FAULT_AGAIN_S) >= FAULT_AGAIN_S:
            if len(self._faults) >= FAULTS_KNOWN:
                self._faults.clear()
            self._faults[fault] = now
            self._tell("fault", 0, fault)

    def _timeout_ms(self) -> float | None:
        due = min((tree.due for tree in self._trees.values()), default=NEVER)
        due = min(due, self._limits.due)
        return None if due == NEVER else max(0.0, (due - time.monotonic()) * 1000 + 1)

    def _watch(self, fd: int, handler: Callable[[], None]) -> None:
        self._handlers[fd] = handler
        self._poll.register(fd, select.POLLIN)

    def _watch_deaths(self) -> None:
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _only_wake)

        def woken() -> None:
            try:
                os.read(reader, 4096)
            except BlockingIOError:
                return
            self._reap()

        self._watch(reader, woken)

    def _watch_gateway(self) -> None:
        """Its death closes the control channel, unless somebody forked it and holds a copy. So look at it directly."""
        if self._prctl is None:
            return
        try:
            self._watch(os.pidfd_open(os.getppid()), self._gateway_ended)
        except (OSError, AttributeError):
            return  # an old kernel or C library: the channel has to do

    def _gateway_ended(self) -> None:
        self._ended = True

    # --- the channel

    def _read_requests(self) -> None:
        try:
            requests = self._inbox.read()
        except EOFError:
            self._ended = True
            return
        if self._inbox.ended:  # what a dead gateway asked for last is not begun any more
            self._ended = True
            self._note_last_duties(requests)
            return
        for verb, child, value, descriptors in requests:
            tree = self._trees.get(child)
            if verb == "spawn":
                self._spawn(child, value, descriptors)
            elif verb == "stop" and tree is not None:
                self._tend(tree, self._stop, *value)
            elif verb == "kill" and tree is not None:
                self._tend(tree, self._start_killing, time.monotonic())
        self._note_last_duties(requests)
        self._flush()

    def _tell(self, verb: str, child: int, value: Any) -> None:
        self._outbox.put((verb, child, value))
        self._flush()

    def _tell_notice(self, what: str) -> None:
        self._tell("fault", 0, what)

    def _flush(self) -> None:
        try:
            done = self._outbox.flush()
        except OSError:
            self._ended = True
            return
        self._poll.modify(self._control.fileno(), select.POLLIN if done else select.POLLIN | select.POLLOUT)

    # --- starting

    def _spawn(self, child: int, launch: Launch, stdio: list[int]) -> None:
        doors: list[int] = []
        try:
            if launch[3] is not None:
                doors = self._cgroups.make(child, launch[3])
            if len(stdio) != 3:  # the kernel drops what this process has no room for
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            leader, exec_pipe = fork_child(launch, stdio, doors, self._census.mark(child), self._prctl)
        except Exception as error:
            number = error.errno if isinstance(error, OSError) else None
            if not isinstance(error, (OSError, MemoryError)):
                number = errno.EIO
                self._tell_fault()
            self._cgroups.remove(child)
            self._tell("failed", child, ("fork", number or errno.ENOMEM))
            return
        finally:
            close_all(stdio + doors)
        tree = Tree(child, leader, exec_pipe)
        self._trees[child] = self._leaders[leader] = tree
        self._watch(exec_pipe, lambda: self._tend(tree, self._exec_ended))
        if launch[3] is not None:
            self._limits.watch(child, launch[3])

    def _exec_ended(self, tree: Tree) -> None:
        """The pipe closes by a successful exec, and brings the reason of a failed one."""
        if tree.exec_pipe < 0:
            return
        try:
            report = os.read(tree.exec_pipe, 4096)
        except BlockingIOError:
            return
        self._poll.unregister(tree.exec_pipe)
        del self._handlers[tree.exec_pipe]
        os.close(tree.exec_pipe)
        tree.exec_pipe = -1
        if report:
            self._trees.pop(tree.id, None)
            self._leaders.pop(tree.leader, None)
            self._cgroups.remove(tree.id)
            self._tell("failed", tree.id, marshal.loads(report))
        else:
            self._cgroups.keep(tree)
            self._tell("started", tree.id, tree.leader)

    # --- ending

    def _reap(self) -> bool:
        """Take every dead child, ours and adopted; False when there is none left, dead or alive."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            tree = self._leaders.pop(pid, None)
            if tree is not None:
                tree.leader_alive = False
                if not self._ended:
                    self._tend(tree, self._leader_ended, os.waitstatus_to_exitcode(status))

    def _leader_ended(self, tree: Tree, code: int) -> None:
        self._exec_ended(tree)
        if tree.id not in self._trees:  # it never became what it should
            return
        exceeded = self._cgroups.exceeded(tree.id) if tree.phase == "running" else None
        if exceeded is not None:  # the kernel was faster than the next look
            self._tell("over", tree.id, exceeded)
        self._tell("exited", tree.id, code)
        now = time.monotonic()
        if exceeded is not None or tree.phase == "killing":
            self._start_killing(tree, now)
        elif self._census.signal(tree, signal.SIGTERM):
            tree.phase, tree.give_up_at, tree.due = "terminating", now + LINGER_S, now + LOOK_PAUSE_S
        else:
            self._gone(tree)

    def _stop(self, tree: Tree, close_s: float, term_s: float) -> None:
        """Its input is closed already: wait for that to work, then SIGTERM, then SIGKILL. Asked again: the sooner."""
        if tree.phase == "killing":
            return
        now = time.monotonic()
        if tree.phase == "terminating":
            tree.give_up_at = min(tree.give_up_at, now + term_s)
            tree.due = min(tree.due, tree.give_up_at)
            return
        self._census.signal(tree, 0)  # learn its sessions while parents can still tell
        tree.phase = "closing"
        tree.due = min(tree.due, now + close_s)
        tree.term_s = min(tree.term_s, term_s)

    def _end_over_limits(self, tree: Tree, exceeded: Exceeded) -> None:
        """At once, and its group first, in one step: it may be starting processes without end."""
        self._tell("over", tree.id, exceeded)
        signal_group(tree.leader, signal.SIGKILL)
        self._start_killing(tree, time.monotonic())

    def _advance(self, tree: Tree, now: float) -> None:
        if tree.phase == "closing":
            signal_group(tree.leader, signal.SIGTERM)
            tree.phase, tree.give_up_at, tree.due = "terminating", now + tree.term_s, now + tree.term_s
        elif tree.phase == "killing":
            self._sweep(tree, now)
        elif now >= tree.give_up_at:
            self._start_killing(tree, now)
        elif self._census.signal(tree, 0):
            tree.due = now + LOOK_PAUSE_S
        else:
            self._gone(tree)

    def _start_killing(self, tree: Tree, now: float) -> None:
        if tree.phase != "killing":
            tree.phase, tree.give_up_at = "killing", now + self._census.kill_limit_s
            self._cgroups.kill(tree.id)
        self._sweep(tree, now)

    def _sweep(self, tree: Tree, now: float) -> None:
        left = self._census.signal(tree, signal.SIGKILL) or tree.leader_alive
        if left and now < tree.give_up_at:
            tree.due = now + SWEEP_PAUSE_S
        else:
            self._gone(tree)

    def _gone(self, tree: Tree) -> None:
        del self._trees[tree.id]
        try:
            self._cgroups.remove(tree.id)
        finally:
            self._tell("gone", tree.id, None)

    def end(self) -> None:
        """Kill everything, and do not leave before the last of it is reaped."""
        self._ended = True
        deadline = time.monotonic() + END_LIMIT_S
        pause_s = 0.001
        self._census.kill_everything()
        while self._reap() and time.monotonic() < deadline:
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, 0.1)
            self._census.kill_everything()
        self._census.kill_everything()  # what is left of groups whose leader was reaped
        self._cgroups.end()

    # --- for a gateway that cannot do it itself any more

    def _note_last_duties(self, requests: list[Received]) -> None:
        for verb, child, value, _ in requests:
            if verb == "hold":
                folder, device, inode = value
                self._folders[folder] = (device, inode)
            elif verb == "release":
                self._folders.pop(value, None)
            elif verb == "guard":
                self._guarded[child] = value
            elif verb == "unguard":
                self._guarded.pop(child, None)

    def _read_last_words(self) -> None:
        """The gateway's death may have been seen before them."""
        try:
            self._note_last_duties(self._inbox.read())
        except EOFError:
            return

    def do_last_duties(self) -> None:
        """What the gateway would have done: end what it started in the terminal, and then, with nobody left who could
        write into them, remove the folders."""
        self._read_last_words()
        if self._guarded and self._prctl is not None:
            groups = frozenset(self._guarded.values())
            kill_run(self._run, (), portable=False, limit_s=GUARDED_LIMIT_S, shared=groups)
        for folder, (device, inode) in self._folders.items():
            if is_folder_of_ours(folder, device, inode):
                remove_tree(folder)


def _only_wake(number: int, frame: object) -> None:
    """A handler must exist for the signal to reach the wakeup pipe; the work is done there."""


def main(arguments: list[str]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    control = socket.socket(fileno=int(arguments[0]))
    control.set_inheritable(False)
    control.setblocking(False)
    supervisor = Supervisor(control, arguments[1], portable="portable" in arguments[2:])
    status = 0
    try:
        supervisor.run()
    except BaseException:
        status = 1
        _report_fault(control)
    finally:
        supervisor.end()
        if status == 0:  # after a fault of ours the gateway is still there to do it
            supervisor.do_last_duties()
        os._exit(status)


def _report_fault(control: socket.socket) -> None:
    """Its last words, where it cannot go on: with a channel whose messages make no sense, say."""
    outbox = Outbox(control)
    outbox.put(("fault", 0, _fault_text()))
    try:
        outbox.flush()
    except OSError:
        return  # nobody is left to read them


def _fault_text() -> str:
    import traceback  # hardly ever needed

    return traceback.format_exc()


if __name__ == "__main__":
    main(sys.argv[1:])
