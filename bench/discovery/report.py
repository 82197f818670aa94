"""RESULTS.md: the bars, the tables, and how the numbers came about."""
# ruff: noqa: RUF001 - what people read keeps its signs

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.discovery.bars import BARS
from bench.discovery.metrics import Quality
from bench.discovery.quality import FULL, TITLES
from bench.discovery.record import PUBLIC, Record
from bench.discovery.sets import KINDS, OWN, Kind
from bench.record import DISTURBED_CORES
from bench.report import table

NOTES = Path(__file__).resolve().parent / "notes.md"
MARK = "°"  # on numbers from a time when others used the machine
UNSEEN = tuple(kind.folder for kind in (*KINDS, OWN) if not kind.seen)
Json = dict[str, Any]


def write(record: Record, path: Path) -> None:
    path.write_text(render(record))


def render(record: Record) -> str:
    parts = ["# Finding tools: results", _provenance(record), "## Bars\n\n" + _bars(record)]
    if record.quality:
        parts.append("## Quality\n\n" + _quality(record))
    if record.costs:
        parts.append("## Cost\n\n" + _costs(record))
    if record.context:
        parts.append("## Context\n\n" + _context(record))
    parts.append("## Method\n\n" + METHOD.format(**record.settings).strip())
    if NOTES.exists():
        parts.append("## Notes\n\n" + NOTES.read_text().strip())
    return "\n\n".join(parts) + "\n"


def _provenance(record: Record) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in record.versions.items())
    part = " On the **development** half of the requests." if record.settings["split"] == "dev" else ""
    quick = " A quick look: few requests, small catalogs." if record.settings["quick"] else ""
    data = "" if record.settings["data"] else " Without the public sets: own set and invented tools only."
    return f"Written by `make bench-discovery` on {record.made}. {record.machine}. {versions}.{part}{quick}{data}"


def _bars(record: Record) -> str:
    rows: list[list[str]] = []
    for bar in BARS:
        measured = bar.measure(record)
        value = "–" if measured is None else bar.show.format(measured.value)
        rows.append([bar.what, bar.limit_text(), value, bar.verdict(measured), measured.basis if measured else ""])
    return table(["bar", "limit", "measured", "", "from"], rows)


# -- quality ------------------------------------------------------------------------------------------------------


def _quality(record: Record) -> str:
    rows: list[list[str]] = []
    for kind in (*KINDS, OWN):
        rows += _quality_rows(record, _title(record, kind), (kind.folder,), seen=kind.seen)
    rows += _quality_rows(record, "**mean of the five public sets**", PUBLIC, seen=True)
    rows += _quality_rows(record, "**mean of those the encoder never saw**", UNSEEN, seen=False)
    header = ["set", "search", "R@1", "R@5", "R@10", "MRR", "NDCG@10", ""]
    return "“seen”: the encoder was trained on this set, so its row says little.\n\n" + table(header, rows)


def _title(record: Record, kind: Kind) -> str:
    row = next((row for row in record.quality if row["set"] == kind.folder), None)
    return "" if row is None else f"{kind.title} ({row['tools']:,} tools, {row['queries']:,} requests)"


def _quality_rows(record: Record, title: str, sets: Sequence[str], *, seen: bool) -> list[list[str]]:
    found = {method: quality for method in TITLES if (quality := record.found(method, *sets)) is not None}
    return [
        [title if number == 0 else "", TITLES[method], *_numbers(quality), "seen" if seen and method == FULL else ""]
        for number, (method, quality) in enumerate(found.items())
    ]


def _numbers(quality: Quality) -> list[str]:
    values = (quality.recall_1, quality.recall_5, quality.recall_10, quality.mrr, quality.ndcg_10)
    return [f"{value:.3f}" for value in values]


# -- cost ---------------------------------------------------------------------------------------------------------

COSTS = {
    "plain": "plain BM25",
    "fastmcp": TITLES["fastmcp"],
    "words": "Trunkline, words alone",
    "meaning_again": "Trunkline, words and meaning",
    "words_many": "Trunkline, words alone",
    "meaning_many": "Trunkline, words and meaning (any vectors)",
}


def _costs(record: Record) -> str:
    rows = [_cost_row(title, record.costs[part]) for part, title in COSTS.items() if part in record.costs]
    header = ["", "tools", "index s", "memory MB", "query p50 / p95 ms", "CPU", "user's turn p50 / p95 ms", "CPU"]
    return table(header, rows) + "\n\n" + "\n".join(_told_costs(record))


def _cost_row(title: str, cost: Json) -> list[str]:
    index = f"{cost['index_s']:.2f}{_mark(cost)}" if "index_s" in cost else "–"
    memory = cost.get("index_mb", cost.get("meaning_mb"))
    row = [title, f"{cost['tools']:,}", index, "–" if memory is None else f"{memory:.0f}"]
    return [*row, *_times(cost, _mark(cost)), *_times(cost["turns"], _mark(cost))]


def _times(spread: Json | None, mark: str) -> list[str]:
    if spread is None:
        return ["–", "–"]
    by_cpu = f"{spread['cpu_p50_ms']:.2f} / {spread['cpu_p95_ms']:.2f}"
    return [f"{spread['p50_ms']:.2f} / {spread['p95_ms']:.2f}{mark}", by_cpu]


def _mark(cost: Json) -> str:
    return MARK if cost["others_cores"] > DISTURBED_CORES else ""


def _told_costs(record: Record) -> list[str]:
    words, first, second = record.costs["words"], record.costs["meaning"], record.costs["meaning_again"]
    many = record.costs["words_many"]
    return [
        f"- One server's change (50 of {words['tools']:,} tools): {words['change_ms']:.1f} ms, at worst "
        f"{words['change_worst_ms']:.1f} ms{_mark(words)}; of {many['tools']:,} tools: {many['change_ms']:.1f} ms"
        f"{_mark(many)}. Indexing holds up other work for {words['longest_step_ms']:.1f} ms at most.",
        f"- Encoding {first['encoded']:,} tools in the background: {first['encoding_cpu_s']:.1f} s of CPU, "
        f"{first['encoding_s']:.0f} s by the clock; the event loop was late by {first['loop_wait_p99_ms']:.1f} ms at "
        f"the 99th percentile{_mark(first)}.",
        f"- Second start: {second['encoded']} encoded, {second['encoding_cpu_s']:.2f} s of CPU until everything can be "
        "found by meaning.",
        f"- Memory (RSS): numpy and the code {words['loaded_mb']:.0f} MB, the index of words {words['index_mb']:.0f} MB"
        f"; index, encoder and vectors together {first['meaning_mb']:.0f} MB after the first start and "
        f"{second['meaning_mb']:.0f} MB after the second.",
    ]


# -- context ------------------------------------------------------------------------------------------------------


def _context(record: Record) -> str:
    header = ["tools", "disclosure", "list", "whole dialogue", "of `all`", "÷ 4 characters", "found"]
    rows = [_context_row(record, row) for row in record.context]
    return "Tokens that a client is sent, means over the dialogues.\n\n" + table(header, rows)


def _context_row(record: Record, row: Json) -> list[str]:
    whole = record.sent(row["tools"], "all")
    assert whole is not None
    of_all = f"{row['list_tokens'] / whole['list_tokens']:.1%} / {row['tokens'] / whole['tokens']:.1%}"
    title = f"{row['tools']:,} of {row['servers']} servers" if row["mode"] == "all" else ""
    quarter = f"{row['characters'] / 4:,.0f} ({row['characters'] / whole['characters']:.1%})"
    found = f"{row['found']:.0%}" if row["searched"] else "listed"
    return [title, f"`{row['mode']}`", f"{row['list_tokens']:,.0f}", f"{row['tokens']:,.0f}", of_all, quarter, found]


METHOD = """\
- Requests: of each set those that are not for development (Seal-Tools and the own set say which are; else a hash of
  their ids), at most {most} of a set by a hash, the same for every search. Recall counts the tools a request needs; any
  of several equivalent ones will do. MRR and NDCG look at the first ten.
- Plain BM25: k1 1.2, b 0.75, lower-case words of name and description. FastMCP: its `BM25SearchTransform` on its own
  server, asked with its `search_tools` through its client, tools named `server_tool` as it mounts them.
- Cost: each measured in a fresh process; servers of 50 tools, from all sets. “Query” is a request of the own set,
  “user's turn” one of the public sets: those are longer. With meaning, a query's time is from asking to the ranking,
  its own encoding in another thread included; in the largest catalog the vectors are random ones. CPU is that of all
  threads of the process. {mark}: others used more than {cores} cores meanwhile.
- Context: `trunkline up` before {corpus}, and a new session of the official Python SDK
  for each of {dialogues} dialogues: tools/list; where the tool is not in it, `discover_tools` with the first sentence
  of its description, the wait for `list_changed`, tools/list again, and the call, by name and with `execute_tool` in
  turn. Counted are the definitions as a model sees them in every list, the instructions and the text of every answer,
  with Trunkline's own estimate; beside it a fourth of all characters of JSON received.
"""
