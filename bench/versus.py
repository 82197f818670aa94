"""Whether a change made Trunkline slower: this checkout and another one side by side, window by window.

    python -m bench.versus OTHER/.venv/bin/trunkline [--only trunkline:http-stdio,…] [--cells echo@64,…] [--rounds 15]

Two reports of the same code differ by more than most changes cost. Here both versions run at once, and a short window
of one is followed by one of the other, in changing order; what is compared is the median of CPU per call.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from statistics import median, quantiles

from bench import launch, machine
from bench.launch import Site
from bench.peers import PEERS, Peer
from bench.programs import BUILD, Programs, prepare
from bench.running import Pace, Running
from bench.workloads import Cell

PACE = Pace(0.3, warm_s=0.1)
CELLS = "echo@1,echo@64,100kb@1"


def other(peer: Peer, program: str) -> Peer:
    """The same way through another version."""

    def started(site: Site) -> list[str]:
        return [program, *peer.launch(site)[1:]]

    return replace(peer, launch=started)


def compare(both: tuple[Running, Running], cell: Cell, rounds: int) -> tuple[list[float], list[float]]:
    figures: tuple[list[float], list[float]] = [], []
    for turn in range(rounds):
        for which in (0, 1) if turn % 2 else (1, 0):
            found = both[which].load(cell, PACE)
            if found.get("errors") or not found.get("calls"):
                raise SystemExit(f"{both[which].peer.name} {cell}: {found.get('first_error') or 'no answers'}")
            figures[which].append(found["cpu_user_us"] + found["cpu_system_us"])
    return figures


def spread(figures: list[float]) -> str:
    low, _, high = quantiles(figures)
    return f"{median(figures):8.1f} ({low:.1f} to {high:.1f})"


def show(peer: Peer, cells: list[str], options: argparse.Namespace, programs: Programs) -> None:
    folder = BUILD / "versus"
    shutil.rmtree(folder, ignore_errors=True)
    running: list[Running] = []
    try:
        running.append(Running(peer, programs, folder / "this"))
        running.append(Running(other(peer, options.program), programs, folder / "other"))
        for cell in (cell for cell in peer.cells if str(cell) in cells):
            ours, theirs = compare((running[0], running[1]), cell, options.rounds)
            ratio = median(ours) / median(theirs)
            print(f"{peer.name:32}{cell!s:9}{spread(ours):26}{spread(theirs):26}{ratio:.3f}", flush=True)
    finally:
        for started in running:
            started.stop()


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.versus", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("program", help="the other version's `trunkline`")
    parser.add_argument("--only", default="trunkline:http-,trunkline:stdio-", help="how the ways to compare begin")
    parser.add_argument("--cells", default=CELLS)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    options.program = str(Path(options.program).absolute())
    programs = prepare()
    print(f"{'CPU µs per call: median (quartiles)':41}{launch.BIN.parent.parent.name:26}{'other':26}ratio")
    machine.adopt_orphans()
    try:
        for peer in PEERS:
            if peer.name.startswith(tuple(options.only.split(","))):
                show(peer, options.cells.split(","), options, programs)
    finally:
        machine.end_descendants()
    return 0


if __name__ == "__main__":
    sys.exit(main())
