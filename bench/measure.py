"""The order of a run: start every peer, then go round all of them again and again, then end everything.

Peers stand side by side in time: each repetition visits every cell, and within a cell every peer, beginning with
another one each time. What disturbs the machine for a minute then disturbs all of them.
"""

from __future__ import annotations

import shutil
import signal
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from bench import machine
from bench.peers import Peer
from bench.programs import BUILD, Programs
from bench.record import Record, Window
from bench.running import Pace, Running
from bench.search import measure_searches
from bench.workloads import QUICK, Cell


@dataclass(frozen=True)
class Plan:
    peers: tuple[Peer, ...]
    pace: Pace
    repetitions: int
    starts: int  # at most this many starts of each peer are timed
    quiet_budget_s: float
    sessions: int = 1
    quick: bool = False

    def cells_of(self, peer: Peer) -> list[Cell]:
        return [cell for cell in peer.cells if not self.quick or str(cell) in QUICK]


class Run:
    def __init__(self, plan: Plan, programs: Programs, record: Record) -> None:
        self.plan, self.programs, self.record = plan, programs, record
        self.running: list[Running] = []
        self.quiet = machine.Quiet(plan.quiet_budget_s)

    def run(self) -> None:
        """Fills the record. Whatever happens, nothing that was started is left running."""
        folder = BUILD / "run"
        shutil.rmtree(folder, ignore_errors=True)
        machine.adopt_orphans()
        try:
            for peer in self.plan.peers:
                self._start(peer, folder)
            for repetition in range(self.plan.repetitions):
                self._round(repetition)
            self._search()
        finally:
            self._end()

    def _search(self) -> None:
        peer = next((peer for peer in self.plan.peers if peer.behind == "builtin"), None)
        if peer is not None:
            self.quiet.wait()
            self.record.searches = measure_searches(peer, self.programs)

    def _end(self) -> None:
        # a second Ctrl+C must not leave half of them behind; ending takes seconds at most
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        for started in self.running:
            started.ask_to_end()
        for started in self.running:
            started.stop()
        machine.end_descendants()
        signal.signal(signal.SIGINT, before)

    def _start(self, peer: Peer, folder: Path) -> None:
        """Starts it as often as its start is timed; the last one stays."""
        times = min(peer.starts, self.plan.starts)
        for attempt in range(times):
            started = self._start_once(peer, folder / f"{peer.name.replace(':', '_')}-{attempt}")
            if started is None:
                return
            if attempt < times - 1:
                started.stop()
                self.running.remove(started)
            else:
                started.settle()
                self.record.idle_rss_mb[peer.name] = round(started.idle_rss_mb, 1)
                self.record.processes[peer.name] = len(started.pids())
        first_ms, idle_mb = 1000 * (self.record.start_s(peer.name) or 0), self.record.idle_rss_mb[peer.name]
        print(f"{peer.name}: first answer after {first_ms:.0f} ms, {idle_mb:.0f} MB", flush=True)

    def _start_once(self, peer: Peer, folder: Path) -> Running | None:
        """If it cannot be started, the report says so and the rest goes on."""
        self.quiet.wait()
        disturbance = machine.Disturbance()
        try:
            started = Running(peer, self.programs, folder)
        except Exception as failure:
            self.record.failures[peer.name] = f"{failure}" or repr(failure)
            print(f"{peer.name}: did not start: {failure}", flush=True)
            return None
        self.running.append(started)
        times = {**asdict(started.start), "others_cores": round(disturbance.cores(), 2)}
        self.record.starts.setdefault(peer.name, []).append(times)
        return started

    def _round(self, repetition: int) -> None:
        plan = self.plan
        cells = dict.fromkeys(cell for started in self.running for cell in plan.cells_of(started.peer))
        for cell in cells:
            visited = [started for started in self.running if cell in plan.cells_of(started.peer)]
            first = repetition % len(visited)
            for started in visited[first:] + visited[:first]:
                if f"{started.peer.name} {cell}" not in self.record.failures:
                    self.quiet.wait()
                    self._window(started, cell, repetition)

    def _window(self, started: Running, cell: Cell, repetition: int) -> None:
        name = started.peer.name
        disturbance = machine.Disturbance()
        found = started.load(cell, self.plan.pace, self.plan.sessions)
        others_cores = round(disturbance.cores(), 2)
        if found.get("given_up") or not found["calls"]:
            self.record.failures[f"{name} {cell}"] = found["first_error"] or "no answer within the window"
            print(f"{name} {cell}: given up: {found['first_error']}", flush=True)
            return
        window = Window(
            peer=name,
            cell=str(cell),
            repetition=repetition,
            others_cores=others_cores,
            cpu_us=found["cpu_user_us"] + found["cpu_system_us"],
            rss_mb=found["rss_kb"] / 1024,
            **{key: found[key] for key in ("calls", "errors", "first_error", "calls_per_s", "p50_us", "p99_us")},
        )
        self.record.windows.append(window)
        print(f"{time.strftime('%H:%M:%S')} {repetition + 1}/{self.plan.repetitions} {window}", flush=True)
