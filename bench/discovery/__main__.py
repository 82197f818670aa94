"""`python -m bench.discovery`: measures, writes the results, says which bars were missed."""

from __future__ import annotations

import argparse
import fcntl
import logging
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from types import FrameType

from bench import machine
from bench.discovery import catalogs, context, costs, quality, report, sets
from bench.discovery.bars import BARS
from bench.discovery.record import Record
from bench.programs import BUILD
from bench.record import DISTURBED_CORES

HERE = Path(__file__).resolve().parent
PARTS = ("quality", "cost", "context")


def main() -> int:
    options = _options()
    if not Path("/proc/self/stat").exists():
        print("the bench reads memory and CPU time from /proc, which this system does not have", file=sys.stderr)
        return 1
    if options.data and not any((options.data / kind.folder).is_dir() for kind in sets.KINDS):
        print(f"`{options.data}` holds none of the sets; bench/discovery/README.md says how it looks", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, _as_interrupt)
    logging.disable(logging.ERROR)  # the SDKs warn of names in the sets, and of tools called without having been listed
    options.folder.mkdir(parents=True, exist_ok=True)
    kept = options.folder / "last.json"
    try:
        record = Record.load(kept) if options.render else _measured(options)
    except BlockingIOError:
        print("another run is going on in this folder; both would be wrong", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; everything that was started has been ended", file=sys.stderr)
        return 130
    record.save(kept)
    out = options.out or (HERE if _is_whole(record) else options.folder) / "RESULTS.md"
    report.write(record, out)
    _say_bars(record)
    print(f"written to {out}")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.discovery", description=__doc__)
    parser.add_argument("--data", type=Path, help="the folder with the public sets; without it the own set alone")
    parser.add_argument("--split", choices=("dev", "report"), default="report", help="dev: the half to tune on")
    parser.add_argument("--parts", default=",".join(PARTS), help="which to measure (quality,cost,context)")
    parser.add_argument("--methods", default="", help=f"which searches to judge ({','.join(quality.TITLES)})")
    parser.add_argument("--queries", type=int, help="requests of a set at most (500; quick: 40)")
    parser.add_argument("--dialogues", type=int, help="dialogues for each catalog and mode (12; quick: 2)")
    parser.add_argument("--quick", action="store_true", help="well under a minute: few requests, small catalogs")
    parser.add_argument("--folder", type=Path, default=BUILD / "discovery", help="where to work (.bench/discovery)")
    parser.add_argument("--out", type=Path, help="where to write (bench/discovery/RESULTS.md if all was measured)")
    parser.add_argument("--render", action="store_true", help="only write the report of the last run again")
    options = parser.parse_args()
    options.queries = options.queries or (40 if options.quick else 500)
    options.dialogues = options.dialogues or (2 if options.quick else 12)
    options.parts = tuple(filter(None, options.parts.split(",")))
    options.methods = tuple(filter(None, options.methods.split(",")))
    return options


def _is_whole(record: Record) -> bool:
    settings = record.settings
    partly = settings["quick"] or settings["methods"] or settings["split"] == "dev" or not settings["data"]
    return not partly and bool(record.quality and record.costs and record.context)


def _as_interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        machine.adopt_orphans()
        try:
            yield
        finally:
            machine.end_descendants()


def _measured(options: argparse.Namespace) -> Record:
    with _alone(options.folder):
        record = _new_record(options)
        began_s = time.monotonic()
        known = sets.read_sets(options.data)
        if "quality" in options.parts:
            record.quality = quality.measure(known, options.split, options.queries, options.methods)
        if "cost" in options.parts:
            scale = costs.QUICK if options.quick else costs.Scale()
            record.costs = costs.measure(known, options.data, options.folder / "cost", scale)
        if "context" in options.parts:
            catalog_sizes = (10, 120) if options.quick else context.SIZES
            tools = catalogs.real_tools(options.data)
            record.context = context.measure(tools, catalog_sizes, options.dialogues, options.folder / "context")
        print(f"measured for {time.monotonic() - began_s:.0f} s")
    return record


def _new_record(options: argparse.Namespace) -> Record:
    return Record(
        made=time.strftime("%Y-%m-%d"),
        machine=machine.describe(),
        versions={"Trunkline": version("trunkline"), "FastMCP": version("fastmcp"), "mcp": version("mcp")},
        settings={
            "quick": options.quick,
            "split": options.split,
            "methods": list(options.methods),
            "data": options.data is not None,
            "most": options.queries,
            "dialogues": options.dialogues,
            "mark": report.MARK,
            "cores": DISTURBED_CORES,
            "corpus": "definitions of real MCP servers (MCP-Zero)" if options.data else "definitions of the own set",
        },
    )


def _say_bars(record: Record) -> None:
    for bar in BARS:
        measured = bar.measure(record)
        value = bar.show.format(measured.value) if measured else "-"
        print(f"{bar.what:65} {value:>9}  ({bar.limit_text()})  {bar.verdict(measured).strip('*')}")


if __name__ == "__main__":
    sys.exit(main())
