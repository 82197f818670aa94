"""The process that owns every child process of one gateway; a program of its own, started by `supervisor_client.py`.

Only a parent that outlives the gateway can guarantee that nothing else does: when the control channel closes, for
whatever reason, the supervisor kills everything below it, performs its last duties, and exits. It is one thread around
one `poll`, and imports as little as possible, because it runs beside every gateway.

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

from trunkline.runtime.launch import fork_child
from trunkline.runtime.process_trees import NEVER, Descendants, ProcessGroups, ProcessTree
from trunkline.runtime.processes import Prctl, kill_run, signal_group
from trunkline.runtime.resource_limits import Cgroups, LimitWatch
from trunkline.runtime.supervisor_channel import Inbox, Outbox, close_all
from trunkline.runtime.tree_removal import is_folder_of_ours, remove_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from trunkline.runtime.launch import Launch
    from trunkline.runtime.resource_limits import Exceeded
    from trunkline.runtime.supervisor_channel import Received

LINGER_S = 0.5  # from SIGTERM to SIGKILL for what is left of a tree after its leader has ended
LOOK_PAUSE_S = 0.05  # between two checks of what is left
SWEEP_PAUSE_S = 0.01  # between two rounds of SIGKILL
END_LIMIT_S = 30.0
GUARDED_LIMIT_S = 5.0
FAULT_AGAIN_S = 60.0  # the same fault is reported at most once in this time
FAULTS_KNOWN = 100


class Supervisor:
    def __init__(self, control: socket.socket, run: str, *, portable: bool) -> None:
        self._control = control
        self._run = run
        self._inbox = Inbox(control)
        self._outbox = Outbox(control)
        self._trees: dict[int, ProcessTree] = {}
        self._leaders: dict[int, ProcessTree] = {}
        self._folders: dict[bytes, tuple[int, int]] = {}
        self._guarded: dict[int, int] = {}
        self._poll = select.poll()
        self._handlers: dict[int, Callable[[], None]] = {}
        self._prctl = None if portable else Prctl()
        self._processes = ProcessGroups(self._trees) if portable else Descendants(run, self._trees)
        self._cgroups = Cgroups(run, self._report)
        self._limits = LimitWatch(
            self._processes,
            self._cgroups,
            self._trees,
            lambda tree, exceeded: self._run_step(tree, self._end_over_limits, exceeded),
            self._report,
        )
        self._faults: dict[str, float] = {}  # when each was last reported
        self._ended = False

    # --- the loop

    def run(self) -> None:
        if self._prctl is not None:
            self._prctl.hide()  # the environments of all children pass through this process
            self._prctl.become_subreaper()
            self._prctl.set_name()
        self._watch(self._control.fileno(), self._read_requests)
        self._watch_deaths()
        self._watch_gateway()
        while not self._ended:
            self._turn()

    def _turn(self) -> None:
        due = min((tree.due for tree in self._trees.values()), default=NEVER)
        due = min(due, self._limits.due)
        timeout_ms = None if due == NEVER else max(0.0, (due - time.monotonic()) * 1000 + 1)
        for fd, _ in self._poll.poll(timeout_ms):
            handler = self._handlers.get(fd)
            if handler is not None:
                handler()
        now = time.monotonic()
        for tree in list(self._trees.values()):
            if tree.due <= now:
                self._run_step(tree, self._advance, now)
        if self._limits.due <= now:
            try:
                self._limits.look()
            except Exception:
                self._report_exception()

    def _run_step(self, tree: ProcessTree, step: Callable[..., None], *more: Any) -> None:
        """Run one step for one child. An exception is reported and that child killed; the others are unaffected."""
        try:
            step(tree, *more)
        except Exception:
            self._report_exception()
            self._abandon(tree, time.monotonic())

    def _abandon(self, tree: ProcessTree, now: float) -> None:
        if tree.id not in self._trees:
            return
        if tree.leader_alive:
            signal_group(tree.leader, signal.SIGKILL)
        if tree.phase != "killing":
            tree.phase, tree.give_up_at = "killing", now + self._processes.kill_limit_s
        elif now >= tree.give_up_at:
            self._remove(tree)
        tree.due = now + LOOK_PAUSE_S

    def _report_exception(self) -> None:
        """Send the current exception, a bug of ours, to the gateway's log. The supervisor writes nowhere else."""
        fault, now = _fault_text(), time.monotonic()
        if now - self._faults.get(fault, -FAULT_AGAIN_S) >= FAULT_AGAIN_S:
            if len(self._faults) >= FAULTS_KNOWN:
                self._faults.clear()
            self._faults[fault] = now
            self._send("fault", 0, fault)

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
        """Watch the gateway process itself: if a fork of it holds the channel, its death does not close the channel."""
        if self._prctl is None:
            return
        try:
            self._watch(os.pidfd_open(os.getppid()), self._on_gateway_ended)
        except (OSError, AttributeError):
            return  # an old kernel or C library: the channel has to suffice

    def _on_gateway_ended(self) -> None:
        self._ended = True

    # --- the channel

    def _read_requests(self) -> None:
        try:
            requests = self._inbox.read()
        except EOFError:
            self._ended = True
            return
        if self._inbox.ended:  # the gateway is dead: start nothing that it requested last
            self._ended = True
            self._note_last_duties(requests)
            return
        for verb, child, value, descriptors in requests:
            tree = self._trees.get(child)
            if verb == "spawn":
                self._spawn(child, value, descriptors)
            elif verb == "stop" and tree is not None:
                self._run_step(tree, self._stop, *value)
            elif verb == "kill" and tree is not None:
                self._run_step(tree, self._start_killing, time.monotonic())
        self._note_last_duties(requests)
        self._flush()

    def _send(self, verb: str, child: int, value: Any) -> None:
        self._outbox.put((verb, child, value))
        self._flush()

    def _report(self, what: str) -> None:
        self._send("fault", 0, what)

    def _flush(self) -> None:
        try:
            done = self._outbox.flush()
        except OSError:
            self._ended = True
            return
        self._poll.modify(self._control.fileno(), select.POLLIN if done else select.POLLIN | select.POLLOUT)

    # --- starting

    def _spawn(self, child: int, launch: Launch, stdio: list[int]) -> None:
        cgroup_fds: list[int] = []
        try:
            if launch[3] is not None:
                cgroup_fds = self._cgroups.make(child, launch[3])
            if len(stdio) != 3:  # the kernel drops descriptors beyond the limit of this process
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            leader, exec_pipe = fork_child(launch, stdio, cgroup_fds, self._processes.mark(child), self._prctl)
        except Exception as error:
            number = error.errno if isinstance(error, OSError) else None
            if not isinstance(error, (OSError, MemoryError)):
                number = errno.EIO
                self._report_exception()
            self._cgroups.remove(child)
            self._send("failed", child, ("fork", number or errno.ENOMEM))
            return
        finally:
            close_all(stdio + cgroup_fds)
        tree = ProcessTree(child, leader, exec_pipe)
        self._trees[child] = self._leaders[leader] = tree
        self._watch(exec_pipe, lambda: self._run_step(tree, self._exec_ended))
        if launch[3] is not None:
            self._limits.watch(child, launch[3])

    def _exec_ended(self, tree: ProcessTree) -> None:
        """Read the exec pipe: closed by a successful exec, or carrying the reason of a failed one."""
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
            self._send("failed", tree.id, marshal.loads(report))
        else:
            self._cgroups.keep(tree)
            self._send("started", tree.id, tree.leader)

    # --- ending

    def _reap(self) -> bool:
        """Reap every dead child, our own and adopted; False when no child is left, dead or alive."""
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
                    self._run_step(tree, self._leader_ended, os.waitstatus_to_exitcode(status))

    def _leader_ended(self, tree: ProcessTree, code: int) -> None:
        self._exec_ended(tree)
        if tree.id not in self._trees:  # its exec failed
            return
        exceeded = self._cgroups.exceeded(tree.id) if tree.phase == "running" else None
        if exceeded is not None:  # the kernel was faster than the next check
            self._send("over", tree.id, exceeded)
        self._send("exited", tree.id, code)
        now = time.monotonic()
        if exceeded is not None or tree.phase == "killing":
            self._start_killing(tree, now)
        elif self._processes.signal(tree, signal.SIGTERM):
            tree.phase, tree.give_up_at, tree.due = "terminating", now + LINGER_S, now + LOOK_PAUSE_S
        else:
            self._remove(tree)

    def _stop(self, tree: ProcessTree, close_s: float, term_s: float) -> None:
        """Wait for a child whose stdin is closed to exit, then SIGTERM, then SIGKILL. A repeated request can only
        shorten the waits."""
        if tree.phase == "killing":
            return
        now = time.monotonic()
        if tree.phase == "terminating":
            tree.give_up_at = min(tree.give_up_at, now + term_s)
            tree.due = min(tree.due, tree.give_up_at)
            return
        self._processes.signal(tree, 0)  # record its sessions while the parents are still there
        tree.phase = "closing"
        tree.due = min(tree.due, now + close_s)
        tree.term_s = min(tree.term_s, term_s)

    def _end_over_limits(self, tree: ProcessTree, exceeded: Exceeded) -> None:
        """Kill a child over its limits at once, its group first: it may be starting processes without end."""
        self._send("over", tree.id, exceeded)
        signal_group(tree.leader, signal.SIGKILL)
        self._start_killing(tree, time.monotonic())

    def _advance(self, tree: ProcessTree, now: float) -> None:
        if tree.phase == "closing":
            signal_group(tree.leader, signal.SIGTERM)
            tree.phase, tree.give_up_at, tree.due = "terminating", now + tree.term_s, now + tree.term_s
        elif tree.phase == "killing":
            self._sweep(tree, now)
        elif now >= tree.give_up_at:
            self._start_killing(tree, now)
        elif self._processes.signal(tree, 0):
            tree.due = now + LOOK_PAUSE_S
        else:
            self._remove(tree)

    def _start_killing(self, tree: ProcessTree, now: float) -> None:
        if tree.phase != "killing":
            tree.phase, tree.give_up_at = "killing", now + self._processes.kill_limit_s
            self._cgroups.kill(tree.id)
        self._sweep(tree, now)

    def _sweep(self, tree: ProcessTree, now: float) -> None:
        left = self._processes.signal(tree, signal.SIGKILL) or tree.leader_alive
        if left and now < tree.give_up_at:
            tree.due = now + SWEEP_PAUSE_S
        else:
            self._remove(tree)

    def _remove(self, tree: ProcessTree) -> None:
        del self._trees[tree.id]
        try:
            self._cgroups.remove(tree.id)
        finally:
            self._send("gone", tree.id, None)

    def end(self) -> None:
        """Kill everything and wait until the last process is reaped."""
        self._ended = True
        deadline = time.monotonic() + END_LIMIT_S
        pause_s = 0.001
        self._processes.kill_everything()
        while self._reap() and time.monotonic() < deadline:
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, 0.1)
            self._processes.kill_everything()
        self._processes.kill_everything()  # groups whose leader has been reaped may have members left
        self._cgroups.end()

    # --- last duties, for a gateway that is dead

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

    def do_last_duties(self) -> None:
        """Kill what the gateway ran in the terminal, then remove its folders, which nobody can write to any more."""
        try:  # noqa: SIM105 (importing contextlib takes longer)
            self._note_last_duties(self._inbox.read())  # its death may have been noticed before its last messages
        except EOFError:
            pass
        if self._guarded and self._prctl is not None:
            groups = frozenset(self._guarded.values())
            kill_run(self._run, (), portable=False, limit_s=GUARDED_LIMIT_S, shared=groups)
        for folder, (device, inode) in self._folders.items():
            if is_folder_of_ours(folder, device, inode):
                remove_tree(folder)


def _only_wake(number: int, frame: object) -> None:
    """Do nothing: SIGCHLD reaches the wakeup pipe only if it has a handler."""


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
        if status == 0:  # otherwise the gateway is still there to do it
            supervisor.do_last_duties()
        os._exit(status)


def _report_fault(control: socket.socket) -> None:
    """Report the exception that ends the supervisor, such as messages that cannot be decoded."""
    outbox = Outbox(control)
    outbox.put(("fault", 0, _fault_text()))
    try:
        outbox.flush()
    except OSError:
        return  # the gateway is gone


def _fault_text() -> str:
    import traceback  # rarely needed, and not cheap

    return traceback.format_exc()


if __name__ == "__main__":
    main(sys.argv[1:])
