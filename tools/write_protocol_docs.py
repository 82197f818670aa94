"""Writes the tables of features and translations in docs/protocol.md, from the table that the tests run.

With `--check`, says whether the page is current.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.interactions.requirements import AS_IS, ERAS, REQUIREMENTS, Requirement
from tools.docs_regions import DOCS, main

_GROUPS = {
    "tools": "Tools",
    "calls": "During a call",
    "logging": "Logs",
    "questions": "Requests to the client",
    "resources": "Resources",
    "prompts": "Prompts",
    "completion": "Completion",
    "server": "Server information",
    "meta": "Metadata",
    "lists": "Lists",
}


def features() -> str:
    """One table for each group of rows."""
    return "\n\n".join(_group(group, title) for group, title in _GROUPS.items())


def _group(group: str, title: str) -> str:
    rows = [row for row in REQUIREMENTS if row.group == group]
    lines = [f"### {title}", "", "| what works | old client, new server | new client, old server |", "|---|---|---|"]
    return "\n".join([*lines, *map(_row, rows)])


def _row(row: Requirement) -> str:
    return f"| {row.says} | {_way(row, 'legacy', 'modern')} | {_way(row, 'modern', 'legacy')} |"


def _way(row: Requirement, client: str, server: str) -> str:
    if client not in row.clients or server not in row.servers:
        return "n/a"
    told = row.forward if client == "legacy" else row.backward
    return "the same" if told == AS_IS else told


def clients() -> str:
    """The gaps of the client libraries under test, which are not gaps of the gateway."""
    gaps = [(row, kind, era, why) for row in REQUIREMENTS for (kind, era), why in row.lacking.items()]
    lines = [f"- {row.says}: not with {kind} at {_versions(era)} ({why})" for row, kind, era, why in gaps]
    return "\n".join(lines)


def _versions(era: str) -> str:
    return dict(zip(ERAS, ("versions before 2026-07-28", "2026-07-28"), strict=True))[era]


def pages() -> dict[Path, dict[str, str]]:
    return {DOCS / "protocol.md": {"features": features(), "clients": clients()}}


if __name__ == "__main__":
    sys.exit(main("tools.write_protocol_docs", pages(), sys.argv[1:]))
