"""`python -m bench`: measures, writes the results, says which bars were missed."""

from __future__ import annotations

import argparse
import fcntl
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from bench import launch, machine, measure, peers, programs, report
from bench.bars import BARS
from bench.programs import BUILD, HERE
from bench.record import Record
from bench.running import Pace

RECORD = BUILD / "last.json"


def main() -> int:
    options = _options()
    if not Path("/proc/self/stat").exists():
        print("the bench reads CPU time from /proc, which this system does not have", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, _as_interrupt)
    if options.render:
        record = Record.load(RECORD)
    else:
        try:
            with _alone():
                record = _measure(options)
        except BlockingIOError:
            print("another bench is running in this checkout; both would be wrong", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("interrupted; everything that was started has been ended", file=sys.stderr)
            return 130
    partial = bool(record.settings["quick"] or record.settings["only"])
    out = options.out or (BUILD / "RESULTS.md" if partial else HERE / "RESULTS.md")
    report.write(record, out)
    _say_bars(record)
    print(f"written to {out}")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="about two minutes: fewer cells, shorter windows")
    parser.add_argument("--only", default="", help="names of peers or how they begin: trunkline,nginx,direct")
    parser.add_argument("--reps", type=int, help="repetitions (3; quick: 2)")
    parser.add_argument("--secs", type=float, help="seconds of a window (1.0; quick: 0.5)")
    parser.add_argument("--sessions", type=int, default=1, help="MCP sessions the connections are spread over (1)")
    parser.add_argument("--out", type=Path, help="where to write (bench/RESULTS.md; with --quick or --only: .bench/)")
    parser.add_argument("--render", action="store_true", help="only write the report of the last run again")
    options = parser.parse_args()
    options.reps = options.reps or (2 if options.quick else 3)
    options.secs = options.secs or (0.5 if options.quick else 1.0)
    return options


def _as_interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@contextmanager
def _alone() -> Iterator[None]:
    BUILD.mkdir(exist_ok=True)
    with (BUILD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def _measure(options: argparse.Namespace) -> Record:
    beginnings = tuple(filter(None, options.only.split(",")))
    chosen = tuple(peer for peer in peers.PEERS if not beginnings or peer.name.startswith(beginnings))
    plan = measure.Plan(
        peers=chosen,
        pace=Pace(options.secs, warm_s=0.15 if options.quick else 0.25),
        repetitions=options.reps,
        starts=1 if options.quick else 3,
        quiet_budget_s=5 if options.quick else 60,
        sessions=options.sessions,
        quick=options.quick,
    )
    built = programs.prepare()
    record = Record(
        made=time.strftime("%Y-%m-%d"),
        machine=machine.describe(),
        versions=launch.versions(),
        native=built.native,
        settings={"repetitions": options.reps, "seconds": options.secs, "quick": options.quick, "only": options.only},
    )
    began_s = time.monotonic()
    measure.Run(plan, built, record).run()
    print(f"measured for {time.monotonic() - began_s:.0f} s")
    record.save(RECORD)
    return record


def _say_bars(record: Record) -> None:
    for bar in BARS:
        measured = bar.measure(record)
        value = bar.show(measured.value) if measured else "-"
        print(f"{bar.what:75} {value:>9}  (≤ {bar.show(bar.limit)})  {bar.verdict(measured).strip('*')}")


if __name__ == "__main__":
    sys.exit(main())
