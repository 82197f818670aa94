"""The built-in Glob and Grep over many files, beside plain `rg` on the same files.

Wall time of one call at a time, and CPU time of every process that takes part: for `rg` its own, for the gateway its
whole tree and what its children used that have ended meanwhile.
"""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import machine
from bench.launch import BIN
from bench.peers import Peer
from bench.programs import BUILD, Programs
from bench.running import Running

FILES = 50_000
FOLDERS = 500
ROUNDS = 7
LIMIT_S = 60.0
RARE, COMMON = "needle_4711", "import"
Json = dict[str, Any]


@dataclass(frozen=True)
class Search:
    title: str
    tool: str
    arguments: Json
    plain: tuple[str, ...]  # what `rg` is given


SEARCHES = (
    Search(
        "Grep, in few files",
        "Grep",
        {"pattern": RARE, "output_mode": "files_with_matches"},
        ("--files-with-matches", RARE),
    ),
    Search(
        "Grep, in every file",
        "Grep",
        {"pattern": COMMON, "output_mode": "files_with_matches"},
        ("--files-with-matches", COMMON),
    ),
    Search("Grep, no match", "Grep", {"pattern": "absent_[0-9]{9}"}, ("--files-with-matches", "absent_[0-9]{9}")),
    Search("Glob, one kind of file", "Glob", {"pattern": "**/*7.py"}, ("--files", "--glob", "**/*7.py")),
)


def make_tree() -> Path:
    """Once for all runs: fifty thousand small files, as a large project has them."""
    root = BUILD / "tree"
    done = root / ".made"
    if done.exists() and done.read_text() == str(FILES):
        return root
    shutil.rmtree(root, ignore_errors=True)
    body = "".join(f"{COMMON} module_{n}\ndef function_{n}(value):\n    return value + {n}\n\n" for n in range(20))
    for number in range(FILES):
        folder = root / f"package_{number % FOLDERS:03}"
        if number < FOLDERS:
            folder.mkdir(parents=True)
        extra = f"{RARE} = {number}\n" if number % 5000 == 7 else ""
        (folder / f"module_{number:05}.py").write_text(f"# {number}\n{extra}{body}")
    done.write_text(str(FILES))
    return root


def measure_searches(peer: Peer, programs: Programs) -> list[Json]:
    """One row for `rg` and one for the gateway, for each search."""
    root = make_tree()
    rg = shutil.which("rg", path=f"{BIN}:{os.environ.get('PATH', '')}")
    if rg is None:
        print("search: no `rg` here", file=sys.stderr)
        return []
    running = Running(peer, programs, BUILD / "run" / "search", root=root)
    rows: list[Json] = []
    try:
        for search in SEARCHES:
            rows.append({**_plain(rg, root, search), "by": "plain `rg`"})
            rows.append({**_through(running, search), "by": "Trunkline"})
            print(f"{rows[-2]}\n{rows[-1]}", flush=True)
    finally:
        running.stop()
    return [{**row, "files": FILES} for row in rows]


def _plain(rg: str, root: Path, search: Search) -> Json:
    def run() -> str:
        ran = subprocess.run([rg, *search.plain], cwd=root, capture_output=True, text=True, check=False)
        return f"{len(ran.stdout.splitlines()):,} files"

    def cpu_s() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    return _rounds(search, run, cpu_s)


def _through(running: Running, search: Search) -> Json:
    name = running.client.names_of(search.tool)[0]

    def run() -> str:
        params = {"name": name, "arguments": search.arguments}
        result = running.client.request("tools/call", params, time.monotonic() + LIMIT_S)
        assert not result.get("isError"), result
        return f"{len(result['content'][0]['text']):,} characters"

    return _rounds(search, run, lambda: machine.cpu_s(running.pids()))


def _rounds(search: Search, run: Callable[[], str], cpu_s: Callable[[], float]) -> Json:
    run()  # the first one warms the caches of the system
    walls: list[float] = []
    cpu_before_s, found = cpu_s(), ""
    for _ in range(ROUNDS):
        began_s = time.monotonic()
        found = run()
        walls.append(time.monotonic() - began_s)
    cpu_ms = 1000 * (cpu_s() - cpu_before_s) / ROUNDS
    return {"title": search.title, "wall_ms": 1000 * statistics.median(walls), "cpu_ms": cpu_ms, "found": found}
