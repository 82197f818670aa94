"""Finds what a test left behind: processes, open files, threads, and changed global state."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time

from tests.support.processes import LASTING, Process, below, descendants, open_files, reap
from tests.support.waiting import at_most

PATIENCE_S = at_most(5)
_SIGNALS = sorted(number for number in signal.valid_signals() if isinstance(number, signal.Signals))
_OTHERS = ("PYTEST_CURRENT_TEST", "GRPC_", "OPENBLAS_")
"""Variables that pytest sets, and that libraries are given once in a process, when they are first needed."""
_TOLD: set[str] = set()
"""What some test was blamed for already: its module is not blamed for it once more."""


class LeftBehind(AssertionError):
    """What a test started did not end with it. A law: it need happen only once to be a finding."""


class Census:
    """What this process has at one moment."""

    def __init__(self) -> None:
        ours = descendants(os.getpid())
        for orphan in (process for process in ours if is_own_zombie(process)):
            reap(orphan.pid)
        spared = {process.pid for process in below(ours, LASTING)}
        counted = [process for process in ours if not is_own_zombie(process) and process.pid not in spared]
        self.processes = {process.pid: process for process in counted}
        self.files = open_files()
        threads = [thread for thread in threading.enumerate() if not thread.name.startswith("pytest_timeout")]
        self.threads = {thread.ident: thread.name for thread in threads}
        self.settings: dict[str, object] = {"working folder": os.getcwd()}
        self.settings |= {f"handler of {number.name}": signal.getsignal(number) for number in _SIGNALS}
        self.settings |= {
            f"variable {name}": value for name, value in os.environ.items() if not name.startswith(_OTHERS)
        }

    def beyond(self, before: Census) -> list[str]:
        processes = [repr(process) for pid, process in self.processes.items() if pid not in before.processes]
        files = [f"fd {fd} → {target}" for fd, target in self.files.items() if before.files.get(fd) != target]
        threads = [f"thread {name}" for ident, name in self.threads.items() if ident not in before.threads]
        now, then = self.settings, before.settings
        changed = [f"{name}: {now.get(name)}" for name in now | then if now.get(name) != then.get(name)]
        return [left for left in processes + files + threads + changed if left not in _TOLD]

    def compare_with_now(self) -> None:
        """Raises LeftBehind where there is more now, and stays so; what is left is ended, for the next test's sake."""
        deadline = time.monotonic() + PATIENCE_S
        while (left := (now := Census()).beyond(self)) and time.monotonic() < deadline:
            time.sleep(0.05)
        now.kill_beyond(self)
        if left:
            _TOLD.update(left)
            raise LeftBehind(f"left behind after {PATIENCE_S:g} s: {left}")

    def kill_beyond(self, before: Census) -> None:
        """The next test starts clean, whatever this one did."""
        for pid in self.processes.keys() - before.processes.keys():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def is_own_zombie(process: Process) -> bool:
    """Orphans that ended after they were handed to us; a zombie below a live gateway is that gateway's fault."""
    return process.zombie and process.parent == os.getpid()
