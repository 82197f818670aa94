"""What finding tools costs: time, CPU and memory, each measured in a process of its own."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench import machine
from bench.discovery.catalogs import large
from bench.discovery.sets import OWN, QuerySet

LIMIT_S = 600
Json = dict[str, Any]


@dataclass(frozen=True)
class Scale:
    usual: int = 5000
    """How many tools the catalog has."""
    many: int = 20_000
    """How many a very large one has."""
    queries: int = 400
    quiet_budget_s: float = 60
    """How long, in all, to wait for others to leave the machine alone."""


QUICK = Scale(150, 300, 60, quiet_budget_s=0)


def measure(sets: Sequence[QuerySet], data: Path | None, folder: Path, scale: Scale) -> dict[str, Json]:
    """By the name of the measurement."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    asked = _requests(sets, scale.queries)
    usual, many = folder / "usual.json", folder / "many.json"
    for size, path in ((scale.usual, usual), (scale.many, many)):
        tools = [asdict(tool) for tool in large(sets, data, size)]
        path.write_text(json.dumps({"tools": tools, **asked}))
    parts = {
        "plain": ("plain", usual),
        "fastmcp": ("fastmcp", usual),
        "words": ("words", usual),
        "words_many": ("words", many),
        "meaning_many": ("many", many),
        "meaning": ("meaning", usual),
        "meaning_again": ("meaning", usual),
    }
    quiet, found = machine.Quiet(scale.quiet_budget_s, longest_s=15), dict[str, Json]()
    for name, (part, catalog) in parts.items():
        quiet.wait()
        found[name] = _run(part, catalog, folder)
    return found


def _requests(sets: Sequence[QuerySet], most: int) -> dict[str, list[str]]:
    """Those of the own set, and as many from all the others together; each text once, for some searches remember."""
    queries = [query.text for each in sets if each.kind is OWN for query in each.queries]
    others = [each for each in sets if each.kind is not OWN]
    turns = [query.text for each in others for query in each.chosen("report", most // len(others))]
    return {"queries": list(dict.fromkeys(queries))[:most], "turns": list(dict.fromkeys(turns))}


def _run(part: str, catalog: Path, folder: Path) -> Json:
    command = [sys.executable, "-m", "bench.discovery.cost_run", part, str(catalog), str(folder / "state")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if ran.returncode:
        raise RuntimeError(f"{part}: {ran.stderr[-2000:]}")
    found = json.loads(ran.stdout)
    print(f"{part}: {found}", flush=True)
    return found
