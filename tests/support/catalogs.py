"""Servers with the tools of real ones, as far as a search can tell: definitions of the own set of the benchmark.

Behind them is the fault server: what is found works like its `echo`, and its own tools are there beside them.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

from tests.support.servers import HttpFaults, StdioFaults

ROOT = Path(__file__).resolve().parents[2]
_OWN_SET = ROOT / "bench" / "discovery" / "own_set" / "tools.jsonl"
_READS = ("get", "list", "search", "read", "find", "describe")


@functools.cache
def _definitions() -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for line in _OWN_SET.read_text(encoding="utf-8").splitlines():
        tool = json.loads(line)
        definition = {"name": tool["name"], "description": tool["description"], "inputSchema": tool["schema"]}
        definition["annotations"] = {"readOnlyHint": tool["name"].startswith(_READS)}
        found.setdefault(tool["server"], []).append(definition)
    return found


def definitions_of(server: str) -> list[dict[str, Any]]:
    """What this server of the set offers."""
    return _definitions()[server]


def stdio_server(folder: Path, server: str, **options: Any) -> StdioFaults:
    return StdioFaults(folder, server, tools=definitions_of(server), **options)


def http_server(folder: Path, server: str, **options: Any) -> HttpFaults:
    return HttpFaults(folder, server, tools=definitions_of(server), **options)


def entry_of(server: StdioFaults | HttpFaults, *own: str, **keys: Any) -> dict[str, dict[str, Any]]:
    """The server's part of `sources:`, with the tools of the set and of the fault server's own only these."""
    names = [tool["name"] for tool in definitions_of(server.name)]
    return server.entry(tools={"allow": [*names, *own]}, **keys)
