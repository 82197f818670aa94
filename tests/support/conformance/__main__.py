"""`make conformance`: the official harness in every layout, as a table. Results stay in .cache/conformance."""

from __future__ import annotations

import shutil
import sys

from tests.support.conformance.client_scenarios import CLIENT_MODULE, CLIENT_SCENARIOS, judge_through_gateway
from tests.support.conformance.expectations import client_shortfall, shortfall
from tests.support.conformance.harness import LEGACY, ROOT, WIRES, Report, Wire, judge_server
from tests.support.conformance.layouts import (
    BACKEND_MODULE,
    DIRECT,
    THROUGH,
    TO_LEGACY,
    TO_MODERN,
    Layout,
    standing,
)
from tests.support.conformance.stock import Stock

RESULTS = ROOT / ".cache" / "conformance"
ROWS: tuple[tuple[Layout, tuple[Wire, ...]], ...] = (
    (DIRECT, WIRES),
    *((layout, WIRES) for layout in THROUGH),
    *((layout, (LEGACY,)) for layout in TO_MODERN),
    *((layout, WIRES) for layout in TO_LEGACY),
)
WIDTHS = (44, 34, 34, 34)


def print_row(*cells: str) -> None:
    print("| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, WIDTHS, strict=True)) + " |", flush=True)


def run_layout(layout: Layout, wires: tuple[Wire, ...], stock: Stock) -> dict[Wire, Report]:
    folder = RESULTS / str(layout)
    with standing(layout, folder, stock) as url:
        return {wire: judge_server(wire, url, folder / wire.name) for wire in wires}


def run_servers(stock: Stock) -> dict[str, str]:
    """The table, row by row as it comes; what is short of what can be, by its place."""
    short: dict[str, str] = {}
    print_row("scenarios passed, checks", *(wire.title for wire in WIRES))
    print_row(*("-" * width for width in WIDTHS))
    for layout, wires in ROWS:
        reports = run_layout(layout, wires, stock)
        print_row(layout.title, *(str(reports.get(wire, "-")) for wire in WIRES))
        short |= {f"{layout.title}: {wire}": shortfall(layout, wire, report) for wire, report in reports.items()}
    return short


def run_clients(stock: Stock) -> dict[str, str]:
    short: dict[str, str] = {}
    for scenario in CLIENT_SCENARIOS:
        report = judge_through_gateway(scenario, RESULTS / "client" / str(scenario), stock)
        short[f"client through the gateway: {scenario}"] = client_shortfall(scenario, report)
    passed = sum(not found for found in short.values())
    print(f"\nclients through the gateway: {passed}/{len(short)} scenarios passed", flush=True)
    return short


def main() -> int:
    shutil.rmtree(RESULTS, ignore_errors=True)
    with Stock(BACKEND_MODULE, CLIENT_MODULE) as stock:
        found = run_servers(stock) | run_clients(stock)
    short = {place: words for place, words in found.items() if words}
    for place, words in short.items():
        print(f"\n{place}\n{words}")
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
