"""`make conformance`: the official harness in every layout, as a table. Results stay in .cache/conformance."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.support.conformance.client_scenarios import CLIENT_SCENARIOS, judge_through_gateway
from tests.support.conformance.harness import LEGACY, MODERN, ROOT, WIRES, Report, Wire, judge_server
from tests.support.conformance.layouts import DIRECT, THROUGH, TO_LEGACY, TO_MODERN, Layout, standing

RESULTS = ROOT / ".cache" / "conformance"
ROWS: tuple[tuple[Layout, tuple[Wire, ...]], ...] = (
    (DIRECT, WIRES),
    *((layout, WIRES) for layout in THROUGH),
    *((layout, (LEGACY,)) for layout in TO_MODERN),
    *((layout, (MODERN,)) for layout in TO_LEGACY),
)
WIDTHS = (44, 34, 34, 34)


def print_row(*cells: str) -> None:
    print("| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, WIDTHS, strict=True)) + " |", flush=True)


def run_layout(layout: Layout, wires: tuple[Wire, ...]) -> dict[Wire, Report]:
    folder = RESULTS / str(layout)
    with standing(layout, folder) as url:
        return {wire: judge_server(wire, url, folder / wire.name) for wire in wires}


def run_servers() -> dict[str, Report]:
    """The table, row by row as it comes."""
    reports: dict[str, Report] = {}
    print_row("scenarios passed, checks", *(wire.title for wire in WIRES))
    print_row(*("-" * width for width in WIDTHS))
    for layout, wires in ROWS:
        found = run_layout(layout, wires)
        print_row(layout.title, *(str(found.get(wire, "-")) for wire in WIRES))
        reports |= {f"{layout.title}: {wire.title}": report for wire, report in found.items()}
    return reports


def run_clients() -> dict[str, Report]:
    reports: dict[str, Report] = {}
    for scenario in CLIENT_SCENARIOS:
        report = judge_through_gateway(scenario, RESULTS / "client" / str(scenario))
        reports[f"client through the gateway: {scenario}"] = report
    passed = sum(not report.failed_scenarios for report in reports.values())
    print(f"\nclients through the gateway: {passed}/{len(reports)} scenarios passed", flush=True)
    return reports


def main() -> None:
    shutil.rmtree(RESULTS, ignore_errors=True)
    Path(RESULTS).mkdir(parents=True)
    for title, report in (run_servers() | run_clients()).items():
        if report.not_ok:
            print(f"\n{title}\n{report.explain()}")


if __name__ == "__main__":
    main()
