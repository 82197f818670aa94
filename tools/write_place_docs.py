"""Writes the table of protected places in docs/trust.md, from the list in the code.

With `--check`, says whether the page is current.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tools.docs_regions import DOCS, main

from trunkline.sources.builtin.protection.places import PLACES


def table() -> str:
    rows = [("`.git`", "git: hooks, and the programs that its configuration names")]
    rows += [(f"`{place.path}`", place.believed_by) for place in PLACES]
    return "\n".join(["| place | used by |", "|---|---|", *(f"| {path} | {by} |" for path, by in rows)])


def pages() -> dict[Path, dict[str, str]]:
    return {DOCS / "trust.md": {"places": table()}}


if __name__ == "__main__":
    sys.exit(main("tools.write_place_docs", pages(), sys.argv[1:]))
