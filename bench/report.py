"""RESULTS.md: the bars, the tables, and how the numbers came about."""
# ruff: noqa: RUF001 - what people read keeps its signs

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from bench.bars import BARS
from bench.peers import PEERS, Peer
from bench.record import DISTURBED_CORES, Record
from bench.workloads import ECHO, IN_FLIGHT, KB100, LIST, MB1, READ, SPREAD, Workload

NOTES = Path(__file__).resolve().parent / "notes.md"
MARK = "°"  # on numbers from disturbed windows


def write(record: Record, path: Path) -> None:
    path.write_text(render(record))


def render(record: Record) -> str:
    parts = [
        "# Results",
        _provenance(record),
        "## Bars\n\n" + _bars(record),
        *(_load_section(record, workload) for workload in (ECHO, KB100, MB1, READ)),
        "## Search\n\n" + _search(record),
        "## 50 backends × 20 tools\n\n" + _many(record),
        "## Start and memory\n\n" + _starts(record),
        "## Method\n\n" + _method(record),
    ]
    if record.failures:
        lines = [f"- {name}: {reason}" for name, reason in record.failures.items()]
        parts.append("## What did not work\n\n" + "\n".join(lines))
    if NOTES.exists():
        parts.append("## Notes\n\n" + NOTES.read_text().strip())
    return "\n\n".join(parts) + "\n"


# -- sections -----------------------------------------------------------------------------------------------------


def _provenance(record: Record) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in record.versions.items())
    disturbed = sum(window.disturbed for window in record.windows)
    lines = [
        f"Written by `make bench` on {record.made}. {record.machine}. {versions}.",
        f"Disturbed windows (others used more than {DISTURBED_CORES} cores): {disturbed} of {len(record.windows)}; "
        f"numbers that rest on one carry {MARK}.",
    ]
    errors = sum(window.errors for window in record.windows)
    calls = sum(window.calls for window in record.windows)
    lines.append(f"Wrong or missing answers: {errors} of {calls:,} calls.")
    if not record.native:
        lines.append("**Python load generator and backend (no C compiler here): fast peers look alike.**")
    return "\n".join(lines)


def _bars(record: Record) -> str:
    rows: list[list[str]] = []
    for bar in BARS:
        measured = bar.measure(record)
        value = "–" if measured is None else bar.show(measured.value) + (MARK if measured.disturbed else "")
        rows.append(
            [bar.what, f"≤ {bar.show(bar.limit)}", value, bar.verdict(measured), measured.basis if measured else ""]
        )
    few = "Fewer than three repetitions: a look, not a verdict.\n\n" if record.settings["repetitions"] < 3 else ""
    return few + table(["bar", "limit", "measured", "", "from"], rows)


def _load_section(record: Record, workload: Workload) -> str:
    header = ["", "p50 added"]
    for in_flight in IN_FLIGHT:
        header += [f"{in_flight}: p50 / p99 µs", "calls/s", "CPU µs"]
    rows = [row for peer in PEERS if (row := _load_row(record, peer, workload))]
    return f"## {workload.title}\n\nAt 1, 8 and 64 in flight.\n\n" + table(header, rows)


def _load_row(record: Record, peer: Peer, workload: Workload) -> list[str] | None:
    cells = [f"{workload.key}@{in_flight}" for in_flight in IN_FLIGHT]
    if peer.backends > 1 or not any(record.of(peer.name, cell) for cell in cells):
        return None
    row = [peer.title, _added(record, peer, cells[0])]
    for cell in cells:
        row += _load_columns(record, peer.name, cell)
    return row


def _added(record: Record, peer: Peer, cell: str) -> str:
    """Against the same client talking to the backend itself, on the same kind of wire."""
    floor, value = record.median(f"direct:{peer.front}", cell, "p50_us"), record.median(peer.name, cell, "p50_us")
    return "–" if floor is None or value is None or peer.behind is None else f"{value - floor:+,.0f}"


def _load_columns(record: Record, peer: str, cell: str) -> list[str]:
    p50, p99, rate, cpu = (record.median(peer, cell, key) for key in ("p50_us", "p99_us", "calls_per_s", "cpu_us"))
    if p50 is None or p99 is None or rate is None or cpu is None:
        return ["–", "–", "–"]
    mark = MARK if record.is_disturbed(peer, cell) else ""
    return [f"{number(p50)} / {number(p99)}{mark}", number(rate), number(cpu)]


def _many(record: Record) -> str:
    asked = {
        f"{ECHO.key}@1": "echo of one backend, 1 in flight",
        f"{ECHO.key}@64": "echo of one backend, 64 in flight",
        f"{SPREAD.key}@64": "echo of all backends in turn, 64 in flight",
        f"{LIST.key}@1": "tools/list, 1 in flight",
    }
    rows: list[list[str]] = []
    for peer in PEERS:
        if peer.backends > 1:
            seen = [cell for cell in asked if record.of(peer.name, cell)]
            rows += [[peer.title, asked[cell], *_load_columns(record, peer.name, cell)] for cell in seen]
    return table(["", "", "p50 / p99 µs", "calls/s", "CPU µs"], rows)


def _search(record: Record) -> str:
    if not record.searches:
        return "Not measured."
    rows = [
        [found["title"], found["by"], f"{found['wall_ms']:,.0f}", f"{found['cpu_ms']:,.0f}", found["found"]]
        for found in record.searches
    ]
    head = (
        f"In {record.searches[0]['files']:,} files, one at a time; medians. CPU with all processes that take part.\n\n"
    )
    return head + table(["", "by", "ms", "CPU ms", "found"], rows)


def _starts(record: Record) -> str:
    rows: list[list[str]] = []
    for peer in PEERS:
        answer_s, result_s = record.start_s(peer.name), record.start_s(peer.name, "first_result_s")
        if answer_s is not None and result_s is not None:
            idle_mb, loaded_mb = record.idle_rss_mb.get(peer.name, 0.0), record.loaded_rss_mb(peer.name)
            memory = f"{idle_mb:.0f} / {loaded_mb:.0f}"
            mark = MARK if record.start_is_disturbed(peer.name) else ""
            row = [peer.title, f"{answer_s * 1000:,.0f}{mark}", f"{result_s * 1000:,.0f}", memory]
            rows.append([*row, str(record.processes.get(peer.name, 0))])
    header = ["", "first answer ms", "first tool result ms", "RSS MB idle / loaded", "processes"]
    return table(header, rows)


METHOD = """\
- Closed loop over loopback from a load generator {generator}: HTTP/1.1 keep-alive with one connection per call in
  flight, or one pair of pipes. One MCP session (2025-06-18) unless said otherwise. Every answer is checked: status, id,
  result, not `isError`, length.
- {repetitions} repetitions with windows of {seconds:g} s ({large:g} s for large results; longer for slow peers, until
  there are as many answers as calls in flight), each after a warm-up in which every call in flight was answered once.
  All peers stay up and take turns within each repetition. Numbers are medians; where at least two repetitions were
  undisturbed, of those.
- CPU per call: user and system time of the peer's whole process tree without the backends; in the rows without a
  proxy it is the backend's own. At 1 in flight most of it is the cost of waking up, and moves with the state of the
  machine.
- Each peer has backends of its own, a single-threaded program {generator} that does next to nothing. “p50 added” is
  against no proxy on the same kind of front.
- Trunkline runs as it comes, with a log line per call into a file; the others log no calls. nginx: one worker,
  keep-alive on both sides, buffers that hold a whole answer in memory. FastMCP and mcp-proxy: as their documentation
  starts them.
- First answer: from starting the process to the answer to `initialize` (2026-07-28: `server/discover`), in an empty
  folder. RSS is summed over the tree, so pages that its processes share count more than once."""


def _method(record: Record) -> str:
    return METHOD.format(
        generator="in C" if record.native else "in Python",
        repetitions=record.settings["repetitions"],
        seconds=record.settings["seconds"],
        large=record.settings["seconds"] * MB1.window,
    )


# -- text ---------------------------------------------------------------------------------------------------------


def number(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def table(header: list[str], rows: Iterable[list[str]]) -> str:
    lines = [f"| {' | '.join(header)} |", "|" + "|".join("---" if i == 0 else "---:" for i in range(len(header))) + "|"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines)
